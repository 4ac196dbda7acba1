//! `fleetgate backup` copies the auth service's state, while it runs or not; `fleetgate restore`: a copy takes its place,
//! while the service does not run.

use crate::flags::{Given, Outcome};
use crate::{admin, cluster, roles};
use crate::{print, show};
use fleetgate_auth::clock::MachineClock;
use fleetgate_auth::{Copied, SOCKET};
use fleetgate_client::error::ClientError;
use fleetgate_proto::v1::BackedUpRequest;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Copies, has the service write down that it was copied, and only then gives the copy its name.
pub fn run(given: &Given) -> Outcome {
    let to = directory(given)?;
    let from = service(given)?;
    let copied = fleetgate_auth::copy(&from, &to)?;
    let bytes = copied.bytes();
    let told = admin::ask_here(&from.join(SOCKET), async |mut admin| {
        let path = to.to_string_lossy().into_owned();
        admin.backed_up(BackedUpRequest { path, bytes }).await?;
        Ok(())
    })?;
    Copied::keep(copied)?;
    show::either(
        given.has("json"),
        || json!({ "path": to.to_string_lossy(), "bytes": bytes, "audited": told.is_some() }),
        || {
            let unseen = match told {
                Some(()) => "",
                None => "the auth service does not run: no event tells of this backup\n",
            };
            format!(
                "{}: {bytes} bytes, with the authorities' keys: keep it safe\n{unseen}",
                to.display()
            )
        },
    )
}

/// Puts it back.
pub fn restore(given: &Given) -> Outcome {
    let from = directory(given)?;
    let to = service(given)?;
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

/// Where the service's state is. On a new machine there is no configuration yet; then it is where `init` would put it.
fn service(given: &Given) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let path = cluster::configuration(given)?;
    Ok(match path.exists() {
        true => roles::auth_config(&path)?.directory,
        false => cluster::state(given)?.join("auth"),
    })
}

fn directory(given: &Given) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let word = given
        .operands
        .first()
        .ok_or_else(|| ClientError::Usage("DIR is missing".to_owned()))?;
    Ok(std::path::absolute(Path::new(word))?)
}
