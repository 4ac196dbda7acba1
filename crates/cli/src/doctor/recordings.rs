//! Whether this node can record, where it is to: its directory, how full it is, and recordings that nobody finished.

use super::node::Finding;
use fleetgate_base::own;
use fleetgate_node::config::Config;
use fleetgate_recorder::directory::{KEPT_DAYS, Usage, delivered, usage};
use fleetgate_sys::clock;
use std::collections::BTreeSet;
use std::io::ErrorKind;

const WHAT: &str = "recordings";
/// Of `max_size`, so many hundredths are much.
const MUCH: u64 = 90;
/// The same of what waits for the cluster.
const MUCH_WAITS: u64 = 75;
/// What ended so many seconds ago is long with the cluster, where that is reached.
const LATE: i64 = 3600;
/// How auth says that it had a recording and removed it.
const REMOVED: &str = "was removed from the cluster";

/// Nothing, where nothing is recorded and nothing was.
pub(super) fn look(config: &Config, is_joined: bool) -> Option<Finding> {
    let settings = &config.recording;
    let directory = settings.directory.display();
    match settings.directory.symlink_metadata() {
        Ok(facts) if !facts.is_dir() => {
            let found = format!("{directory} is no directory");
            let remedy = "sessions that have to be recorded are refused: remove it, or name another `recording.directory`";
            return Some(Finding::wrong(WHAT, found, remedy));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let found = format!("{directory} is made with the first recording");
            return settings.sessions.is_wanted().then(|| Finding::good(WHAT, found));
        }
        Err(e) => return Some(Finding::less(WHAT, format!("{directory}: {e}"), "try with sudo")),
        Ok(_) => {}
    }
    if let Err(why) = own::unchanged(&settings.directory) {
        let remedy = "sessions that have to be recorded are refused: give the directory to root, and nobody else the right to write";
        return Some(Finding::wrong(WHAT, why.to_string(), remedy));
    }
    let now = usage(&settings.directory);
    let most = settings.max_size.0;
    let mut found = format!(
        "{} recordings, {} MB, in {directory}",
        now.recordings,
        now.bytes >> 20
    );
    if most > 0 {
        found += &format!(" (max_size {} MB)", most >> 20);
    }
    if now.left > 0 {
        found += &format!("; {} are not finished, and nobody makes them", now.left);
        let remedy = "a node finishes what an ended one left within a minute of its start; its log says what it could not finish";
        return Some(Finding::less(WHAT, found, remedy));
    }
    let refusals = || delivered::reasons(&settings.directory);
    if is_joined && let Some(remedy) = undelivered(&now, most, refusals, &mut found) {
        return Some(Finding::less(WHAT, found, remedy));
    }
    Some(match most > 0 && now.bytes > most / 100 * MUCH {
        true => {
            let remedy = format!(
                "the oldest go when it is full, but none of the last {KEPT_DAYS} days; where those fill it, nothing more is recorded: \
                 raise max_size, or move recordings away"
            );
            Finding::less(WHAT, found, remedy)
        }
        false => Finding::good(WHAT, found),
    })
}

/// What the cluster has not got is added to `found`; what is to be done where that is more than what has just ended.
fn undelivered(
    now: &Usage,
    most: u64,
    refusals: impl Fn() -> BTreeSet<String>,
    found: &mut String,
) -> Option<&'static str> {
    let mut of_refused = None;
    if now.refused > 0 {
        let reasons = refusals();
        let words: Vec<&str> = reasons.iter().map(String::as_str).collect();
        *found += &format!("; the cluster refuses {} ({})", now.refused, words.join("; "));
        of_refused = Some(match words[..] {
            [why] if why.contains(REMOVED) => {
                "so a proxy says. See whether `recording_deleted` or `recordings_removed` of the audit log is about them: then `sessions \
                 rm`, or `keep_days` or `max_size` of [auth.recordings], removed them, and they go here by this node's `keep_days`. \
                 Else keep their files, and see whether somebody has taken that proxy over"
            }
            _ => {
                "`delivered` beside each of them has its reason, and the node's log; they stay here as long as others"
            }
        });
    }
    let waiting = now.waiting;
    if let Some(since) = waiting.since {
        let since_text = clock::rfc3339(clock::Time { sec: since, nsec: 0 }, 0);
        *found += &format!(
            "; {} ({} KB) wait for the cluster, the first since {since_text}",
            waiting.count,
            waiting.bytes.div_ceil(1024)
        );
        let is_late = since < clock::wall().sec - LATE;
        if is_late || most > 0 && waiting.bytes > most / 100 * MUCH_WAITS {
            return Some(
                "the node sends them when its proxy reaches auth and auth has room: the logs of node and auth say what is in the \
                 way; where max_size is reached first, the oldest go undelivered, or nothing more is recorded",
            );
        }
    }
    of_refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::node::Grade;
    use fleetgate_node::config::Size;
    use fleetgate_recorder::directory;

    #[test]
    fn what_recordings_lack_is_told() {
        let mut config = Config::default();
        let root = std::env::temp_dir().join(format!("fleetgate-doctor-recordings-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        config.recording.directory = root.clone();
        assert_eq!(look(&config, false), None);
        config.recording.sessions = fleetgate_policy::Recording::Output;
        let grade = |config: &Config| look(config, false).map(|finding| finding.grade);
        assert_eq!(grade(&config), Some(Grade::Good));
        let made = directory::make(&root, &[1; 16]).expect("made");
        assert_eq!(grade(&config), Some(Grade::Good));
        config.recording.max_size = Size(20);
        assert_eq!(grade(&config), Some(Grade::Less));
        config.recording.max_size = Size(0);
        let path = made.path.clone();
        drop(made);
        let left = look(&config, true).expect("something");
        assert!(left.found.contains("1 are not finished"), "{left:?}");
        // It has ended: a node in a cluster sends it.
        let path = directory::for_sending(&path)
            .expect("it is there")
            .map(|_| path)
            .expect("nobody makes it");
        directory::finish(&path);
        assert_eq!(grade(&config), Some(Grade::Good));
        let waits = look(&config, true).expect("something");
        assert_eq!(waits.grade, Grade::Good);
        assert!(
            waits
                .found
                .contains("; 1 (1 KB) wait for the cluster, the first since 20"),
            "{waits:?}"
        );
        let an_hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3700);
        let file = std::fs::File::open(&path).expect("there");
        file.set_modified(an_hour_ago).expect("set");
        assert_eq!(look(&config, true).map(|waits| waits.grade), Some(Grade::Less));
        directory::delivered::note(&path, &[1; 16], None).expect("noted");
        assert_eq!(look(&config, true).map(|kept| kept.grade), Some(Grade::Good));
        directory::delivered::note(&path, &[1; 16], Some("no")).expect("noted");
        let refused = look(&config, true).expect("something");
        assert_eq!(refused.grade, Grade::Less);
        assert!(
            refused.found.contains("the cluster refuses 1 (no)"),
            "{refused:?}"
        );
        assert!(refused.remedy.contains("`delivered`"), "{refused:?}");
        std::fs::write(
            path.with_file_name("delivered"),
            format!("{} refused: it was removed from the cluster\n", "01".repeat(16)),
        )
        .expect("written");
        let removed = look(&config, true).expect("something");
        assert_eq!(removed.grade, Grade::Less);
        assert!(
            removed
                .found
                .contains("the cluster refuses 1 (it was removed from the cluster)"),
            "{removed:?}"
        );
        assert!(removed.remedy.contains("so a proxy says"), "{removed:?}");
        config.recording.directory = "/dev/null".into();
        assert_eq!(grade(&config), Some(Grade::Wrong));
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
