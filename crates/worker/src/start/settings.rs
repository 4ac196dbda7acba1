//! The monitor's settings as the SSH core takes them.

use fleetgate_ssh::cipher::{Cipher, Mac};
use fleetgate_ssh::kex::Method;
use fleetgate_ssh::settings::{HostKeyOffer, Keepalive, Limits, Rekey, Settings};
use fleetgate_wire::node;
use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

/// Signature algorithms for users' keys; the monitor verifies them. Told by ext-info (RFC 8308 §3.1),
/// where certificates have no names of their own.
const USER_ALGORITHMS: &[&str] = &[
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

/// Ten years: no connection is that old.
const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The settings of one core. Names that this build does not know are an error: the monitor checked them.
pub(crate) fn ssh_settings(from: &node::Settings, limits: Limits) -> Result<Arc<Settings>, String> {
    let text = |name: &CString| name.to_string_lossy().into_owned();
    let defaults = Settings::default();
    let host_keys = from.host_keys.iter().flat_map(|key| {
        key.algorithms.iter().map(|algorithm| HostKeyOffer {
            algorithm: text(algorithm),
            blob: key.blob.clone(),
        })
    });
    Ok(Arc::new(Settings {
        software: text(&from.software),
        kex: names(&from.key_exchanges, Method::named, defaults.kex)?,
        host_keys: host_keys.collect(),
        ciphers: names(&from.ciphers, Cipher::named, defaults.ciphers)?,
        macs: names(&from.macs, Mac::named, defaults.macs)?,
        server_sig_algs: USER_ALGORITHMS.iter().map(|&n| n.to_owned()).collect(),
        rekey: Rekey {
            bytes: if from.rekey_bytes == 0 {
                defaults.rekey.bytes
            } else {
                from.rekey_bytes
            },
            time: match from.rekey_seconds {
                0 => NEVER,
                seconds => Duration::from_secs(seconds.into()),
            },
            ..defaults.rekey
        },
        keepalive: (from.alive_seconds > 0).then(|| Keepalive {
            after: Duration::from_secs(from.alive_seconds.into()),
            unanswered: from.alive_count,
        }),
        limits: Limits {
            max_channels: from.max_channels,
            window: from.window,
            max_buffered: from.max_buffered as usize,
            ..limits
        },
        ..defaults
    }))
}

fn names<T>(
    from: &[CString],
    named: impl Fn(&str) -> Option<T>,
    otherwise: Vec<T>,
) -> Result<Vec<T>, String> {
    if from.is_empty() {
        return Ok(otherwise);
    }
    let known = |name: &CString| {
        let name = name.to_string_lossy();
        named(&name).ok_or_else(|| format!("the monitor asks for {name:?}, which this build does not know"))
    };
    from.iter().map(known).collect()
}
