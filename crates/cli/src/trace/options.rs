//! What a command line of `fleetgate trace` asks for, read once. It starts nothing.

use crate::flags::Arguments;
use fleetgate_trace::decode::Limits;
use fleetgate_trace::expression::{self, Decoded, Expressions, Quiet, Status};
use fleetgate_trace::follow::Follow;
use fleetgate_trace::path_filter::PathFilter;
use fleetgate_trace::report::decoded::{AsJson, AsText, Choice};
use fleetgate_trace::report::events::{EventOptions, Events};
use fleetgate_trace::report::lines::{Announce, Lines, Prefix, Statuses, Style};
use fleetgate_trace::report::output::{Output, Target};
use fleetgate_trace::report::stamp::{Day, Stamp};
use fleetgate_trace::report::sums::Sort;
use fleetgate_trace::report::{Log, Silent};
use fleetgate_trace::run::Wanted;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// Processes that one command attaches to.
pub const MAX_ATTACHED: usize = 256;

/// What is traced, or done instead.
#[derive(Debug, PartialEq)]
pub enum Subject {
    /// A program and its arguments.
    Command(Vec<OsString>),
    /// What runs already.
    Processes(Vec<i32>),
    /// Nothing: the filter is shown.
    Filter,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Command(words) => {
                let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
                f.write_str(&words.join(" "))
            }
            Subject::Processes(pids) => {
                let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
                write!(f, "process {}", pids.join(", "))
            }
            Subject::Filter => f.write_str("the filter"),
        }
    }
}

/// The table at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summed {
    /// The clock's time, not the processor's.
    pub wall: bool,
    /// By what it is sorted.
    pub sort: Sort,
    /// And nothing else.
    pub only: bool,
}

/// All of it.
pub struct TraceOptions {
    /// What is traced.
    pub subject: Subject,
    /// What all `-e` say.
    pub expressions: Expressions,
    /// Whom else.
    pub follow: Follow,
    /// By user notification.
    pub notify: bool,
    /// By a filter that is put into it.
    pub inject: bool,
    /// Results are asked for.
    pub results: bool,
    /// Where it is written.
    pub target: Target,
    /// As JSON.
    pub json: bool,
    /// Globs for paths of which one has to fit; empty: none has to.
    pub paths: Vec<Vec<u8>>,
    /// In how much detail.
    pub detail: Choice,
    /// Of sockets their addresses.
    pub addresses: bool,
    /// How lines look.
    pub style: Style,
    /// The table at the end.
    pub sums: Option<Summed>,
    /// The picture's file.
    pub svg: Option<PathBuf>,
    /// What is set or taken from the environment.
    pub environment: Vec<(OsString, Option<OsString>)>,
}

impl TraceOptions {
    /// Reads it.
    ///
    /// # Errors
    /// Things that do not go together, or mean nothing.
    pub fn read(given: &Arguments) -> Result<TraceOptions, String> {
        let expressions = expressions(given)?;
        let subject = subject(given)?;
        let attaches = matches!(subject, Subject::Processes(_));
        let notify = given.has("no-ptrace") || given.has("inject");
        if given.has("inject") && !attaches {
            return Err("--inject puts a filter into what runs already: name it with -p PID".to_owned());
        }
        if given.has("no-ptrace") && attaches && !given.has("inject") {
            return Err("-p without ptrace needs --inject, which puts a filter into the process".to_owned());
        }
        let follows = given.values("follow-forks").count();
        let follow = match given.value("follow") {
            Some(whom) => whom.parse().map_err(|e| format!("--follow: {e}"))?,
            None if follows > 0 => Follow::All,
            None => Follow::None,
        };
        let target = match given.value("output") {
            Some(file) => Target::parse(file, follows > 1, given.has("output-append-mode")),
            None if given.has("output-append-mode") => {
                return Err("-A appends to the file that -o names: -o is missing".to_owned());
            }
            None => Target::Stderr,
        };
        let only = given.has("summary-only");
        let sums = (only || given.has("summary")).then(|| Summed {
            wall: given.has("summary-wall-clock"),
            sort: given
                .value("summary-sort-by")
                .and_then(Sort::parse)
                .unwrap_or_default(),
            only,
        });
        let (paths, addresses) = match given.values("decode-fds").count() {
            0 => (
                expressions.decode.has(Decoded::Path),
                expressions.decode.has(Decoded::Socket),
            ),
            count => (true, count > 1),
        };
        let mut limits = Limits {
            string: given.number("string-limit").unwrap_or(32) as usize,
            descriptors: paths || addresses,
            ..Limits::default()
        };
        if given.has("no-abbrev") {
            limits.abbreviate = false;
            limits.list = Limits::MOST;
        }
        let detail = Choice::new(limits, expressions.raw.clone(), expressions.abbreviated.clone());
        let results = !given.has("no-results") && !notify;
        let mut options = TraceOptions {
            style: style(given, &expressions, &subject, &target, &follow)?,
            subject,
            expressions,
            follow,
            notify,
            inject: given.has("inject"),
            results,
            target,
            json: given.has("json"),
            paths: given.values("trace-path").map(|glob| glob.into()).collect(),
            detail,
            addresses,
            sums,
            svg: given.value("svg").map(PathBuf::from),
            environment: environment(given)?,
        };
        options.style.results = results;
        if !results && options.style.statuses != Statuses::ALL {
            return Err(
                "which calls fail is known from their results: -z, -Z and status= need ptrace, without --no-results"
                    .to_owned(),
            );
        }
        Ok(options)
    }

    /// Who writes down what happens.
    pub fn log(&self, output: Output) -> Box<dyn Log> {
        match self.sums {
            Some(sums) if sums.only => Box::new(Silent(output)),
            _ if self.json => {
                let shown = EventOptions {
                    signals: self.style.signals.clone(),
                    statuses: self.style.statuses,
                    ends: self.style.ends,
                    results: self.results,
                    instruction: self.style.instruction,
                };
                Box::new(Events::new(AsJson(self.detail.clone()), shown, output))
            }
            _ => Box::new(Lines::new(
                AsText(self.detail.clone()),
                self.style.clone(),
                output,
            )),
        }
    }

    /// Which calls are wanted beyond what the kernel selects.
    pub fn wanted(&self) -> Box<dyn Wanted> {
        match self.paths.is_empty() {
            true => Box::new(self.expressions.trace.clone()),
            false => Box::new(PathFilter::new(
                self.expressions.trace.clone(),
                self.paths.clone(),
            )),
        }
    }
}

fn expressions(given: &Arguments) -> Result<Expressions, String> {
    let mut all = Expressions::default();
    for text in given.values("expression") {
        let expression = expression::expression(text).map_err(|wrong| format!("-e: {wrong}"))?;
        all.take(expression);
    }
    Ok(all)
}

fn subject(given: &Arguments) -> Result<Subject, String> {
    let mut pids = Vec::new();
    for list in given.values("attach") {
        // As pidof prints them, and as people write them.
        for word in list.split([',', ' ', '\n', '\t']).filter(|w| !w.is_empty()) {
            match word.parse() {
                Ok(pid) if pid > 0 => pids.push(pid),
                _ => return Err(format!("-p: `{word}` is not the id of a process")),
            }
        }
    }
    if pids.len() > MAX_ATTACHED {
        return Err(format!(
            "-p: {} processes; {MAX_ATTACHED} is the most at once",
            pids.len()
        ));
    }
    let command = given.operands.clone();
    match (given.has("show-filter"), pids.is_empty(), command.is_empty()) {
        (true, true, true) => Ok(Subject::Filter),
        (true, ..) => Err("--show-filter runs nothing: leave the rest away".to_owned()),
        (false, true, false) => Ok(Subject::Command(command)),
        (false, false, true) => Ok(Subject::Processes(pids)),
        (false, true, true) => Err("what is to be traced? a COMMAND, or -p PID".to_owned()),
        (false, false, false) => Err("a COMMAND or -p PID, not both".to_owned()),
    }
}

fn style(
    given: &Arguments,
    expressions: &Expressions,
    subject: &Subject,
    target: &Target,
    follow: &Follow,
) -> Result<Style, String> {
    let quiet = given.values("quiet").count();
    let says = |from: usize, message| quiet < from && !expressions.quiet.has(message);
    let day = match given.values("absolute-timestamps").count() {
        0 => Day::No,
        1 => Day::Seconds,
        2 => Day::Micros,
        _ => Day::Unix,
    };
    let (successful, failed) = (given.has("successful-only"), given.has("failed-only"));
    if successful && failed {
        return Err("-z and -Z together leave nothing: one of them".to_owned());
    }
    let status = |status| expressions.status.has(status);
    let mut statuses = Statuses {
        successful: status(Status::Successful),
        failed: status(Status::Failed),
        unfinished: status(Status::Unfinished),
        unavailable: status(Status::Unavailable),
        detached: status(Status::Detached),
    };
    if successful || failed {
        statuses = Statuses {
            successful,
            failed,
            ..Statuses::NONE
        };
    }
    let several = *follow != Follow::None || matches!(subject, Subject::Processes(pids) if pids.len() > 1);
    let attaches = matches!(subject, Subject::Processes(_));
    Ok(Style {
        column: given.number("columns").unwrap_or(40) as usize,
        stamp: Stamp::new(day, given.has("relative-timestamps")),
        spent: given.has("syscall-times"),
        instruction: given.has("instruction-pointer"),
        prefix: match target {
            Target::Stderr => Prefix::Several,
            Target::Each(_) => Prefix::Never,
            Target::File(..) | Target::Command(_) if several => Prefix::Always,
            Target::File(..) | Target::Command(_) => Prefix::Never,
        },
        announce: match target {
            _ if !says(1, Quiet::Attach) => Announce::No,
            Target::Stderr => Announce::Among,
            // As strace: with a program of its own and a file nobody wants to be told on the terminal.
            _ if !attaches => Announce::No,
            _ => Announce::Beside,
        },
        attaches,
        ends: says(2, Quiet::Exit),
        signals: (1..=64)
            .any(|n| !expressions.signals.has(n))
            .then(|| (1..=64).filter(|n| expressions.signals.has(*n)).collect()),
        statuses,
        results: true,
    })
}

fn environment(given: &Arguments) -> Result<Vec<(OsString, Option<OsString>)>, String> {
    let one = |text: &str| match text.split_once('=') {
        Some(("", _)) => Err(format!("-E: `{text}` has no name before `=`")),
        Some((name, value)) => Ok((name.into(), Some(value.into()))),
        None => Ok((text.into(), None)),
    };
    given.values("env").map(one).collect()
}
