//! The recordings that this machine's auth keeps: how many there are, and what is in the way of those that are to go to the object
//! store.

use super::finding;
use super::node::{Finding, Grade};
use fleetgate_archive::{Held, store_trouble};
use fleetgate_client::time;
use fleetgate_policy::text;

const WHAT: &str = "auth recordings";
/// A recording is in the object store before so many seconds are over.
const STORE_LATE: u64 = 900;

/// Those of an auth service that answers; `restart` is how it begins again.
pub(super) fn look(config: &fleetgate_auth::Config, restart: &str) -> Finding {
    let directory = config.recordings();
    match fleetgate_archive::held(&directory) {
        Ok(held) => {
            let trouble = config.store.as_ref().and(store_trouble(&directory));
            of_recordings(&held, config.store.is_some(), trouble.as_deref(), time::now())
        }
        Err(e) => finding(WHAT, Grade::Wrong, e.to_string(), restart),
    }
}

fn of_recordings(held: &Held, has_store: bool, trouble: Option<&str>, now: u64) -> Finding {
    let found = format!("{} recordings, {} MB", held.recordings, held.bytes >> 20);
    let since = held.in_directory_since;
    if !has_store || since == 0 && trouble.is_none() {
        return finding(WHAT, Grade::Good, found, "");
    }
    // What was to be removed there is still there.
    if let Some(why) = trouble.filter(|_| since == 0) {
        let remedy = format!(
            "{}; auth tries again within 5 minutes, and until then nothing in the store is read or removed",
            remedy_for_store(why)
        );
        return finding(
            WHAT,
            Grade::Less,
            format!("{found}; the object store: {why}"),
            &remedy,
        );
    }
    let waits = now.saturating_sub(since);
    let found = format!(
        "{found}; {} of them, {} MB, wait for the object store, the oldest for {}",
        held.in_directory,
        held.in_directory_bytes >> 20,
        text::span(waits)
    );
    match (trouble, waits < STORE_LATE) {
        (Some(why), _) => finding(
            WHAT,
            Grade::Less,
            format!("{found}; {why}"),
            &format!(
                "{}; auth tries again within 5 minutes, and nothing is lost as long as there is room in the directory",
                remedy_for_store(why)
            ),
        ),
        (None, true) => finding(WHAT, Grade::Good, found, ""),
        (None, false) => finding(
            WHAT,
            Grade::Less,
            found,
            "auth's log says why the store does not take them; nothing is lost as long as there is room in the directory",
        ),
    }
}

/// What mends it, by the words of the store's client.
fn remedy_for_store(why: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if says(&["lacked the necessary privileges", "lacked valid authentication"]) {
        "the store refuses auth's keys: correct the file that `credentials` names, or let its key put, read and remove objects in \
         the bucket, then restart auth"
    } else if says(&["NoSuchBucket", " not found: "]) {
        "the store has no such bucket: make it, or correct `store` in [auth.recordings] and restart auth"
    } else {
        "see that the store runs, and that this machine reaches the `endpoint` of [auth.recordings] and trusts its certificate (`ca`)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_that_wait_for_the_store_are_told() {
        let held = |since| Held {
            recordings: 7,
            bytes: 5 << 20,
            in_directory: 2,
            in_directory_bytes: 3 << 20,
            in_directory_since: since,
        };
        for (since, has_store, grade, words) in [
            (100, false, Grade::Good, "7 recordings, 5 MB"),
            (0, true, Grade::Good, "7 recordings, 5 MB"),
            (
                9_500,
                true,
                Grade::Good,
                "2 of them, 3 MB, wait for the object store",
            ),
            (6_000, true, Grade::Less, "the oldest for 1h 6m"),
        ] {
            let finding = of_recordings(&held(since), has_store, None, 10_000);
            assert_eq!(finding.grade, grade, "{since}");
            assert_eq!(finding.remedy.is_empty(), grade == Grade::Good, "{since}");
            assert!(finding.found.contains(words), "{}", finding.found);
        }
        // What the store said is told at once, with what mends it.
        for (why, remedy) in [
            ("Generic S3 error: connection refused", "see that the store runs"),
            (
                "The operation lacked the necessary privileges to complete for path a: 403",
                "the store refuses auth's keys",
            ),
            ("Object at location a not found: NoSuchBucket", "no such bucket"),
        ] {
            let finding = of_recordings(&held(9_990), true, Some(why), 10_000);
            assert_eq!(finding.grade, Grade::Less);
            assert!(finding.found.contains(why), "{finding:?}");
            assert!(finding.remedy.contains(remedy), "{finding:?}");
        }
        // Also where nothing waits: something was to be removed.
        let finding = of_recordings(&held(0), true, Some("connection refused"), 10_000);
        assert_eq!(finding.grade, Grade::Less);
        assert!(finding.remedy.contains("see that the store runs"), "{finding:?}");
    }
}
