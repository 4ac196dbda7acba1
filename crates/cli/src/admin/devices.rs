//! `fleetgate device ls|approve|rm`.

use super::{Admin, call, moment, removed, word};
use crate::flags::{Arguments, Outcome};
use crate::output;
use fleetgate_proto::v1::{Device, DeviceId, Empty};
use serde_json::{Value, json};

/// `device ls`
pub fn list(given: &Arguments) -> Outcome {
    let devices = call(given, Admin::devices, Empty {})?.devices;
    let headings = ["id", "user", "name", "state", "since", "fingerprint"];
    output::list(given.has("json"), "devices", &devices, document, headings, |d| {
        let state = if d.approved { "approved" } else { "waits" }.to_owned();
        let since = moment(d.created, "");
        [
            d.id.clone(),
            d.user.clone(),
            d.name.clone(),
            state,
            since,
            d.fingerprint.clone(),
        ]
    })
}

/// `device approve`
pub fn approve(given: &Arguments) -> Outcome {
    let device = call(given, Admin::approve_device, DeviceId { id: word(given) })?;
    output::either(
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
pub fn remove(given: &Arguments) -> Outcome {
    let id = word(given);
    call(given, Admin::remove_device, DeviceId { id: id.clone() })?;
    removed(given, &id)
}

/// As a document.
pub fn document(d: &Device) -> Value {
    json!({
        "id": d.id, "user": d.user, "name": d.name, "approved": d.approved, "created": d.created,
        "fingerprint": d.fingerprint,
    })
}
