//! Whether this node can record, where it is to: its directory, how full it is, and recordings that nobody finished.

use super::node::Finding;
use fleetgate_base::own;
use fleetgate_node::config::Config;
use fleetgate_recorder::directory::{KEPT_DAYS, usage};
use std::io::ErrorKind;

const WHAT: &str = "recordings";
/// Of `max_size`, so many hundredths are much.
const MUCH: u64 = 90;

/// Nothing, where nothing is recorded and nothing was.
pub(super) fn look(config: &Config) -> Option<Finding> {
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
        assert_eq!(look(&config), None);
        config.recording.sessions = fleetgate_policy::Recording::Output;
        let grade = |config: &Config| look(config).map(|finding| finding.grade);
        assert_eq!(grade(&config), Some(Grade::Good));
        let made = directory::make(&root, &[1; 16]).expect("made");
        assert_eq!(grade(&config), Some(Grade::Good));
        config.recording.max_size = Size(20);
        assert_eq!(grade(&config), Some(Grade::Less));
        config.recording.max_size = Size(0);
        drop(made);
        let left = look(&config).expect("something");
        assert!(left.found.contains("1 are not finished"), "{left:?}");
        config.recording.directory = "/dev/null".into();
        assert_eq!(grade(&config), Some(Grade::Wrong));
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
