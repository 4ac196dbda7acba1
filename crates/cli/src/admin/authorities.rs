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
    let kind = word(given)?;
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
        kind: word(given)?,
        grace: given
            .seconds("grace")
            .map_or(0, |s| u32::try_from(s).unwrap_or(u32::MAX)),
    };
    let all = ask(given, async |mut admin| {
        Ok(admin.rotate_authorities(request).await?.into_inner().authorities)
    })?;
    list(given, &all)
}

fn list(given: &Given, all: &[Authority]) -> Outcome {
    show::either(
        given.has("json"),
        || {
            let row = |a: &Authority| {
                json!({
                    "kind": a.kind, "phase": a.phase, "fingerprint": a.fingerprint, "until": a.until,
                    "public": a.public,
                })
            };
            json!({ "authorities": all.iter().map(row).collect::<Vec<_>>() })
        },
        || {
            let row = |a: &Authority| {
                vec![
                    a.kind.clone(),
                    a.phase.clone(),
                    moment(a.until, ""),
                    a.fingerprint.clone(),
                ]
            };
            show::table(
                &["kind", "phase", "ends", "fingerprint"],
                &all.iter().map(row).collect::<Vec<_>>(),
            )
        },
    )
}
