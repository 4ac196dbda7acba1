//! `fleetgate device ls|approve|rm`.

use super::{ask, moment, word};
use crate::flags::{Given, Outcome};
use crate::show;
use fleetgate_proto::v1::{Device, DeviceId, Empty};
use serde_json::{Value, json};

/// `device ls`
pub fn list(given: &Given) -> Outcome {
    let devices = ask(given, async |mut admin| {
        Ok(admin.devices(Empty {}).await?.into_inner().devices)
    })?;
    show::either(
        given.has("json"),
        || json!({ "devices": devices.iter().map(document).collect::<Vec<_>>() }),
        || {
            let row = |d: &Device| {
                let state = if d.approved { "approved" } else { "waits" };
                vec![
                    d.id.clone(),
                    d.user.clone(),
                    d.name.clone(),
                    state.to_owned(),
                    moment(d.created, ""),
                    d.fingerprint.clone(),
                ]
            };
            let rows: Vec<_> = devices.iter().map(row).collect();
            show::table(&["id", "user", "name", "state", "since", "fingerprint"], &rows)
        },
    )
}

/// `device approve`
pub fn approve(given: &Given) -> Outcome {
    let id = word(given);
    let device = ask(given, async |mut admin| {
        Ok(admin.approve_device(DeviceId { id }).await?.into_inner())
    })?;
    show::either(
        given.has("json"),
        || document(&device),
        || {
            format!(
                "{} of {} is approved: from its next login on it counts\n",
                device.name, device.user
            )
        },
    )
}

/// `device rm`
pub fn remove(given: &Given) -> Outcome {
    let id = word(given);
    ask(given, async |mut admin| {
        Ok(admin.remove_device(DeviceId { id }).await?.into_inner())
    })?;
    Ok(0)
}

/// As a document.
pub fn document(d: &Device) -> Value {
    json!({
        "id": d.id, "user": d.user, "name": d.name, "approved": d.approved, "created": d.created,
        "fingerprint": d.fingerprint,
    })
}
