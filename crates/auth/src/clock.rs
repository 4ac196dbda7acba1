//! The calendar's time, which somebody can set, and the time since boot, which nobody can. Documents and certificates carry the
//! first; the second measures spans: rates, and the lives of what is in memory. The caller brings both, so that a test can
//! turn them. It waits for nothing.

use fleetgate_sys::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What time it is.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970.
    fn millis(&self) -> u64;

    /// Milliseconds since the machine's boot: they go on evenly when the calendar's time is set forward or back.
    fn uptime(&self) -> u64;

    /// Seconds since 1970.
    fn seconds(&self) -> u64 {
        self.millis() / 1000
    }
}

/// The machine's.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn millis(&self) -> u64 {
        in_millis(clock::wall())
    }

    fn uptime(&self) -> u64 {
        in_millis(clock::boot())
    }
}

fn in_millis(time: clock::Time) -> u64 {
    time.sec.unsigned_abs() * 1000 + u64::from(time.nsec / 1_000_000)
}

/// One that stands until it is turned.
#[derive(Clone, Debug)]
pub struct SetClock {
    wall: Arc<AtomicU64>,
    uptime: Arc<AtomicU64>,
}

impl SetClock {
    /// Standing at this second, on a machine that has just started.
    pub fn at(seconds: u64) -> SetClock {
        SetClock {
            wall: Arc::new(AtomicU64::new(seconds * 1000)),
            uptime: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Lets time pass.
    pub fn advance(&self, seconds: u64) {
        self.wall.fetch_add(seconds * 1000, Ordering::AcqRel);
        self.uptime.fetch_add(seconds * 1000, Ordering::AcqRel);
    }

    /// Sets the calendar's time forward, or back, as somebody does whose clock was wrong. No time passes.
    pub fn set_by(&self, seconds: i64) {
        let by = seconds.unsigned_abs() * 1000;
        match seconds < 0 {
            true => self.wall.fetch_sub(by, Ordering::AcqRel),
            false => self.wall.fetch_add(by, Ordering::AcqRel),
        };
    }
}

impl Clock for SetClock {
    fn millis(&self) -> u64 {
        self.wall.load(Ordering::Acquire)
    }

    fn uptime(&self) -> u64 {
        self.uptime.load(Ordering::Acquire)
    }
}

/// A moment as RFC 3339 has it, in UTC.
pub fn rfc3339(millis: u64) -> String {
    let sec = (millis / 1000).cast_signed();
    let nsec = (millis % 1000) as u32 * 1_000_000;
    clock::rfc3339(clock::Time { sec, nsec }, 3)
}

/// Milliseconds since 1970 of a moment as audit lines have it: RFC 3339 in UTC.
pub fn read_rfc3339(text: &str) -> Option<u64> {
    clock::read_rfc3339(text).map(in_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_rfc_3339_has_them() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_709_251_199_001, "2024-02-29T23:59:59.001Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (millis, text) in table {
            assert_eq!(rfc3339(millis), text);
            assert_eq!(read_rfc3339(text), Some(millis), "{text}");
        }
        assert_eq!(read_rfc3339("2026-01-01T00:00:00Z"), Some(1_767_225_600_000));
        for text in [
            "",
            "Z",
            "2026-01-01",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00:00.aZ",
            "2026-01-01T00:00:00.Z",
            "2026-11-23T21:50:00.ééZ",
            "2026-11-23T21:50:00.1éZ",
            "2026-11-23T21:50:00.123éZ",
            "2026-11-23T21:50:00.\u{1f600}Z",
            "1969-12-31T00:00:00Z",
        ] {
            assert_eq!(read_rfc3339(text), None, "{text}");
        }
    }
}
