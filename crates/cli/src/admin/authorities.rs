//! `fleetgate ca …`.

use super::{Admin, call, moment, word};
use crate::flags::{Arguments, Outcome};
use crate::output::{self, print};
use fleetgate_proto::v1::{Authority, Empty, RotateRequest};
use serde_json::json;

/// `ca status`
pub fn status(given: &Arguments) -> Outcome {
    let all = call(given, Admin::authorities, Empty {})?.authorities;
    list(given, &all)
}

/// `ca show`
pub fn public(given: &Arguments) -> Outcome {
    let kind = word(given);
    let all = call(given, Admin::authorities, Empty {})?.authorities;
    let lines = all.iter().filter(|a| a.kind == kind);
    print(
        &lines
            .map(|a| format!("{}\n", a.public.trim_end()))
            .collect::<String>(),
    )
}

/// `ca rotate`
pub fn rotate(given: &Arguments) -> Outcome {
    let request = RotateRequest {
        kind: word(given),
        grace: given.seconds("grace").unwrap_or(0),
        sshds_ready: given.has("sshds-ready"),
    };
    let reply = call(given, Admin::rotate_authorities, request)?;
    for sentence in &reply.done {
        eprintln!("{sentence}");
    }
    list(given, &reply.authorities)
}

fn list(given: &Arguments, all: &[Authority]) -> Outcome {
    output::either(
        given.has("json"),
        || {
            let row = |a: &Authority| {
                json!({
                    "kind": a.kind, "phase": a.phase, "fingerprint": a.fingerprint, "until": a.until,
                    "public": a.public, "waits": a.waits,
                })
            };
            json!({ "authorities": all.iter().map(row).collect::<Vec<_>>() })
        },
        || {
            let row = |a: &Authority| {
                let ends = match a.waits.is_empty() {
                    true if a.phase == "next" && a.until > 0 => format!("signs {}", moment(a.until, "")),
                    true => moment(a.until, ""),
                    false => String::new(),
                };
                [a.kind.clone(), a.phase.clone(), ends, a.fingerprint.clone()]
            };
            let rows: Vec<_> = all.iter().map(row).collect();
            let mut text = output::table(&["kind", "phase", "ends", "fingerprint"], &rows);
            for authority in all.iter().filter(|a| !a.waits.is_empty()) {
                text.push_str(&format!("\n{}\n", authority.waits));
            }
            text
        },
    )
}
