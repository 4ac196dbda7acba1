//! What clients are offered: the configuration in the form that lobby and fronts take, and what the monitor holds an
//! exchange against. Made at start and at each reload; a connection keeps the one that it came under.

use crate::host_keys::HostKeys;
use crate::{Config, named_file};
use fleetgate_ssh::cipher::{Cipher, Mac};
use fleetgate_ssh::kex::Method;
use fleetgate_wire::node::Settings;
use std::ffi::CString;
use std::sync::Arc;

/// The longest text before a login.
pub const MAX_BANNER: u64 = 16 << 10;

/// What the node calls itself. OpenSSH's client tells a server that nobody reads its output any more
/// (eow@openssh.com) only where the name begins so; to others `ssh host yes | head` never ends.
const SOFTWARE: &str = concat!("OpenSSH_compatible_fleetgate_", env!("CARGO_PKG_VERSION"));

/// The offer.
#[derive(Debug)]
pub struct Offer {
    /// For lobby and fronts.
    pub settings: Settings,
    /// The host's keys.
    pub keys: HostKeys,
    /// Our version line, without CR LF.
    pub version: Vec<u8>,
    /// Key exchange methods that are on.
    pub methods: Vec<&'static str>,
}

impl Offer {
    /// From the configuration; an error is a sentence.
    pub fn new(config: &Config, keys: HostKeys) -> Result<Arc<Offer>, String> {
        let methods: Vec<&'static str> = match config.key_exchanges.as_slice() {
            [] => Method::ALL.iter().map(|m| m.name()).collect(),
            names => names
                .iter()
                .map(|n| {
                    known("key_exchanges", n, Method::named(n).map(Method::name), || {
                        Method::ALL.iter().map(|m| m.name()).collect()
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        for name in &config.ciphers {
            known("ciphers", name, Cipher::named(name), || {
                Cipher::ALL.iter().map(|c| c.name()).collect()
            })?;
        }
        for name in &config.macs {
            known("macs", name, Mac::named(name), || {
                Mac::ALL.iter().map(|m| m.name()).collect()
            })?;
        }
        let banner = match &config.banner {
            Some(path) => named_file("banner", path, MAX_BANNER)?,
            None => Vec::new(),
        };
        let limits = &config.limits;
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(Arc::new(Offer {
            settings: Settings {
                software: strings(&[SOFTWARE.to_owned()]).remove(0),
                host_keys: keys.offered(),
                key_exchanges: strings(&config.key_exchanges),
                ciphers: strings(&config.ciphers),
                macs: strings(&config.macs),
                banner,
                rekey_bytes: config.rekey_bytes.0,
                rekey_seconds: small(config.rekey_after.0.as_secs()),
                alive_seconds: small(config.alive_interval.0.as_secs()),
                alive_count: config.alive_count,
                max_channels: limits.channels,
                window: small(limits.window.0),
                max_buffered: small(limits.buffered.0),
            },
            keys,
            version: format!("SSH-2.0-{SOFTWARE}").into_bytes(),
            methods,
        }))
    }
}

fn known<T>(
    key: &str,
    name: &str,
    found: Option<T>,
    all: impl FnOnce() -> Vec<&'static str>,
) -> Result<T, String> {
    found.ok_or_else(|| format!("`{key}` has {name:?}, which is not one of: {}", all().join(", ")))
}

fn strings(list: &[String]) -> Vec<CString> {
    // Names that were found in a list of ours have no zero byte.
    list.iter()
        .filter_map(|s| CString::new(s.as_str()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_known_are_refused_with_those_that_are() {
        for (config, part) in [
            (
                Config {
                    key_exchanges: vec!["curve25519-sha256".into(), "sntrup".into()],
                    ..Config::default()
                },
                "`key_exchanges` has \"sntrup\", which is not one of: mlkem768x25519-sha256",
            ),
            (
                Config {
                    ciphers: vec!["rot13".into()],
                    ..Config::default()
                },
                "`ciphers` has \"rot13\"",
            ),
            (
                Config {
                    macs: vec!["crc32".into()],
                    ..Config::default()
                },
                "`macs` has \"crc32\"",
            ),
            (
                Config {
                    banner: Some("/nonexistent/banner".into()),
                    ..Config::default()
                },
                "`banner`, /nonexistent/banner: ",
            ),
        ] {
            let error = Offer::new(&config, HostKeys::of(Vec::new())).expect_err("bad");
            assert!(error.starts_with(part), "{error}");
        }
        let long = std::env::temp_dir().join(format!("fleetgate-banner-{}", std::process::id()));
        std::fs::write(&long, vec![b'x'; MAX_BANNER as usize + 1]).expect("written");
        let config = Config {
            banner: Some(long.clone()),
            ..Config::default()
        };
        let error = Offer::new(&config, HostKeys::of(Vec::new())).expect_err("too long");
        assert!(error.contains("longer than 16384 bytes"), "{error}");
        std::fs::remove_file(&long).expect("clean");
        let offer = Offer::new(&Config::default(), HostKeys::of(Vec::new())).expect("good");
        assert_eq!(offer.methods.len(), Method::ALL.len());
    }
}
