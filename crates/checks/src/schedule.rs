//! When which check begins. It reads no clock and starts nothing: it is told the time, and says what is due.
//!
//! Each check of a node has its own place in its interval, by a hash of node and service. So the checks are spread over the
//! interval, and stay where they are after a restart. Times are milliseconds since 1970.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A service on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The node.
    pub node: String,
    /// The service's name.
    pub service: String,
}

/// What is due.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// These begin now.
    pub begin: Vec<Rc<Target>>,
    /// So many starts did not happen: the one before was still running, or their time was over.
    pub skipped: u64,
}

/// When a target's turns are, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// From one to the next.
    pub interval: u64,
    /// There is none for so long after the target came.
    pub delay: u64,
}

#[derive(Clone, Copy)]
struct Slot {
    interval: u64,
    /// No turn is before.
    not_before: u64,
    next: u64,
}

/// All checks, each with its next start.
#[derive(Default)]
pub struct Schedule {
    slots: BTreeMap<Rc<Target>, Slot>,
    by_time: BTreeSet<(u64, Rc<Target>)>,
    /// Those that run, also if they are not wanted any more.
    running: BTreeSet<Rc<Target>>,
    /// The latest time that was told.
    told: u64,
}

impl Schedule {
    /// These are to be checked from now on. What was there stays where it was.
    pub fn set(&mut self, wanted: &BTreeMap<Target, Turns>, now: u64) {
        let by_time = &mut self.by_time;
        self.slots.retain(|target, slot| {
            let turns = wanted.get(&**target);
            if turns.is_none_or(|turns| turns.interval != slot.interval) {
                by_time.remove(&(slot.next, target.clone()));
            }
            turns.is_some()
        });
        for (target, turns) in wanted {
            let not_before = match self.slots.get(target) {
                Some(slot) if slot.interval == turns.interval => continue,
                Some(slot) => slot.not_before,
                None => now + turns.delay,
            };
            self.place(&Rc::new(target.clone()), turns.interval, not_before, now);
        }
    }

    /// What is due now. At most `room` checks begin; those that find no room stay due until their next turn.
    pub fn due(&mut self, now: u64, room: usize) -> Due {
        let mut due = Due::default();
        if now < self.told {
            // The clock was set back: the turns that it had are too far away.
            self.place_all(self.told - now, now);
        }
        self.told = now;
        while let Some((next, target)) = self.by_time.first().cloned()
            && next <= now
        {
            let Some(Slot {
                interval, not_before, ..
            }) = self.slots.get(&target).copied()
            else {
                self.by_time.remove(&(next, target));
                continue;
            };
            let is_late = now - next >= interval;
            let is_running = self.running.contains(&target);
            if !is_late && !is_running && due.begin.len() >= room {
                break;
            }
            self.by_time.remove(&(next, target.clone()));
            self.place(&target, interval, not_before, now);
            if is_late {
                // After a sleep of the machine they begin at their places again, and not all at once.
                due.skipped += (now - next) / interval + 1;
            } else if is_running {
                due.skipped += 1;
            } else {
                self.running.insert(target.clone());
                due.begin.push(target);
            }
        }
        due
    }

    /// It has ended.
    pub fn ended(&mut self, target: &Target) {
        self.running.remove(target);
    }

    /// When something is due next.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.by_time.first().map(|(next, _)| *next)
    }

    fn place(&mut self, target: &Rc<Target>, interval: u64, not_before: u64, now: u64) {
        let next = next_turn(target, interval, now.max(not_before));
        let slot = Slot {
            interval,
            not_before,
            next,
        };
        self.slots.insert(target.clone(), slot);
        self.by_time.insert((next, target.clone()));
    }

    /// All of them, after the clock was set back by so much.
    fn place_all(&mut self, by: u64, now: u64) {
        self.by_time.clear();
        for (target, slot) in std::mem::take(&mut self.slots) {
            self.place(&target, slot.interval, slot.not_before.saturating_sub(by), now);
        }
    }
}

/// The first moment after `now` that is this target's place in its interval.
fn next_turn(target: &Target, interval: u64, now: u64) -> u64 {
    let place = hash(target) % interval;
    let begun = now - now % interval + place;
    if begun > now { begun } else { begun + interval }
}

/// FNV-1a, and a last step that spreads what differs in few bits. It must say the same in each version of the program.
fn hash(target: &Target) -> u64 {
    let bytes = target.node.bytes().chain([0]).chain(target.service.bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53_u64] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;
    /// Some day.
    const DAY: u64 = 1_800_000_000_000;

    fn targets(nodes: usize, interval: u64) -> BTreeMap<Target, Turns> {
        delayed(nodes, interval, 0)
    }

    fn delayed(nodes: usize, interval: u64, delay: u64) -> BTreeMap<Target, Turns> {
        let target = |n: usize| Target {
            node: format!("web{n}"),
            service: "load".to_owned(),
        };
        (0..nodes)
            .map(|n| (target(n), Turns { interval, delay }))
            .collect()
    }

    /// All starts within a minute, one ended before the next begins.
    fn starts(schedule: &mut Schedule, from: u64) -> Vec<(u64, Rc<Target>)> {
        let mut starts = Vec::new();
        while let Some(next) = schedule.next().filter(|next| *next <= from + MINUTE) {
            let due = schedule.due(next, usize::MAX);
            assert_eq!(due.skipped, 0);
            for target in due.begin {
                schedule.ended(&target);
                starts.push((next, target));
            }
        }
        starts
    }

    #[test]
    fn starts_are_spread_over_the_interval_and_stay_where_they_are() {
        let wanted = targets(1000, MINUTE);
        let mut schedule = Schedule::default();
        schedule.set(&wanted, DAY);
        let first = starts(&mut schedule, DAY);
        assert_eq!(first.len(), 1000, "each once");
        let mut seconds = [0; 60];
        for (at, _) in &first {
            seconds[((at - DAY - 1) / 1000) as usize] += 1;
        }
        assert!(seconds.iter().all(|n| (4..=40).contains(n)), "{seconds:?}");
        // After a restart in the middle of another minute.
        let mut again = Schedule::default();
        again.set(&wanted, DAY + 7 * MINUTE + 31_000);
        for (at, target) in starts(&mut again, DAY + 7 * MINUTE + 31_000) {
            let before = first.iter().find(|(_, t)| *t == target).expect("it was there");
            assert_eq!(at % MINUTE, before.0 % MINUTE);
        }
    }

    #[test]
    fn never_two_at_once_and_what_is_late_is_skipped_and_counted() {
        let wanted = targets(1, MINUTE);
        let mut schedule = Schedule::default();
        schedule.set(&wanted, DAY);
        let turn = schedule.next().expect("one");
        assert_eq!(schedule.due(turn - 1, 9), Due::default());
        let due = schedule.due(turn, 9);
        assert_eq!((due.begin.len(), due.skipped), (1, 0));
        // It still runs at its next turn.
        let due = schedule.due(turn + MINUTE, 9);
        assert_eq!((due.begin.len(), due.skipped), (0, 1));
        schedule.ended(wanted.first_key_value().expect("one").0);
        assert_eq!(schedule.next(), Some(turn + 2 * MINUTE));
        // The machine slept for over ten minutes.
        let due = schedule.due(turn + 12 * MINUTE + 5, 9);
        assert_eq!((due.begin.len(), due.skipped), (0, 11));
        assert_eq!(schedule.next(), Some(turn + 13 * MINUTE));
        // A little late is not too late.
        assert_eq!(schedule.due(turn + 13 * MINUTE + 900, 9).begin.len(), 1);
        // The clock is set back by a day.
        schedule.ended(wanted.first_key_value().expect("one").0);
        assert_eq!(schedule.due(turn - 1440 * MINUTE - 5, 9), Due::default());
        assert_eq!(schedule.next(), Some(turn - 1440 * MINUTE));
    }

    #[test]
    fn what_finds_no_room_waits_for_it() {
        let mut schedule = Schedule::default();
        schedule.set(&targets(10, MINUTE), DAY);
        let now = DAY + MINUTE - 1;
        let first = schedule.due(now, 4);
        assert_eq!((first.begin.len(), first.skipped), (4, 0));
        assert_eq!(schedule.due(now, 0), Due::default());
        assert_eq!(schedule.due(now, 9).begin.len(), 6);
    }

    #[test]
    fn targets_come_and_go_and_the_others_do_not_notice() {
        let mut schedule = Schedule::default();
        schedule.set(&targets(3, MINUTE), DAY);
        let before = schedule.by_time.clone();
        schedule.set(&targets(5, MINUTE), DAY + 10);
        assert!(before.is_subset(&schedule.by_time));
        schedule.set(&targets(2, MINUTE), DAY + 20);
        assert_eq!((schedule.slots.len(), schedule.by_time.len()), (2, 2));
        // Another interval is another place.
        schedule.set(&targets(2, 5 * MINUTE), DAY + 30);
        assert!(schedule.slots.values().all(|slot| slot.interval == 5 * MINUTE));
        // One that runs, goes and comes back while it runs, is not begun a second time.
        let now = DAY + 30 + 5 * MINUTE - 1;
        assert_eq!(schedule.due(now, 9).begin.len(), 2);
        schedule.set(&targets(0, 1), now);
        schedule.set(&targets(2, MINUTE), now);
        let due = schedule.due(now + MINUTE - 1, 9);
        assert_eq!((due.begin.len(), due.skipped), (0, 2));
    }

    #[test]
    fn a_new_target_waits_for_its_delay_and_no_other_one_does() {
        let mut schedule = Schedule::default();
        schedule.set(&targets(1, MINUTE), DAY);
        let first = schedule.next().expect("one");
        schedule.set(&delayed(2, MINUTE, 10 * MINUTE), DAY);
        assert_eq!(schedule.next(), Some(first));
        let begins = |schedule: &mut Schedule, now| {
            let due = schedule.due(now, 9);
            for target in &due.begin {
                schedule.ended(target);
            }
            (due.begin.len(), due.skipped)
        };
        for minute in 1..=10 {
            assert_eq!(begins(&mut schedule, DAY + minute * MINUTE), (1, 0), "{minute}");
        }
        // Another interval is no second delay, and a clock that is set back makes none longer.
        schedule.set(&delayed(3, MINUTE, 10 * MINUTE), DAY + 10 * MINUTE);
        schedule.set(&delayed(3, 2 * MINUTE, 10 * MINUTE), DAY + 10 * MINUTE);
        assert_eq!(begins(&mut schedule, DAY + 12 * MINUTE), (2, 0));
        assert_eq!(begins(&mut schedule, DAY), (0, 0));
        assert_eq!(begins(&mut schedule, DAY + 2 * MINUTE), (2, 0));
        assert_eq!(begins(&mut schedule, DAY + 8 * MINUTE).0, 0, "too late for two");
        assert_eq!(begins(&mut schedule, DAY + 10 * MINUTE), (3, 0));
        // One that was gone is new.
        schedule.set(&targets(0, MINUTE), DAY + 10 * MINUTE);
        schedule.set(&delayed(1, MINUTE, 10 * MINUTE), DAY + 10 * MINUTE);
        assert!(schedule.next().is_some_and(|next| next > DAY + 20 * MINUTE));
    }
}
