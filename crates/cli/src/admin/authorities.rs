//! `fleetgate ca …`.

use super::{ask, moment, word};
use crate::flags::{Given, Outcome};
use crate::print;
use crate::show;
use fleetgate_proto::v1::{Authority, Empty, RotateRequest};
use serde_json::json;

/// `ca status`
pub fn status(given: &Given) -> Outcome {
    let all = ask(given, async |mut admin| {
        Ok(admin.authorities(Empty {}).await?.into_inner().authorities)
    })?;
    list(given, &all)
}

/// `ca show`
pub fn public(given: &Given) -> Outcome {
    let kind = word(given);
    let all = ask(given, async |mut admin| {
        Ok(admin.authorities(Empty {}).await?.into_inner().authorities)
    })?;
    let lines = all.iter().filter(|a| a.kind == kind);
    print(
        &lines
            .map(|a| format!("{}\n", a.public.trim_end()))
            .collect::<String>(),
    )
}

/// `ca rotate`
pub fn rotate(given: &Given) -> Outcome {
    let request = RotateRequest {
        kind: word(given),
        grace: given
            .seconds("grace")
            .map_or(0, |s| u32::try_from(s).unwrap_or(u32::MAX)),
        sshds_ready: given.has("sshds-ready"),
    };
    let reply = ask(given, async |mut admin| {
        Ok(admin.rotate_authorities(request).await?.into_inner())
    })?;
    for sentence in &reply.done {
        eprintln!("{sentence}");
    }
    list(given, &reply.authorities)
}

fn list(given: &Given, all: &[Authority]) -> Outcome {
    show::either(
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
                vec![
                    a.kind.clone(),
                    a.phase.clone(),
                    match a.waits.is_empty() {
                        true => moment(a.until, ""),
                        false => String::new(),
                    },
                    a.fingerprint.clone(),
                ]
            };
            let mut text = show::table(
                &["kind", "phase", "ends", "fingerprint"],
                &all.iter().map(row).collect::<Vec<_>>(),
            );
            for authority in all.iter().filter(|a| !a.waits.is_empty()) {
                text.push_str(&format!("\n{}\n", authority.waits));
            }
            text
        },
    )
}
