//! Our cluster in the lab: authority and proxy in one place, a node in another, a user who has logged in in the third. All
//! state is in each place's own /run. The only file here that knows the commands of `fleetgate`.

use super::world::World;
use crate::shell::Result;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Where the proxy listens, in its place.
const PORT: u16 = 3023;
/// State of each of the three, in its place.
const STATE: &str = "/run/lab";

/// A running cluster.
pub struct Ours(());

impl Ours {
    /// Starts it, joins the node and logs the user in.
    pub fn start(world: &World) -> Result<Ours> {
        let at = format!("proxy:{PORT}");
        let said = |place, words: &[&str]| said(world, place, words);
        said(
            "proxy",
            &[
                "init",
                "--state",
                STATE,
                "--name",
                "lab",
                "--listen",
                &format!("0.0.0.0:{PORT}"),
            ],
        )?;
        world.serve(
            "proxy",
            "up",
            PORT,
            fleetgate(world).args(["up", "--state", STATE]),
        )?;
        let token = said("proxy", &["token", "add", "--state", STATE])?;
        world.write("token", &token)?;
        let token = world.at.join("token").display().to_string();
        said(
            "target",
            &["join", "--proxy", &at, "--token-file", &token, "--state", STATE],
        )?;
        world.serve(
            "target",
            "node",
            0,
            fleetgate(world).args(["node", "--state", STATE]),
        )?;
        let invite = said("proxy", &["user", "add", "root", "--state", STATE])?;
        world.write("invite", &invite)?;
        let invite = world.at.join("invite").display().to_string();
        said("user", &["login", "--proxy", &at, "--invite-file", &invite])?;
        Ok(Ours(()))
    }

    /// `fleetgate ssh target true` without a connection to the proxy; milliseconds.
    pub fn cold(&self, world: &World) -> Result<f64> {
        said(world, "user", &["disconnect"])?;
        self.warm(world)
    }

    /// The same over the connection that the one before has left.
    pub fn warm(&self, world: &World) -> Result<f64> {
        let start = Instant::now();
        world.client(fleetgate(world).args(["ssh", "target", "true"]))?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }
}

fn fleetgate(world: &World) -> Command {
    let mut command = Command::new(&world.fleetgate);
    command.env("HOME", STATE);
    command
}

/// Runs a command to its end in `place`; what it wrote.
fn said(world: &World, place: &'static str, words: &[&str]) -> Result<String> {
    let mut command = fleetgate(world);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let out = world
        .lab
        .start_in(place, &mut command)?
        .output()
        .map_err(|e| e.to_string())?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let error = String::from_utf8_lossy(&out.stderr);
    Err(format!(
        "fleetgate {words:?} in {place}: {}: {}",
        out.status,
        error.trim()
    ))
}
