//! Ours in the lab: `fleetgate ssh target true`, connecting to the proxy each time and by the connection to it that is kept,
//! and plain ssh as `fleetgate config ssh` tells it, which keeps its connection through the proxy to the node.

use super::timed;
use super::world::World;
use crate::shell::Result;
use fleetgate_lab::Fleet;

/// A running cluster, with a user who has logged in.
pub struct Ours(Fleet);

impl Ours {
    /// Starts it.
    pub fn start(world: &World) -> Result<Ours> {
        Ok(Ours(Fleet::start(&world.lab, &world.fleetgate, &world.at)?))
    }

    /// `fleetgate ssh`; milliseconds.
    pub fn cold(&self, world: &World) -> Result<f64> {
        timed(|| world.client(&mut self.0.ssh()))
    }

    /// The same by the connection to the proxy that the first one left; milliseconds.
    pub fn warm(&self, world: &World) -> Result<f64> {
        timed(|| world.client(&mut self.0.ssh_kept()))
    }

    /// OpenSSH's client, over the connection through the proxy that it has kept; milliseconds.
    pub fn kept(&self, world: &World) -> Result<f64> {
        timed(|| world.client(&mut self.0.openssh()))
    }
}
