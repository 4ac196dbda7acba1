//! `fleetgate master …`: the process of the user's own that keeps connections for `fleetgate ssh`.

use crate::flags::{Arguments, Outcome};
use crate::output::{self, print};
use fleetgate_client::connect;
use fleetgate_client::error::ClientError;
use fleetgate_client::master_client::{self as master, Kind, Status, StayingMaster, is_nobody};
use fleetgate_client::profile::Home;
use fleetgate_wire::master::ALWAYS;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;
use tokio::time::sleep;

/// How often a master that makes room is waited for.
const ATTEMPTS: u32 = 20;
const A_MOMENT: Duration = Duration::from_millis(250);

/// `master status`
pub fn status(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let mut found = Vec::new();
    for kind in Kind::ALL {
        match connect::run(async { Ok(master::status(&home, kind).await) })? {
            Ok(status) => found.push((kind, status)),
            Err(e) if is_nobody(&e) => {}
            Err(e) => return Err(at(&home, kind, e).into()),
        }
    }
    if given.has("json") {
        return output::json(&document(&found));
    }
    if found.is_empty() {
        print(match home.profile() {
            Ok(_) => "no master runs; the next `fleetgate ssh` starts one\n",
            Err(_) => "no master runs, and there is no login\n",
        })?;
        return Ok(1);
    }
    print(&found.iter().map(lines).collect::<String>())
}

/// `master run`
pub fn run(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let here = |e| at(&home, Kind::Login, e);
    home.login()?;
    connect::run(async {
        let mut tries = ATTEMPTS;
        let master = loop {
            tries -= 1;
            match StayingMaster::new(&home).await {
                // The one that was there makes room.
                Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries > 0 => sleep(A_MOMENT).await,
                master => break master.map_err(here)?,
            }
        };
        let _ = print(&format!("the master runs, process {}\n", master.status.pid));
        master.ended().await;
        Ok(())
    })?;
    // If the login has ended, its own error says so.
    home.login()?;
    print("the master has ended\n")
}

/// `master stop`
pub fn stop(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let mut ended = 0;
    for kind in Kind::ALL {
        match connect::run(async { Ok(master::stop(&home, kind).await) })? {
            Ok(()) => ended += 1,
            Err(e) if is_nobody(&e) => {}
            Err(e) => return Err(at(&home, kind, e).into()),
        }
    }
    print(match ended {
        0 => "no master runs\n",
        1 => "the master has ended\n",
        _ => "both masters have ended\n",
    })
}

fn at(home: &Home, kind: Kind, error: io::Error) -> ClientError {
    ClientError::File(home.file(kind.socket()), error)
}

fn lines((kind, found): &(Kind, Status)) -> String {
    let mut text = format!(
        "process {}, version {}, since {} s{}\n",
        found.pid,
        output::printable(&found.version),
        found.age,
        match kind {
            Kind::Login => "",
            Kind::Direct => ", for --direct",
        }
    );
    if let Some(trouble) = &found.trouble {
        text += &format!("the login is not renewed: {}\n", output::printable(trouble));
    }
    for connection in &found.connections {
        let name = output::printable(&String::from_utf8_lossy(&connection.name));
        let used = match connection.uses {
            0 => format!("not used for {} s", connection.idle),
            1 => "in use".to_owned(),
            uses => format!("{uses} uses"),
        };
        let always = match connection.keep {
            ALWAYS => ", kept for as long as the login lasts",
            _ => "",
        };
        text += &format!("{name}  {used}, since {} s{always}\n", connection.age);
    }
    if found.more > 0 {
        text += &format!("and {} more\n", found.more);
    }
    text
}

fn document(found: &[(Kind, Status)]) -> Value {
    let masters: Vec<Value> = found.iter().map(master_document).collect();
    json!({ "running": !found.is_empty(), "masters": masters })
}

fn master_document((kind, found): &(Kind, Status)) -> Value {
    let connections: Vec<Value> = found
        .connections
        .iter()
        .map(|c| {
            json!({
                "name": String::from_utf8_lossy(&c.name), "uses": c.uses, "age": c.age, "idle": c.idle,
                "keep": (c.keep != ALWAYS).then_some(c.keep),
            })
        })
        .collect();
    json!({
        "kind": kind.name(), "pid": found.pid, "version": found.version, "age": found.age, "connections": connections,
        "more": found.more, "renewal_failed": found.trouble,
    })
}
