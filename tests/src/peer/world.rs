//! The machine that clients and servers of one test share: accounts, keys, certificates, configurations. All of it
//! lives on a tmpfs of the calling thread's own mount table and goes with it.

use super::rows::target;
use crate::login_world::{BASE, sh};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Where everything is; the same in every world.
pub const DIR: &str = "/run/test";

/// Accounts, and the network. Root's home moves, because OpenSSH's client takes it from `/etc/passwd`: nothing here
/// may see the machine's own `~/.ssh`.
const ACCOUNTS: &str = include_str!("../../scripts/accounts.sh");

const KEYS: &str = include_str!("../../scripts/keys.sh");

/// The node's own, as its package installs it.
const PAM: &str = include_str!("../../../packaging/pam.debian");

/// What every OpenSSH client reads, by `-F` or as root's own `~/.ssh/config`; the file `bare` names no key.
const CLIENT: &str = "Host gate gate2 gate.test 127.0.0.1
    HostName 127.0.0.1
    Port 2222
    User ada
    IdentitiesOnly yes
    UserKnownHostsFile /run/test/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
    BatchMode yes
    ConnectTimeout 30
    LogLevel ERROR
";

/// The calling thread's own.
pub struct World(());

impl World {
    /// Makes it; needs root.
    pub fn new() -> World {
        fleetgate_sys::mount::separate().expect("a mount table of its own");
        fleetgate_sys::net::separate().expect("a network of its own");
        let keys = keys();
        sh(&format!("{BASE}KEYS='{}'\n{ACCOUNTS}", keys.display()));
        std::fs::write("/etc/pam.d/fleetgate", PAM).expect("write");
        for path in ["/run/test/config", "/run/home/root/.ssh/config"] {
            let key = "    IdentityFile /run/test/user_ed25519\n";
            std::fs::write(path, format!("{CLIENT}{key}")).expect("write");
        }
        std::fs::write("/run/test/bare", CLIENT).expect("write");
        World(())
    }
}

/// Where the keys are that every world has a copy of. It takes seconds to make them, so that is done once in a checkout,
/// unless what makes them changes.
fn keys() -> &'static PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        KEYS.hash(&mut hasher);
        let whole = target().join(format!("test-keys-{:016x}", hasher.finish()));
        if !whole.exists() {
            let fresh = whole.with_extension(std::process::id().to_string());
            std::fs::create_dir_all(&fresh).expect("mkdir");
            sh(&format!("cd '{}'\n{KEYS}", fresh.display()));
            // Another program may have been faster.
            if std::fs::rename(&fresh, &whole).is_err() {
                std::fs::remove_dir_all(&fresh).expect("our own");
            }
        }
        whole
    })
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}
