//! `fleetgate backup`: the auth service writes a copy of its state. `fleetgate restore`: a copy takes its place, while the
//! service does not run.

use crate::flags::{Given, Outcome};
use crate::{admin, cluster, roles};
use crate::{print, show};
use fleetgate_auth::clock::MachineClock;
use fleetgate_client::error::ClientError;
use fleetgate_proto::v1::BackupRequest;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Has it written. The path is the auth service's: a relative one is taken from here.
pub fn run(given: &Given) -> Outcome {
    let path = directory(given)?.to_string_lossy().into_owned();
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

/// Puts it back.
pub fn restore(given: &Given) -> Outcome {
    let from = directory(given)?;
    let path = cluster::configuration(given)?;
    // On a new machine there is no configuration yet; the state goes where `init` would put it.
    let to = match path.exists() {
        true => roles::auth_config(&path)?.directory,
        false => cluster::state(given)?.join("auth"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let clock = Arc::new(MachineClock);
    runtime.block_on(fleetgate_auth::restore(&from, &to, given.has("replace"), clock))?;
    print(&format!(
        "{} is restored from {}; `fleetgate up` starts it\n",
        to.display(),
        from.display()
    ))
}

fn directory(given: &Given) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let word = given
        .operands
        .first()
        .ok_or_else(|| ClientError::Usage("DIR is missing".to_owned()))?;
    Ok(std::path::absolute(Path::new(word))?)
}
