//! What of the configuration is looked at both at the start and at a reload: what is offered to clients, whether anybody can
//! come in, the system user of the workers. It changes nothing.

use crate::config::Config;
use crate::config::host_keys::HostKeys;
use crate::config::offer::Offer;
use crate::config::recording::Settings;
use crate::identity::NodeIdentity;
use fleetgate_base::own;
use fleetgate_recorder::directory;
use std::sync::Arc;

/// Who lobby and fronts are where the configured user is missing.
const NOBODY: (u32, u32) = (65534, 65534);

/// What is offered: the host's keys with the cluster's certificates for them.
pub fn offer(config: &Config, user_mode: bool) -> Result<Arc<Offer>, String> {
    let keys = HostKeys::load(config, user_mode).map_err(|e| format!("no host key: {e}"))?;
    // What is wrong with an identity is told where the tunnel is.
    let joined = NodeIdentity::load(&config.state_directory).ok().flatten();
    let keys = keys.certified(joined.as_ref().map_or(&[], |joined| &joined.host_certificates));
    Offer::new(config, keys)
}

/// What is wrong with the directory of recordings, where sessions are recorded or were: those that have to be are refused then.
pub fn can_record(config: &Config) -> Result<(), String> {
    let Settings {
        sessions, directory, ..
    } = &config.recording;
    if !sessions.is_wanted() && !directory.exists() {
        return Ok(());
    }
    // Whether it is a directory comes first: another remedy than to change somebody else's file.
    directory::check(directory)
        .and_then(|()| own::unchanged(directory).map_err(|e| e.to_string()))
        .map_err(|why| format!("sessions cannot be recorded: {why}"))
}

/// Whether there is any way in.
pub fn is_reachable(has_port: bool, is_joined: bool) -> Result<(), String> {
    match has_port || is_joined {
        true => Ok(()),
        false => Err(
            "`listen` is empty and this machine joined no cluster, so nobody could come in: name an address, or run \
             `fleetgate join`"
                .to_owned(),
        ),
    }
}

/// Ids of the system user. It is looked for in /etc/passwd alone: the resolver is not there yet, and no directory has
/// a say in who the node's own processes are.
pub fn worker_user(name: &str) -> (u32, u32) {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (user, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        (user == name).then(|| Some((uid.parse().ok()?, gid.parse().ok()?)))?
    });
    found.filter(|(uid, _)| *uid != 0).unwrap_or_else(|| {
        tracing::warn!(
            "there is no system user {name:?} (`useradd --system {name}` makes one): lobby and fronts run as nobody, \
             which other programs may do too"
        );
        NOBODY
    })
}
