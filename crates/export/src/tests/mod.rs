//! Sinks against receivers of the test's own, which refuse, lose connections and hang.

mod receivers;
mod settings;
mod sinks;

use crate::settings::Form;
use crate::{Event, Sink, Spool, read};
use fleetgate_policy::toml_mistake::Mistake;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::watch;

/// A log in memory.
pub(super) struct Memory {
    events: Mutex<Vec<Event>>,
    noted: Mutex<i64>,
    last: watch::Sender<i64>,
}

impl Memory {
    pub(super) fn new() -> Memory {
        Memory {
            events: Mutex::default(),
            noted: Mutex::new(0),
            last: watch::Sender::new(0),
        }
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap()
    }

    /// So many more events.
    pub(super) fn add(&self, count: i64) {
        let mut events = self.events();
        let last = events.last().map_or(0, |event| event.id);
        for id in last + 1..=last + count {
            let line = format!(r#"{{"event":"login","user":"ädä","n":{id}}}"#);
            events.push(Event {
                id,
                time: 1_000,
                line,
            });
        }
        self.last.send_replace(last + count);
    }

    pub(super) fn noted(&self) -> i64 {
        *self.noted.lock().unwrap()
    }
}

impl Spool for Memory {
    async fn begin(&self, _: &str) -> Result<i64, String> {
        Ok(self.noted())
    }

    async fn after(&self, id: i64, most: usize) -> Result<Vec<Event>, String> {
        let events = self.events();
        let behind = events.iter().filter(|event| event.id > id);
        Ok(behind.take(most).cloned().collect())
    }

    async fn acknowledged(&self, _: &str, id: i64) -> Result<(), String> {
        *self.noted.lock().unwrap() = id;
        Ok(())
    }

    fn last(&self) -> watch::Receiver<i64> {
        self.last.subscribe()
    }
}

/// A directory that goes with the test.
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Directory {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("fleetgate-export-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    /// A file in it that is its owner's alone.
    pub(super) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        set_mode(&path, 0o600);
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// What a configuration with these sections says.
pub(super) fn sinks(text: &str) -> Result<Vec<Sink>, Mistake> {
    #[derive(serde::Deserialize)]
    struct Section {
        #[serde(default)]
        export: Vec<Form>,
    }
    #[derive(serde::Deserialize)]
    struct Sections {
        auth: Section,
    }
    let sections: Sections = toml::from_str(text).unwrap();
    read(text, &sections.auth.export)
}
