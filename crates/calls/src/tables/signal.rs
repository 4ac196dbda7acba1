//! Signals by number, the real-time ones by their place.

use super::signal_names::NAMES;

/// The first of the real-time signals, as the kernel counts them (a C library keeps the first for itself).
pub const FIRST_REALTIME: i32 = 32;
/// The last signal there is.
pub const LAST: i32 = 64;

/// The real-time signals from the first on.
#[rustfmt::skip]
static REALTIME: [&str; 33] = [
    "SIGRTMIN", "SIGRT_1", "SIGRT_2", "SIGRT_3", "SIGRT_4", "SIGRT_5", "SIGRT_6", "SIGRT_7", "SIGRT_8",
    "SIGRT_9", "SIGRT_10", "SIGRT_11", "SIGRT_12", "SIGRT_13", "SIGRT_14", "SIGRT_15", "SIGRT_16", "SIGRT_17",
    "SIGRT_18", "SIGRT_19", "SIGRT_20", "SIGRT_21", "SIGRT_22", "SIGRT_23", "SIGRT_24", "SIGRT_25", "SIGRT_26",
    "SIGRT_27", "SIGRT_28", "SIGRT_29", "SIGRT_30", "SIGRT_31", "SIGRT_32",
];

/// Names beside the first one of a number.
const SECOND_NAMES: [(&str, i32); 5] = [
    ("SIGCLD", 17),
    ("SIGIOT", 6),
    ("SIGPOLL", 29),
    ("SIGRT_0", 32),
    ("SIGRTMAX", 64),
];

/// Its name: `SIGTERM`, `SIGRT_3`.
#[must_use]
pub fn name(number: i32) -> Option<&'static str> {
    let at = |number: i32| usize::try_from(number).ok();
    match number {
        FIRST_REALTIME..=LAST => REALTIME.get(at(number - FIRST_REALTIME)?),
        _ => NAMES.get(at(number.checked_sub(1)?)?),
    }
    .copied()
}

/// The signal of a name, with `SIG` or without, in any case.
#[must_use]
pub fn number(name: &str) -> Option<i32> {
    let bare = name
        .get(..3)
        .filter(|start| start.eq_ignore_ascii_case("SIG"))
        .map_or(name, |start| name.get(start.len()..).unwrap_or_default());
    let is = |known: &str| {
        known
            .get(3..)
            .is_some_and(|known| known.eq_ignore_ascii_case(bare))
    };
    let first = (1..=LAST).find(|number| self::name(*number).is_some_and(is));
    first.or_else(|| SECOND_NAMES.iter().find(|(known, _)| is(known)).map(|(_, n)| *n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_its_name_and_a_name_its_signal() {
        for (signal, wanted) in [
            (0, None),
            (1, Some("SIGHUP")),
            (17, Some("SIGCHLD")),
            (31, Some("SIGSYS")),
            (32, Some("SIGRTMIN")),
            (33, Some("SIGRT_1")),
            (64, Some("SIGRT_32")),
            (65, None),
            (-1, None),
            (i32::MIN, None),
        ] {
            assert_eq!(name(signal), wanted, "{signal}");
            if let Some(name) = wanted {
                assert_eq!(number(name), Some(signal), "{name}");
            }
        }
        for (name, signal) in [
            ("io", Some(29)),
            ("SIGPOLL", Some(29)),
            ("sigterm", Some(15)),
            ("rt_3", Some(35)),
            ("SIG", None),
            ("", None),
            ("SIGNOT", None),
            ("é", None),
        ] {
            assert_eq!(number(name), signal, "{name}");
        }
    }
}
