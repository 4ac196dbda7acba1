//! `fleetgate master …`: the process of the user's own that keeps connections for `fleetgate ssh`.

use crate::flags::{Arguments, Outcome};
use crate::output::{self, print};
use fleetgate_client::connect;
use fleetgate_client::error::ClientError;
use fleetgate_client::master_client::{self as master, SOCKET, Status};
use fleetgate_client::profile::Home;
use serde_json::{Value, json};
use std::io;

/// `master status`
pub fn status(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let found = connect::run(async { Ok(master::status(&home).await) })?;
    let found = match found {
        Ok(found) => Some(found),
        Err(e) if is_nobody(&e) => None,
        Err(e) => return Err(at(&home, e).into()),
    };
    match (found, given.has("json")) {
        (found, true) => output::json(&document(found.as_ref())),
        (None, false) => {
            print("no master runs; the next `fleetgate ssh` starts one\n")?;
            Ok(1)
        }
        (Some(found), false) => print(&lines(&found)),
    }
}

/// `master stop`
pub fn stop(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    match connect::run(async { Ok(master::stop(&home).await) })? {
        Ok(()) => print("the master has ended\n"),
        Err(e) if is_nobody(&e) => print("no master runs\n"),
        Err(e) => Err(at(&home, e).into()),
    }
}

/// Nobody listens there, or what listened was killed.
fn is_nobody(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

fn at(home: &Home, error: io::Error) -> ClientError {
    ClientError::File(home.file(SOCKET), error)
}

fn lines(found: &Status) -> String {
    let mut text = format!(
        "process {}, version {}, since {} s\n",
        found.pid,
        output::printable(&found.version),
        found.age
    );
    for connection in &found.connections {
        let name = output::printable(&String::from_utf8_lossy(&connection.name));
        let used = match connection.uses {
            0 => format!("not used for {} s", connection.idle),
            1 => "in use".to_owned(),
            uses => format!("{uses} uses"),
        };
        text += &format!("{name}  {used}, since {} s\n", connection.age);
    }
    text
}

fn document(found: Option<&Status>) -> Value {
    let Some(found) = found else {
        return json!({ "running": false });
    };
    let connections: Vec<Value> = found
        .connections
        .iter()
        .map(|c| {
            json!({
                "name": String::from_utf8_lossy(&c.name), "uses": c.uses, "age": c.age, "idle": c.idle,
            })
        })
        .collect();
    json!({
        "running": true, "pid": found.pid, "version": found.version, "age": found.age, "connections": connections,
    })
}
