//! When something happened, as a line begins with it. It asks no clock: it is told.

use fleetgate_sys::clock::{self, Time};
use std::io::Write;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The calendar's.
    pub wall: Time,
    /// The one that is never set back, in nanoseconds.
    pub steady: i64,
}

impl Moment {
    /// No moment at all, for whoever shows none.
    pub const NONE: Moment = Moment {
        wall: Time { sec: 0, nsec: 0 },
        steady: 0,
    };

    /// This one.
    #[must_use]
    pub fn now() -> Moment {
        Moment {
            wall: clock::wall(),
            steady: clock::monotonic().as_nanos(),
        }
    }
}

/// How the time of day is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Day {
    /// Not.
    #[default]
    No,
    /// `-t`: to the second.
    Seconds,
    /// `-tt`: to the microsecond.
    Micros,
    /// `-ttt`: seconds since 1970.
    Unix,
}

/// What stands before each line.
#[derive(Clone, Debug, Default)]
pub struct Stamp {
    /// The time of day.
    pub day: Day,
    /// `-r`: since the line before.
    pub relative: bool,
    last: Option<i64>,
    /// A second, and how it is written.
    second: Option<(i64, [u8; 8])>,
}

impl Stamp {
    /// As asked.
    #[must_use]
    pub fn new(day: Day, relative: bool) -> Stamp {
        Stamp {
            day,
            relative,
            ..Stamp::default()
        }
    }

    /// Whether a moment is needed at all.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.relative || self.day != Day::No
    }

    /// Writes it.
    pub fn put(&mut self, now: Moment, line: &mut Vec<u8>) {
        let micros = now.wall.nsec / 1000;
        match self.day {
            Day::No => {}
            Day::Seconds => {
                line.extend_from_slice(&self.clock(now.wall.sec));
                line.push(b' ');
            }
            Day::Micros => {
                line.extend_from_slice(&self.clock(now.wall.sec));
                let _ = write!(line, ".{micros:06} ");
            }
            Day::Unix => {
                let _ = write!(line, "{}.{micros:06} ", now.wall.sec);
            }
        }
        if self.relative {
            let since = (now.steady - self.last.unwrap_or(now.steady)).max(0) / 1000;
            self.last = Some(now.steady);
            let (sec, micros) = (since / 1_000_000, since % 1_000_000);
            let _ = match self.day {
                Day::No => write!(line, "{sec:6}.{micros:06} "),
                _ => write!(line, "(+{sec:6}.{micros:06}) "),
            };
        }
    }

    /// `03:04:20`, looked up once a second: the C library's rules take longer than a line.
    fn clock(&mut self, sec: i64) -> [u8; 8] {
        if let Some((known, text)) = self.second
            && known == sec
        {
            return text;
        }
        let mut text = *b"00:00:00";
        if let Some(civil) = clock::local(sec) {
            for (at, value) in [(0, civil.hour), (3, civil.minute), (6, civil.second)] {
                text[at] = b'0' + value / 10 % 10;
                text[at + 1] = b'0' + value % 10;
            }
        }
        self.second = Some((sec, text));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_with_its_time() {
        let moment = |sec, nsec, steady| Moment {
            wall: Time { sec, nsec },
            steady,
        };
        let (first, second) = (
            moment(90_061, 5_000, 7),
            moment(90_062, 999_999_999, 1_500_000_007),
        );
        let minutes = |sec| {
            let civil = clock::local(sec).expect("a day");
            format!("{:02}:{:02}:{:02}", civil.hour, civil.minute, civil.second)
        };
        let (one, two) = (minutes(90_061), minutes(90_062));
        for (day, relative, lines) in [
            (Day::No, false, [String::new(), String::new()]),
            (Day::Seconds, false, [format!("{one} "), format!("{two} ")]),
            (
                Day::Micros,
                false,
                [format!("{one}.000005 "), format!("{two}.999999 ")],
            ),
            (Day::Unix, false, ["90061.000005 ".into(), "90062.999999 ".into()]),
            (Day::No, true, ["     0.000000 ".into(), "     1.500000 ".into()]),
            (
                Day::Unix,
                true,
                [
                    "90061.000005 (+     0.000000) ".into(),
                    "90062.999999 (+     1.500000) ".into(),
                ],
            ),
        ] {
            let mut stamp = Stamp::new(day, relative);
            assert_eq!(stamp.is_shown(), relative || day != Day::No);
            for (now, wanted) in [first, second].into_iter().zip(lines) {
                let mut line = Vec::new();
                stamp.put(now, &mut line);
                assert_eq!(String::from_utf8(line).expect("ASCII"), wanted, "{day:?}");
            }
        }
    }
}
