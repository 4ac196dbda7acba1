//! Labels whose values commands say: each is run now and then as the node's unprivileged user, and the first line that it
//! prints is the value. One that fails, or takes too long, leaves the label as it was.

use super::timers::Timer;
use super::tools::Tools;
use super::wakes::{Key, Owner};
use crate::config::LabelCommand;
use fleetgate_launch::Launch;
use fleetgate_launch::LaunchOutcome;
use fleetgate_sys::file::{self, flags, pipe};
use fleetgate_sys::poll::READ;
use fleetgate_sys::{Errno, Fd, process};
use fleetgate_wire::common::{Account, Ids};
use fleetgate_wire::exec::{Exec, Program};
use fleetgate_wire::order::{Role, Work};
use std::ffi::CString;

/// The most bytes that are read of what a command prints; a value is shorter.
const MAX_LINE: usize = 1024;

/// All of them.
#[derive(Debug, Default)]
pub struct LabelCommands {
    all: Vec<One>,
    account: Option<Account>,
    /// Counts up when they are others: what is still on its way for the ones before is not taken.
    round: u64,
}

#[derive(Debug)]
struct One {
    key: String,
    command: LabelCommand,
    due: Option<Timer>,
    run: Option<Run>,
    /// What came of its launch is not known yet.
    launching: bool,
    /// It failed, and that was said.
    told: bool,
}

/// One that runs.
#[derive(Debug)]
struct Run {
    output: Fd,
    pidfd: Option<Fd>,
    printed: Vec<u8>,
    late: Timer,
}

/// What a wake-up is about; the low bits of a key's id. 0 is the cluster's own.
#[derive(Clone, Copy)]
#[repr(u64)]
enum About {
    Due = 1,
    Printed = 2,
    Late = 3,
}

const ABOUT_BITS: u32 = 2;
const INDEX_BITS: u32 = 8;

/// What a command said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The label.
    pub key: String,
    /// The value.
    pub value: String,
}

impl LabelCommands {
    /// Ends them: nobody asks for labels any more.
    pub fn end(&mut self, tools: &mut Tools) {
        for at in 0..self.all.len() {
            self.finish(tools, at);
            if let Some(timer) = self.all[at].due.take() {
                tools.timers.cancel(timer);
            }
        }
        self.all.clear();
        self.round += 1;
    }

    /// Those of this configuration take the place of the ones before, and are run at once. `ids`: as whom.
    pub fn replace(&mut self, tools: &mut Tools, ids: (u32, u32)) {
        self.end(tools);
        self.account = Some(account(&tools.config.user, ids));
        let commands = tools.config.label_commands.clone();
        self.all = commands
            .into_iter()
            .map(|(key, command)| One {
                key,
                command,
                due: None,
                run: None,
                launching: false,
                told: false,
            })
            .collect();
        for at in 0..self.all.len() {
            self.run(tools, at);
        }
    }

    /// A descriptor or a timer of theirs; what a command said.
    pub fn woken(&mut self, tools: &mut Tools, id: u64) -> Option<Value> {
        let (at, about) = self.parts(id)?;
        match about {
            1 => self.run(tools, at),
            2 => return self.printed(tools, at),
            _ => {
                self.failed(tools, at, "it took too long");
                self.finish(tools, at);
            }
        }
        None
    }

    /// A command runs, or does not.
    pub fn launched(&mut self, tools: &mut Tools, id: u64, outcome: LaunchOutcome) {
        let at = self.parts(id).map(|(at, _)| at);
        if let Some(at) = at {
            self.all[at].launching = false;
        }
        let run = at.and_then(|at| self.all[at].run.as_mut());
        match (outcome, run) {
            (Ok((running, _)), Some(run)) => run.pidfd = Some(running.pidfd),
            (Ok((running, _)), None) => {
                let _ = running.signal(process::SIGKILL);
                tools.zombies.take(running.pidfd);
            }
            (Err(e), Some(_)) => {
                let at = at.unwrap_or_default();
                self.failed(tools, at, &e.to_string());
                self.finish(tools, at);
            }
            (Err(_), None) => {}
        }
    }

    fn run(&mut self, tools: &mut Tools, at: usize) {
        let every = self.all[at].command.every.0;
        self.all[at].due = Some(tools.timers.after(every, self.key(at, About::Due)));
        if let Err(why) = self.try_run(tools, at) {
            self.failed(tools, at, &why);
        }
    }

    fn try_run(&mut self, tools: &mut Tools, at: usize) -> Result<(), String> {
        let Some(account) = self.account.clone() else {
            return Ok(());
        };
        if self.all[at].run.is_some() || self.all[at].launching {
            return Ok(());
        }
        let one = &self.all[at];
        let argv = one.command.command.iter();
        let argv = argv.filter_map(|word| CString::new(word.as_str()).ok()).collect();
        let id = [[0; 8], (at as u64 + 1).to_be_bytes()].concat();
        let id = id.try_into().map_err(|_| "no session id".to_owned())?;
        let order = Exec::new(id, account, Program::Direct { argv });
        let failed = |e: Errno| e.to_string();
        let (output, stdout) = pipe().map_err(failed)?;
        output.set_nonblocking(true).map_err(failed)?;
        let null = |mode| file::openat(file::CWD, c"/dev/null", mode, 0).map_err(failed);
        let fds: Vec<(Role, Fd)> = vec![
            (Role::Stdin, null(flags::O_RDONLY)?),
            (Role::Stdout, stdout),
            (Role::Stderr, null(flags::O_WRONLY)?),
        ];
        let launch = Launch {
            deadline: one.command.timeout.0,
            ..Launch::new(Work::Exec(order), fds)
        };
        tools
            .wakes
            .watch(&output, READ, self.key(at, About::Printed))
            .map_err(failed)?;
        let late = tools
            .timers
            .after(one.command.timeout.0, self.key(at, About::Late));
        let launched = tools.launches.submit(launch, self.key(at, About::Due));
        self.all[at].run = Some(Run {
            output,
            pidfd: None,
            printed: Vec::new(),
            late,
        });
        self.all[at].launching = launched.is_ok();
        launched.map_err(|e| {
            self.finish(tools, at);
            e.to_string()
        })
    }

    /// It printed something, or ended.
    fn printed(&mut self, tools: &mut Tools, at: usize) -> Option<Value> {
        let run = self.all[at].run.as_mut()?;
        let mut chunk = [0; MAX_LINE];
        let is_over = match file::read(run.output.raw(), &mut chunk) {
            Err(Errno::EAGAIN) => return None,
            Ok(0) | Err(_) => true,
            Ok(n) => {
                run.printed.extend_from_slice(&chunk[..n]);
                run.printed.contains(&b'\n') || run.printed.len() >= MAX_LINE
            }
        };
        if !is_over {
            return None;
        }
        let line = first_line(&run.printed);
        self.finish(tools, at);
        match line {
            Ok(value) => {
                self.all[at].told = false;
                Some(Value {
                    key: self.all[at].key.clone(),
                    value,
                })
            }
            Err(why) => {
                self.failed(tools, at, why);
                None
            }
        }
    }

    fn failed(&mut self, _: &Tools, at: usize, why: &str) {
        let one = &mut self.all[at];
        if !std::mem::replace(&mut one.told, true) {
            tracing::warn!(
                label = one.key,
                "the command of a label: {why}; the label stays as it is"
            );
        }
    }

    /// What is left of a run: whatever it still does, nobody waits for it.
    fn finish(&mut self, tools: &mut Tools, at: usize) {
        let Some(run) = self.all[at].run.take() else {
            return;
        };
        tools.timers.cancel(run.late);
        tools.wakes.forget(&run.output);
        if let Some(pidfd) = run.pidfd {
            let _ = process::signal(&pidfd, process::SIGKILL);
            tools.zombies.take(pidfd);
        }
    }

    fn key(&self, at: usize, about: About) -> Key {
        let index = (self.round << INDEX_BITS | at as u64) << ABOUT_BITS;
        Key::new(Owner::Cluster, index | about as u64)
    }

    /// Which one of this round, and about what.
    fn parts(&self, id: u64) -> Option<(usize, u64)> {
        let index = id >> ABOUT_BITS;
        let at = (index & ((1 << INDEX_BITS) - 1)) as usize;
        (index >> INDEX_BITS == self.round && at < self.all.len())
            .then_some((at, id & ((1 << ABOUT_BITS) - 1)))
    }
}

/// The first line as a value. What a selector could not ask for is refused where it is set.
fn first_line(printed: &[u8]) -> Result<String, &'static str> {
    let line = printed.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line)
        .map_err(|_| "it printed what is no UTF-8")?
        .trim();
    match line.is_empty() {
        true => Err("it printed nothing"),
        false => Ok(line.to_owned()),
    }
}

fn account(name: &str, (uid, gid): (u32, u32)) -> Account {
    Account {
        name: CString::new(name).unwrap_or_default(),
        ids: Ids {
            uid,
            gid,
            groups: Vec::new(),
        },
        home: c"/".into(),
        shell: c"/bin/sh".into(),
        ageing: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_value() {
        for (printed, want) in [
            (&b"6.1.0\nmore\n"[..], Ok("6.1.0")),
            (b" 6.1.0 ", Ok("6.1.0")),
            (b"", Err("it printed nothing")),
            (b"\nmore", Err("it printed nothing")),
            (b"\xff", Err("it printed what is no UTF-8")),
        ] {
            assert_eq!(first_line(printed), want.map(str::to_owned));
        }
    }
}
