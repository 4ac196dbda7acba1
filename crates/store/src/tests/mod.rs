//! What the store's tests stand on: a private directory, a clock that is moved by hand, short words for keys and values.
//! It tests nothing itself.

mod addresses;
mod backups;
mod basics;
mod bounds;
mod disks;
mod errors;
mod kills;
mod leases;
mod model;
mod old;
mod places;
mod watches;

use crate::sqlite::{KEPT_REVISIONS, Settings, Sqlite};
use crate::{Clock, Key, Prefix, Value};
use std::fs::{DirBuilder, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A directory of a test's own, gone with it.
pub struct Home(PathBuf);

impl Home {
    pub fn new() -> Home {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "fleetgate-store-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory of the test's own");
        Home(path)
    }

    /// The store's directory in it, not made yet.
    pub fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the store's directory, empty.
    pub fn make_store(&self) {
        DirBuilder::new()
            .mode(0o700)
            .create(self.store())
            .expect("the store's directory");
    }

    /// Writes a file of the store.
    pub fn write_private(&self, name: &str, bytes: &[u8]) {
        let mut file = OpenOptions::new();
        let opened = file
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.store().join(name));
        opened
            .and_then(|mut f| f.write_all(bytes))
            .expect("a file of the store");
    }

    pub fn open(&self) -> Sqlite {
        Sqlite::open(&self.store()).expect("the store opens")
    }

    /// With a clock that stands still until it is moved.
    pub fn open_by(&self, clock: &Arc<Hands>) -> Sqlite {
        let settings = Settings {
            clock: clock.clone(),
            keep: KEPT_REVISIONS,
        };
        Sqlite::open_with(&self.store(), settings).expect("the store opens")
    }

    /// With a clock that can hold the writer up.
    pub fn open_behind(&self, gate: &Arc<Gate>) -> Sqlite {
        let settings = Settings {
            clock: gate.clone(),
            keep: KEPT_REVISIONS,
        };
        Sqlite::open_with(&self.store(), settings).expect("the store opens")
    }

    /// That keeps few changes.
    pub fn open_keeping(&self, keep: usize) -> Sqlite {
        let settings = Settings {
            keep,
            ..Settings::default()
        };
        Sqlite::open_with(&self.store(), settings).expect("the store opens")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A clock that is moved by hand.
#[derive(Default)]
pub struct Hands(AtomicU64);

impl Hands {
    pub fn new() -> Arc<Hands> {
        Arc::default()
    }

    pub fn move_on(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// A clock that always shows the same, and does not show it while the gate is shut: the writer looks at it when it has
/// taken the first of what waits.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    shut: bool,
    somebody_waits: bool,
}

impl Gate {
    pub fn new() -> Arc<Gate> {
        Arc::default()
    }

    pub fn shut(&self) {
        self.state.lock().unwrap().shut = true;
    }

    pub fn open(&self) {
        *self.state.lock().unwrap() = GateState::default();
        self.changed.notify_all();
    }

    pub fn wait_for_the_writer(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |s| !s.somebody_waits).unwrap());
    }
}

impl Clock for Gate {
    fn now(&self) -> Duration {
        let mut state = self.state.lock().unwrap();
        while state.shut {
            state.somebody_waits = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
        }
        Duration::ZERO
    }
}

/// This very test in a process of its own, which finds `argument` by [`argument`].
pub fn again(test: &str, argument: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ARGUMENT, argument);
    command
}

/// What [`again`] was given, in the process that it made.
pub fn argument() -> Option<PathBuf> {
    std::env::var_os(ARGUMENT).map(PathBuf::from)
}

const ARGUMENT: &str = "FLEETGATE_STORE_TEST";

/// Leaves the calling test, named at the end of `cargo xtask test`; a failure where `CI=true`.
pub fn skip(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(
        std::env::var_os("CI").is_none_or(|v| v != "true"),
        "{name} would skip itself in CI: {why}"
    );
    eprintln!("skipped: {name}: {why}");
    if let Some(file) = std::env::var_os("FLEETGATE_SKIPS") {
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        let _ = opened.and_then(|mut f| writeln!(f, "{name}: {why}"));
    }
}

pub fn block<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

pub fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

pub fn value(text: &str) -> Value {
    Value::new(text).expect("a value")
}

pub fn prefix(text: &str) -> Prefix {
    Prefix::new(text).expect("a prefix")
}
