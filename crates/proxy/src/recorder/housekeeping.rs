//! What is done about the directory beside sessions: recordings that a killed process left get their end and a signature, and
//! what waits for auth is found again. It reads and writes files, and runs on a thread that may wait.

use super::writer::hex;
use super::{Recorder, Spool, lock};
use fleetgate_record::signature::Statement;
use fleetgate_recorder::directory::{self, Finished, KEPT_DAYS, RECORDING, TAIL, usage};
use serde_json::json;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

/// So often it is done.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// The ending of the name of a recording that auth refused.
pub(super) const REFUSED: &str = "refused";

/// Does it from time to time. It does not end.
pub(crate) async fn run(recorder: Recorder) {
    loop {
        let looks = recorder.clone();
        if let Err(e) = tokio::task::spawn_blocking(move || looks.look()).await {
            tracing::error!("recordings are not looked after: {e}");
        }
        tokio::time::sleep(EVERY).await;
    }
}

impl Recorder {
    /// Looks at the directory once. Whose a left recording is stands in it.
    pub(crate) fn look(&self) {
        let spool = self.spool();
        if !spool.root.is_dir() {
            return;
        }
        let sign = |statement: &Statement| self.sign(statement);
        // Nobody else writes below the state directory.
        let is_ours = |_: &_| true;
        directory::finish_all(&spool.root, &is_ours, &sign, &mut |one| match one {
            Ok(Finished { session, position }) => {
                let fields = json!({
                    "session": directory::name(&session),
                    "blocks": position.blocks,
                    "bytes": position.length,
                    "chain": hex(&position.chain),
                    "recovered": true,
                });
                self.0.audit.tell("recorded", &[&fields]);
            }
            Err(why) => tracing::warn!("a recording that was not finished stays so: {why}"),
        });
        spool.find();
    }
}

impl Spool {
    /// Finds what waits for auth, and counts.
    fn find(&self) {
        let counted = usage(&self.root);
        self.bytes.store(counted.bytes, Relaxed);
        self.files.store(counted.recordings, Relaxed);
        let mut found = Vec::new();
        for day in children(&self.root) {
            for path in children(&day) {
                match path.extension().and_then(|ending| ending.to_str()) {
                    Some(RECORDING) if !path.with_extension(TAIL).exists() => found.push(path),
                    Some(REFUSED) if is_old(&path) => drop(fs::remove_file(path)),
                    _ => {}
                }
            }
        }
        if found.is_empty() {
            return;
        }
        lock(&self.ended).extend(found);
        self.news.notify_one();
    }
}

/// Auth will never take it: it stays for somebody to look at.
pub(crate) fn put_aside(path: &Path) {
    if let Err(e) = fs::rename(path, path.with_extension(REFUSED)) {
        tracing::error!("{}: {e}", path.display());
    }
}

/// Auth has it.
pub(crate) fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => tracing::error!("{}: {e}", path.display()),
        _ => {}
    }
    // The day's directory, where it was the last; the kernel says whether. One that is about to have another is made again.
    if let Some(day) = path.parent() {
        let _ = fs::remove_dir(day);
    }
}

fn is_old(path: &Path) -> bool {
    let days = u64::try_from(KEPT_DAYS).unwrap_or_default();
    let modified = fs::symlink_metadata(path).and_then(|facts| facts.modified());
    modified.is_ok_and(|at| {
        SystemTime::now()
            .duration_since(at)
            .is_ok_and(|age| age > Duration::from_secs(days * 86_400))
    })
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}
