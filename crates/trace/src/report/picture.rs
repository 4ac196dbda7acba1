//! A picture of where time went: one SVG that needs nothing beside it. Each process is a bar below which its calls stand and
//! the processes that it made; a bar is as wide as the time that calls took. What a program named itself is escaped.

use super::lines::call_name;
use super::stamp::Moment;
use crate::catch::Event;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Processes that are told apart; what further ones do counts for the process that made them.
pub const MAX_PROCESSES: usize = 4096;
/// Generations that are drawn.
pub const MAX_DEPTH: usize = 64;
const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
/// Narrower bars are left out.
const NARROW: f64 = 0.3;
/// Of a letter, roughly.
const LETTER: f64 = 6.6;

/// What is drawn.
#[derive(Default)]
pub struct Picture {
    processes: BTreeMap<i32, Process>,
    /// Processes in the order in which they came; a number may come again.
    done: Vec<Process>,
    /// Tasks and their processes.
    tasks: BTreeMap<i32, i32>,
    open: BTreeMap<i32, (String, i64)>,
    serial: usize,
}

#[derive(Clone, Default)]
struct Process {
    /// Its own number among all that there were, and its maker's.
    serial: usize,
    by: Option<usize>,
    pid: i32,
    /// Its programs, in the order in which it ran them.
    name: String,
    calls: BTreeMap<String, (u64, u64)>,
}

impl Picture {
    /// Adds what happened.
    pub fn tell(&mut self, event: &Event, now: Moment) {
        match event {
            Event::Began { tid, pid, by } => {
                let by = self.tasks.get(by).copied();
                if *tid == *pid {
                    self.begin(*pid, by);
                }
                let counts_for = match (self.processes.contains_key(pid), by) {
                    (false, Some(by)) => by,
                    _ => *pid,
                };
                self.tasks.insert(*tid, counts_for);
            }
            Event::Enter(enter) => {
                self.open.insert(enter.tid, (call_name(enter), now.steady));
            }
            Event::Leave { tid, .. } => {
                if let Some((name, since)) = self.open.remove(tid) {
                    self.add(*tid, name, now.steady - since);
                }
            }
            Event::Executed { pid, former } => {
                if let Some(call) = self.open.remove(former) {
                    self.open.insert(*pid, call);
                }
                if pid != former {
                    self.tasks.remove(former);
                }
                let counts_for = self.tasks.get(pid).copied();
                if counts_for == Some(*pid)
                    && let Some(process) = self.processes.get_mut(pid)
                {
                    process.name = program(*pid);
                }
            }
            Event::Ended { tid, .. } => {
                if let Some((name, since)) = self.open.remove(tid) {
                    self.add(*tid, name, now.steady - since);
                }
                self.tasks.remove(tid);
                if let Some(process) = self.processes.remove(tid) {
                    self.done.push(process);
                }
            }
            Event::Signal { .. } | Event::Stopped { .. } => {}
        }
    }

    fn begin(&mut self, pid: i32, by: Option<i32>) {
        if self.processes.len() + self.done.len() >= MAX_PROCESSES {
            return;
        }
        let by = by.and_then(|by| self.processes.get(&by)).map(|p| p.serial);
        self.serial += 1;
        let process = Process {
            serial: self.serial,
            by,
            pid,
            name: program(pid),
            calls: BTreeMap::new(),
        };
        if let Some(former) = self.processes.insert(pid, process) {
            self.done.push(former);
        }
    }

    fn add(&mut self, tid: i32, name: String, nanos: i64) {
        let pid = *self.tasks.entry(tid).or_insert(tid);
        if !self.processes.contains_key(&pid) {
            self.begin(pid, None);
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            let (calls, time) = process.calls.entry(name).or_default();
            *calls += 1;
            *time += nanos.max(0).cast_unsigned();
        }
    }

    /// The picture.
    #[must_use]
    pub fn svg(mut self, title: &str) -> String {
        self.done
            .extend(std::mem::take(&mut self.processes).into_values());
        self.done.sort_by_key(|p| p.serial);
        let drawing = Drawing::new(self.done);
        drawing.svg(title)
    }
}

/// The program that a process runs now, as it calls itself.
fn program(pid: i32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

struct Drawing {
    processes: Vec<Process>,
    children: BTreeMap<usize, Vec<usize>>,
    /// By place in `processes`: its own time and that of all below it.
    time: Vec<u64>,
    body: String,
    depth: usize,
    scale: f64,
}

impl Drawing {
    fn new(processes: Vec<Process>) -> Drawing {
        let place: BTreeMap<usize, usize> = processes
            .iter()
            .enumerate()
            .map(|(at, p)| (p.serial, at))
            .collect();
        let mut children: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut time: Vec<u64> = processes
            .iter()
            .map(|p| p.calls.values().map(|(_, nanos)| nanos).sum())
            .collect();
        // A child came after its maker, so what is below a process is complete when its turn comes from the end.
        for at in (0..processes.len()).rev() {
            if let Some(by) = processes[at].by.and_then(|by| place.get(&by)).copied() {
                time[by] += time[at];
                children.entry(by).or_default().insert(0, at);
            }
        }
        Drawing {
            processes,
            children,
            time,
            body: String::new(),
            depth: 0,
            scale: 0.0,
        }
    }

    fn svg(mut self, title: &str) -> String {
        let below: BTreeSet<usize> = self.children.values().flatten().copied().collect();
        let roots: Vec<usize> = (0..self.processes.len())
            .filter(|at| !below.contains(at))
            .collect();
        let all: u64 = roots.iter().map(|at| self.time[*at]).sum();
        self.scale = WIDTH / all.max(1) as f64;
        let mut x = 0.0;
        for root in roots {
            self.process(root, x, 1);
            x += self.time[root] as f64 * self.scale;
        }
        let height = (self.depth + 3) as f64 * ROW;
        let title = escape(title);
        let all = seconds(all);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} \
             {height}\" font-family=\"monospace\" font-size=\"11\">\n<title>{title}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fffdf7\"/>\n\
             <text x=\"4\" y=\"13\">{title}: {all} in system calls; processes grey, their calls coloured</text>\n\
             {}</svg>\n",
            self.body
        )
    }

    fn process(&mut self, at: usize, x: f64, depth: usize) {
        let (process, time) = (self.processes[at].clone(), self.time[at]);
        let own: u64 = process.calls.values().map(|(_, nanos)| nanos).sum();
        let count: u64 = process.calls.values().map(|(calls, _)| calls).sum();
        let name = match process.name.is_empty() {
            true => "?",
            false => process.name.as_str(),
        };
        let label = format!("{name} ({})", process.pid);
        let said = format!(
            "{label}: {} took {}, with what it started {}",
            times(count),
            seconds(own),
            seconds(time)
        );
        self.bar(x, depth, time, &label, &said, "#c9c9c4");
        if depth > MAX_DEPTH {
            return;
        }
        let mut calls: Vec<(&String, &(u64, u64))> = process.calls.iter().collect();
        calls.sort_by_key(|(_, (_, nanos))| std::cmp::Reverse(*nanos));
        let mut x = x;
        for (name, (count, nanos)) in calls {
            let said = format!("{name}: {} by {label} took {}", times(*count), seconds(*nanos));
            self.bar(x, depth + 1, *nanos, name, &said, &colour(name));
            x += *nanos as f64 * self.scale;
        }
        for child in self.children.get(&at).cloned().unwrap_or_default() {
            self.process(child, x, depth + 1);
            x += self.time[child] as f64 * self.scale;
        }
    }

    fn bar(&mut self, x: f64, depth: usize, nanos: u64, label: &str, said: &str, fill: &str) {
        let width = nanos as f64 * self.scale;
        if width < NARROW {
            return;
        }
        self.depth = self.depth.max(depth);
        let y = depth as f64 * ROW + 4.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "letters of a picture's width"
        )]
        let room = ((width - 6.0) / LETTER).max(0.0) as usize;
        let text: String = match label.chars().count() <= room {
            true => label.to_owned(),
            false if room > 3 => label.chars().take(room - 1).chain(['…']).collect(),
            false => String::new(),
        };
        let high = ROW - 1.0;
        let _ = write!(
            self.body,
            "<g><title>{}</title><rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{high}\" rx=\"2\" \
             fill=\"{fill}\"/>",
            escape(said)
        );
        if !text.is_empty() {
            let (x, y) = (x + 3.0, y + 12.0);
            let _ = write!(self.body, "<text x=\"{x:.2}\" y=\"{y}\">{}</text>", escape(&text));
        }
        self.body.push_str("</g>\n");
    }
}

/// A call has the same colour in every picture.
fn colour(name: &str) -> String {
    let sum = name.bytes().fold(5381u32, |sum, byte| {
        sum.wrapping_mul(33).wrapping_add(u32::from(byte))
    });
    format!(
        "hsl({},{}%,{}%)",
        sum % 360,
        55 + sum / 360 % 20,
        68 + sum / 7200 % 10
    )
}

fn times(calls: u64) -> String {
    match calls {
        1 => "1 call".to_owned(),
        calls => format!("{calls} calls"),
    }
}

fn seconds(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.3} s", nanos as f64 / 1e9),
    }
}

/// Text in XML: what would be markup is written out, and what XML cannot hold is a mark.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catch::{End, Enter};
    use fleetgate_calls::abi::{Abi, Call};

    fn call(picture: &mut Picture, tid: i32, number: u32, from: i64, to: i64) {
        let enter = Enter {
            tid,
            call: Some(Call {
                abi: Abi::X86_64,
                number,
            }),
            audit: 0,
            number,
            arguments: [0; 6],
            instruction: 0,
        };
        let at = |steady| Moment {
            steady,
            ..Moment::NONE
        };
        picture.tell(&Event::Enter(enter), at(from));
        picture.tell(&Event::Leave { tid, result: 0 }, at(to));
    }

    fn began(tid: i32, pid: i32, by: i32) -> Event {
        Event::Began { tid, pid, by }
    }

    /// Numbers that no process has.
    const FIRST: i32 = 2_000_000_000;

    #[test]
    fn a_bar_is_as_wide_as_its_time_and_children_are_below_their_maker() {
        let mut picture = Picture::default();
        let (a, b, c) = (FIRST, FIRST + 1, FIRST + 2);
        picture.tell(&began(a, a, 0), Moment::NONE);
        call(&mut picture, a, 0, 0, 250);
        picture.tell(&began(b, b, a), Moment::NONE);
        // A thread counts for its process.
        picture.tell(&began(c, b, b), Moment::NONE);
        call(&mut picture, b, 1, 0, 500);
        call(&mut picture, c, 257, 0, 250);
        picture.tell(
            &Event::Ended {
                tid: b,
                end: End::Exited(0),
            },
            Moment::NONE,
        );
        let svg = picture.svg("make");
        let bars: Vec<(&str, &str)> = svg
            .lines()
            .filter_map(|line| {
                let said = line.split("<title>").nth(1)?.split("</title>").next()?;
                let place = line.split("<rect ").nth(1)?.split(" height").next()?;
                Some((said, place))
            })
            .collect();
        assert_eq!(
            bars,
            [
                (
                    "? (2000000000): 1 call took 0.2 us, with what it started 1.0 us",
                    "x=\"0.00\" y=\"22\" width=\"1200.00\""
                ),
                (
                    "read: 1 call by ? (2000000000) took 0.2 us",
                    "x=\"0.00\" y=\"40\" width=\"300.00\""
                ),
                (
                    "? (2000000001): 2 calls took 0.8 us, with what it started 0.8 us",
                    "x=\"300.00\" y=\"40\" width=\"900.00\""
                ),
                (
                    "write: 1 call by ? (2000000001) took 0.5 us",
                    "x=\"300.00\" y=\"58\" width=\"600.00\""
                ),
                (
                    "openat: 1 call by ? (2000000001) took 0.2 us",
                    "x=\"900.00\" y=\"58\" width=\"300.00\""
                ),
            ]
        );
    }

    #[test]
    fn nothing_that_a_program_chose_becomes_markup() {
        let mut picture = Picture::default();
        picture.tell(&began(FIRST, FIRST, 0), Moment::NONE);
        call(&mut picture, FIRST, 0, 0, 100);
        let process = picture.processes.get_mut(&FIRST).expect("it began");
        process.name = "</svg><script>\u{1b}[31m'\"&".to_owned();
        let svg = picture.svg("<x>");
        assert!(svg.contains("&lt;/svg&gt;&lt;script&gt;\u{fffd}[31m&#39;&quot;&amp; (2000000000)"));
        assert!(!svg.contains("<script") && !svg.contains('\u{1b}') && !svg.contains("<x>"));
        assert_eq!(svg.matches("</svg>").count(), 1);
    }

    #[test]
    fn there_are_not_more_processes_than_can_be_drawn() {
        let mut picture = Picture::default();
        let most = MAX_PROCESSES as i32 + 10;
        for n in 0..most {
            let by = if n == 0 { 0 } else { FIRST + n - 1 };
            picture.tell(&began(FIRST + n, FIRST + n, by), Moment::NONE);
        }
        call(&mut picture, FIRST + most - 1, 0, 0, 100);
        assert_eq!(picture.processes.len(), MAX_PROCESSES);
        let svg = picture.svg("bomb");
        // What the last ones did is in the last that is told apart, and not every generation is drawn.
        assert!(svg.lines().count() < MAX_DEPTH + 10 && svg.contains("started 0.1 us"));
    }
}
