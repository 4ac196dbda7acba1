//! Sums by call: how often, how many errors, how long by the clock and on the processor. A table as `strace -c` prints it, or
//! JSON.

use super::lines::call_name;
use super::stamp::Moment;
use crate::catch::Event;
use fleetgate_calls::tables::errno;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Tasks whose time on the processor is kept track of at once; that of others counts as none.
pub const MAX_CLOCKS: usize = 512;

/// By what the table is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The time of all calls, the longest first.
    #[default]
    Time,
    /// The shortest of them.
    Least,
    /// The longest.
    Most,
    /// The average.
    Average,
    /// How often.
    Calls,
    /// How many errors.
    Errors,
    /// By name.
    Name,
    /// As they were first seen.
    Nothing,
}

impl Sort {
    /// Every word that `-S` takes.
    pub const WORDS: &'static [&'static str] = &[
        "time", "min-time", "max-time", "avg-time", "calls", "errors", "name", "nothing",
    ];

    /// What a word means.
    #[must_use]
    pub fn parse(word: &str) -> Option<Sort> {
        Some(match word {
            "time" | "time-total" | "total-time" => Sort::Time,
            "min-time" | "shortest" => Sort::Least,
            "max-time" | "longest" => Sort::Most,
            "avg-time" | "time-avg" => Sort::Average,
            "calls" | "count" => Sort::Calls,
            "errors" | "error" => Sort::Errors,
            "name" | "syscall" | "syscall-name" => Sort::Name,
            "nothing" | "none" => Sort::Nothing,
            _ => return None,
        })
    }
}

/// What was summed of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sum {
    calls: u64,
    /// Those of them whose end was seen.
    ended: u64,
    errors: u64,
    wall: Spent,
    cpu: Spent,
    /// The how manieth new one it was.
    order: usize,
}

/// Nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    total: u64,
    least: u64,
    most: u64,
}

impl Spent {
    fn add(&mut self, nanos: u64, first: bool) {
        self.total += nanos;
        self.least = if first { nanos } else { self.least.min(nanos) };
        self.most = self.most.max(nanos);
    }
}

/// The sums.
pub struct Sums {
    /// Show the clock's time, not the processor's: `-w`.
    wall: bool,
    sort: Sort,
    by_call: BTreeMap<String, Sum>,
    /// The calls that tasks are in: name, the clock, the processor.
    open: BTreeMap<i32, (String, i64, Option<u64>)>,
    clocks: BTreeMap<i32, File>,
}

impl Sums {
    /// None yet.
    #[must_use]
    pub fn new(wall: bool, sort: Sort) -> Sums {
        Sums {
            wall,
            sort,
            by_call: BTreeMap::new(),
            open: BTreeMap::new(),
            clocks: BTreeMap::new(),
        }
    }

    /// Adds what happened.
    pub fn tell(&mut self, event: &Event, now: Moment) {
        match event {
            Event::Enter(enter) => {
                let name = call_name(enter);
                let order = self.by_call.len();
                let sum = self.by_call.entry(name.clone()).or_insert_with(|| Sum {
                    order,
                    ..Sum::default()
                });
                sum.calls += 1;
                let cpu = self.cpu(enter.tid);
                self.open.insert(enter.tid, (name, now.steady, cpu));
            }
            Event::Leave { tid, result } => {
                let Some((name, since, before)) = self.open.remove(tid) else {
                    return;
                };
                let cpu = match before {
                    Some(before) => self.cpu(*tid).map_or(0, |after| after.saturating_sub(before)),
                    None => 0,
                };
                let Some(sum) = self.by_call.get_mut(&name) else {
                    return;
                };
                sum.ended += 1;
                let first = sum.ended == 1;
                sum.errors += u64::from(errno::of_result(*result).is_some());
                sum.wall.add((now.steady - since).max(0).cast_unsigned(), first);
                sum.cpu.add(cpu, first);
            }
            Event::Executed { pid, former } if pid != former => {
                self.clocks.remove(former);
                if let Some(call) = self.open.remove(former) {
                    self.open.insert(*pid, (call.0, call.1, None));
                }
            }
            Event::Ended { tid, .. } => {
                self.open.remove(tid);
                self.clocks.remove(tid);
            }
            _ => {}
        }
    }

    /// The time that a task has had on the processor. It stands still, so it is exact.
    fn cpu(&mut self, tid: i32) -> Option<u64> {
        if !self.clocks.contains_key(&tid) {
            if self.clocks.len() >= MAX_CLOCKS {
                return None;
            }
            let file = File::open(format!("/proc/{tid}/schedstat")).ok()?;
            self.clocks.insert(tid, file);
        }
        let mut text = [0u8; 64];
        let length = self.clocks.get(&tid)?.read_at(&mut text, 0).ok()?;
        let first = text.get(..length)?.split(|b| *b == b' ').next()?;
        std::str::from_utf8(first).ok()?.parse().ok()
    }

    fn sorted(&self) -> Vec<(&str, &Sum)> {
        let mut rows: Vec<(&str, &Sum)> = self.by_call.iter().map(|(n, s)| (n.as_str(), s)).collect();
        let spent = |sum: &Sum| if self.wall { sum.wall } else { sum.cpu };
        let key = |sum: &Sum| match self.sort {
            Sort::Time => spent(sum).total,
            Sort::Least => spent(sum).least,
            Sort::Most => spent(sum).most,
            Sort::Average => spent(sum).total / sum.calls.max(1),
            Sort::Calls => sum.calls,
            Sort::Errors => sum.errors,
            Sort::Name | Sort::Nothing => 0,
        };
        // By name already; the rest keeps that order among equals.
        match self.sort {
            Sort::Name => {}
            Sort::Nothing => rows.sort_by_key(|(_, sum)| sum.order),
            _ => rows.sort_by_key(|(_, sum)| std::cmp::Reverse(key(sum))),
        }
        rows
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> String {
        let rule = "------ ----------- ----------- --------- --------- ----------------\n";
        let mut out = String::from("% time     seconds  usecs/call     calls    errors syscall\n") + rule;
        let rows = self.sorted();
        let spent = |sum: &Sum| if self.wall { sum.wall.total } else { sum.cpu.total };
        let all: u64 = rows.iter().map(|(_, sum)| spent(sum)).sum();
        let row = |name: &str, nanos: u64, calls: u64, errors: u64, share: f64| {
            let errors = if errors == 0 {
                String::new()
            } else {
                errors.to_string()
            };
            let (seconds, each) = (nanos as f64 / 1e9, nanos / 1000 / calls.max(1));
            format!("{share:6.2} {seconds:11.6} {each:11} {calls:9} {errors:>9} {name}\n")
        };
        for (name, sum) in &rows {
            let share = spent(sum) as f64 * 100.0 / all.max(1) as f64;
            out += &row(name, spent(sum), sum.calls, sum.errors, share);
        }
        let calls = rows.iter().map(|(_, sum)| sum.calls).sum();
        let errors = rows.iter().map(|(_, sum)| sum.errors).sum();
        out + rule + &row("total", all, calls, errors, 100.0)
    }

    /// The same for a program: one document.
    #[must_use]
    pub fn document(&self) -> Value {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        let rows: Vec<Value> = self
            .sorted()
            .into_iter()
            .map(|(name, sum)| {
                json!({
                    "call": name,
                    "calls": sum.calls,
                    "errors": sum.errors,
                    "wall_us": micros(sum.wall.total),
                    "wall_least_us": micros(sum.wall.least),
                    "wall_most_us": micros(sum.wall.most),
                    "cpu_us": micros(sum.cpu.total),
                })
            })
            .collect();
        json!({ "summary": rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catch::{End, Enter};
    use fleetgate_calls::abi::{Abi, Call};

    /// What was summed of these: task, call, and how it ended after so many microseconds.
    fn sums(wall: bool, sort: Sort) -> Sums {
        let mut sums = Sums::new(wall, sort);
        let mut now = Moment::NONE;
        // Nobody has this number: its time on the processor is not to be had.
        let tid = i32::MAX;
        for (number, result, micros) in [
            (61, Some(-10), 400),
            (61, Some(5), 300),
            (257, Some(3), 200),
            (0, Some(-4), 90),
            (0, Some(-4), 10),
            (60, None, 0),
        ] {
            let call = Call {
                abi: Abi::X86_64,
                number,
            };
            let enter = Enter {
                tid,
                call: Some(call),
                audit: Abi::X86_64.audit(),
                number,
                arguments: [0; 6],
                instruction: 0,
            };
            sums.tell(&Event::Enter(enter), now);
            now.steady += micros * 1000;
            let next = match result {
                Some(result) => Event::Leave { tid, result },
                None => Event::Ended {
                    tid,
                    end: End::Exited(0),
                },
            };
            sums.tell(&next, now);
        }
        assert!(sums.open.is_empty());
        sums
    }

    #[test]
    fn a_table_as_strace_has_it() {
        assert_eq!(
            sums(true, Sort::Time).table(),
            "% time     seconds  usecs/call     calls    errors syscall\n\
             ------ ----------- ----------- --------- --------- ----------------\n \
             70.00    0.000700         350         2         1 wait4\n \
             20.00    0.000200         200         1           openat\n \
             10.00    0.000100          50         2         2 read\n  \
             0.00    0.000000           0         1           exit\n\
             ------ ----------- ----------- --------- --------- ----------------\n\
             100.00    0.001000         166         6         3 total\n"
        );
    }

    #[test]
    fn it_is_sorted_as_asked() {
        for (word, order) in [
            ("time", "wait4 openat read exit"),
            ("calls", "read wait4 exit openat"),
            ("errors", "read wait4 exit openat"),
            ("name", "exit openat read wait4"),
            ("nothing", "wait4 openat read exit"),
            ("min-time", "wait4 openat read exit"),
            ("max-time", "wait4 openat read exit"),
            ("avg-time", "wait4 openat read exit"),
        ] {
            assert!(Sort::WORDS.contains(&word));
            let sums = sums(true, Sort::parse(word).expect("a word"));
            let names: Vec<&str> = sums.sorted().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names.join(" "), order, "{word}");
        }
        assert_eq!(Sort::parse("colour"), None);
    }

    #[test]
    fn the_same_for_a_program() {
        let document = sums(false, Sort::Name).document();
        let read = json!({
            "call": "read", "calls": 2, "errors": 2, "wall_us": 100.0, "wall_least_us": 10.0, "wall_most_us": 90.0,
            "cpu_us": 0.0,
        });
        assert_eq!(document["summary"][2], read);
    }

    #[test]
    fn the_processors_time_of_a_task_is_known() {
        let mut sums = Sums::new(false, Sort::Time);
        let me = fleetgate_sys::signals::thread();
        let before = sums.cpu(me).expect("this one runs");
        // It is brought up to date when the task stops, at the latest: it has to run until then.
        while sums.cpu(me).expect("still") == before {
            std::thread::yield_now();
        }
        let mut full = Sums::new(false, Sort::Time);
        for tid in 0..MAX_CLOCKS {
            let file = File::open("/proc/self/schedstat").expect("it is there");
            full.clocks.insert(-1 - tid as i32, file);
        }
        assert_eq!(full.cpu(me), None, "no more than that are open");
    }
}
