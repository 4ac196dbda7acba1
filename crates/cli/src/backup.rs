//! `fleetgate backup` copies the auth service's state, while it runs or not; `fleetgate restore`: a copy takes its place,
//! while the service does not run.

use crate::flags::{Arguments, Outcome};
use crate::output::{self, print};
use crate::{admin, cluster, init, services};
use fleetgate_auth::clock::MachineClock;
use fleetgate_auth::{Config, Copied, SOCKET};
use fleetgate_proto::v1::BackedUpRequest;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Copies, has the service write down that it was copied, and only then gives the copy its name.
pub fn run(given: &Arguments) -> Outcome {
    let to = directory(given)?;
    let Config {
        directory: from,
        state,
        ..
    } = service(given)?;
    let copied = fleetgate_auth::copy(&from, &state, &to)?;
    let bytes = copied.bytes();
    let told = admin::ask_here(&from.join(SOCKET), async |mut admin| {
        let path = to.to_string_lossy().into_owned();
        admin.backed_up(BackedUpRequest { path, bytes }).await?;
        Ok(())
    })?;
    Copied::keep(copied)?;
    output::either(
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

/// What only a machine without a configuration needs.
const ANEW: [&str; 5] = ["listen", "auth-listen", "node-name", "label", "no-node"];

/// Puts it back. A machine without a configuration becomes the cluster's auth service and proxy.
pub fn restore(given: &Arguments) -> Outcome {
    let from = directory(given)?;
    let path = cluster::configuration(given)?;
    let anew = !path.exists();
    if let Some(flag) = ANEW.into_iter().find(|flag| !anew && given.has(flag)) {
        let words = format!(
            "`--{flag}` is for a machine without a configuration, and {} is there: change that file instead",
            path.display()
        );
        return Err(given.wrong(words).into());
    }
    let Config {
        directory: to, state, ..
    } = service(given)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let clock = Arc::new(MachineClock);
    let restored = runtime.block_on(fleetgate_auth::restore(
        &from,
        &to,
        &state,
        given.has("replace"),
        clock,
    ))?;
    if anew {
        return init::again(given, &restored).map_err(|e| {
            format!("the state is restored, this machine's services are not made: {e}; run it again with --replace").into()
        });
    }
    print(&format!(
        "{} is restored from {}; `fleetgate up` starts it\n",
        to.display(),
        from.display()
    ))
}

/// The configuration of the service. On a new machine there is no configuration yet; then its state is where `init` would put it.
fn service(given: &Arguments) -> Result<Config, Box<dyn std::error::Error>> {
    let path = cluster::configuration(given)?;
    Ok(match path.exists() {
        true => services::auth_config(&path)?,
        false => Config::new(&cluster::state(given)?.join("auth")),
    })
}

fn directory(given: &Arguments) -> Result<PathBuf, Box<dyn std::error::Error>> {
    // The table requires it.
    let word = given.operands.first().map(OsString::as_os_str);
    Ok(std::path::absolute(Path::new(word.unwrap_or_default()))?)
}
