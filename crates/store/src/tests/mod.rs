//! What the store's tests stand on: a private directory, a clock that is moved by hand, short words for keys and values.
//! It tests nothing itself.

mod basics;
mod leases;
mod watches;

use crate::sqlite::{KEPT_REVISIONS, Settings, Sqlite};
use crate::{Clock, Key, Prefix, Value};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
