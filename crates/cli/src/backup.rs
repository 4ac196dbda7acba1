//! `fleetgate backup`: the auth service writes a copy of its state.

use crate::admin;
use crate::flags::{Given, Outcome};
use crate::show;
use fleetgate_client::error::ClientError;
use fleetgate_proto::v1::BackupRequest;
use serde_json::json;
use std::path::Path;

/// Has it written. The path is the auth service's: a relative one is taken from here.
pub fn run(given: &Given) -> Outcome {
    let given_path = given
        .word()
        .ok_or_else(|| ClientError::Usage("the path is not UTF-8".to_owned()))?;
    let path = std::path::absolute(Path::new(given_path))?
        .to_string_lossy()
        .into_owned();
    let request = BackupRequest { path: path.clone() };
    let reply = admin::ask(given, async |mut admin| {
        Ok(admin.backup(request).await?.into_inner())
    })?;
    show::either(
        given.has("json"),
        || json!({ "path": path, "bytes": reply.bytes }),
        || {
            format!(
                "{path}: {} bytes, with the authorities' keys: keep it safe\n",
                reply.bytes
            )
        },
    )
}
