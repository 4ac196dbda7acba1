//! Ours in the lab: `fleetgate ssh target true`, which connects to the proxy each time, and plain ssh as `fleetgate config
//! ssh` tells it, which keeps its connection through the proxy.

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

    /// OpenSSH's client, over the connection through the proxy that it has kept; milliseconds.
    pub fn kept(&self, world: &World) -> Result<f64> {
        timed(|| world.client(&mut self.0.openssh()))
    }
}
