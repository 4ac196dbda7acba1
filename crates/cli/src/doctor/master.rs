//! The process that keeps the login's connections: whether it runs, whether it could, and whether it renews the login.

use super::finding;
use super::node::{Finding, Grade};
use crate::output;
use fleetgate_client::connect;
use fleetgate_client::master_client::{self, Kind, SOCKET, Status};
use fleetgate_client::profile::{Home, Profile};
use fleetgate_sys::process;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

const WHAT: &str = "master";
/// The longest path of a socket (unix(7)).
const MAX_SOCKET: usize = 107;
/// What runs it at all times.
const RUN: &str = "systemctl enable --now fleetgate-master@ACCOUNT, or `fleetgate master run`";

/// Of a login that there is.
pub fn look(home: &Home, profile: &Profile, now: u64) -> Finding {
    if let Some((why, remedy)) = obstacle(home) {
        let found = format!("each command makes a connection of its own: {why}");
        return finding(WHAT, Grade::Less, found, remedy);
    }
    match connect::run(async { Ok(master_client::status(home, Kind::Login).await) }) {
        Ok(Ok(status)) => of_running(&status),
        Ok(Err(e)) if master_client::is_nobody(&e) => match profile.renewable {
            Some(until) if until > now => {
                let found = "none runs, and the login is renewed while one runs";
                finding(WHAT, Grade::Less, found.to_owned(), RUN)
            }
            _ => {
                let found = "none runs; the next command starts one";
                finding(WHAT, Grade::Good, found.to_owned(), "")
            }
        },
        Ok(Err(e)) => finding(WHAT, Grade::Less, e.to_string(), "fleetgate master stop"),
        Err(e) => finding(WHAT, Grade::Less, e.to_string(), ""),
    }
}

fn of_running(status: &Status) -> Finding {
    if let Some(why) = &status.trouble {
        let found = format!("the login is not renewed: {}", output::printable(why));
        return finding(WHAT, Grade::Less, found, "`fleetgate login` makes another one");
    }
    let count = status.connections.len() + status.more as usize;
    let found = match count {
        1 => format!("runs, process {}, with 1 connection", status.pid),
        n => format!("runs, process {}, with {n} connections", status.pid),
    };
    finding(WHAT, Grade::Good, found, "")
}

/// Why no master can have its socket there, and what helps.
fn obstacle(home: &Home) -> Option<(String, &'static str)> {
    let socket = home.file(SOCKET);
    let length = socket.as_os_str().as_bytes().len();
    if length > MAX_SOCKET {
        let why = format!(
            "{} has {length} bytes, and a socket's path has {MAX_SOCKET} at most",
            socket.display()
        );
        return Some((why, "a shorter FLEETGATE_HOME"));
    }
    let place = socket.parent()?;
    let why = match fs::metadata(place) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
        Err(e) => e.to_string(),
        Ok(found) if !found.is_dir() => "is no directory".to_owned(),
        Ok(found) if found.uid() != process::effective_uid() => {
            format!("belongs to the user with id {}", found.uid())
        }
        Ok(_) => return None,
    };
    Some((
        format!("{} {why}", place.display()),
        "remove it; the next command makes it anew",
    ))
}
