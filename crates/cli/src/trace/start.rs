//! Starting what is traced, or attaching to it: which way calls are caught follows from the command line.

use super::options::{Subject, TraceOptions};
use crate::cluster::is_root;
use fleetgate_calls::filter::{self, Answers, Program};
use fleetgate_calls::guardian::{Guardian, Image};
use fleetgate_calls::select::Selection;
use fleetgate_sys::Fd;
use fleetgate_sys::spawn::Strings;
use fleetgate_sys::traced::Start;
use fleetgate_trace::catch::inject::inject;
use fleetgate_trace::catch::notify::Notify;
use fleetgate_trace::catch::ptrace::{Launch, Ptrace, needs};
use fleetgate_trace::catch::{Catch, End, program};
use fleetgate_trace::follow::Follow;
use fleetgate_trace::relatives::Relatives;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// How it is traced.
pub enum Way {
    /// By ptrace.
    Ptrace(Box<Ptrace>),
    /// By user notification.
    Notify(Box<Notify>),
}

impl Way {
    /// What the loop drives.
    pub fn catch(&mut self) -> &mut dyn Catch {
        match self {
            Way::Ptrace(catch) => &mut **catch,
            Way::Notify(catch) => &mut **catch,
        }
    }

    /// How the first process ended, even where nobody was told.
    pub fn end(&self) -> Option<End> {
        match self {
            Way::Ptrace(catch) => catch.end(),
            Way::Notify(_) => None,
        }
    }

    /// A descriptor that ends its waits.
    pub fn wake_by(&mut self, fd: &Fd) {
        if let Way::Notify(catch) = self {
            catch.wake_by(fd);
        }
    }
}

/// What runs now under a tracer.
pub struct Started {
    /// How its calls are caught.
    pub way: Way,
    /// The process whose end is the command's own.
    pub first: Option<i32>,
    /// Whose calls are wanted, where everybody's come.
    pub relatives: Option<Relatives>,
    /// What is otherwise than one would think.
    pub notes: Vec<String>,
}

/// Starts it, or attaches to it.
///
/// # Errors
/// It cannot be traced, or not in this way.
pub fn start(options: &TraceOptions) -> Result<Started, String> {
    let filter = filter(options)?;
    match &options.subject {
        Subject::Command(words) if options.notify => notified(options, words, &filter),
        Subject::Command(words) => launched(options, words, &filter),
        Subject::Processes(pids) if options.inject => injected(options, pids, &filter),
        Subject::Processes(pids) => Ok(Started {
            way: Way::Ptrace(Box::new(Ptrace::attach(pids, options.follow.clone())?)),
            first: None,
            relatives: None,
            notes: Vec::new(),
        }),
        Subject::Filter => Err("nothing is to be run".to_owned()),
    }
}

/// The filter that a program carries.
///
/// # Errors
/// The kernel would not take it.
pub fn filter(options: &TraceOptions) -> Result<Program, String> {
    let mut calls = options.expressions.trace.clone();
    if !options.notify {
        for (call, when) in needs() {
            calls.add(call, when);
        }
    }
    let answers = match options.notify {
        true => Answers::notify(),
        false => Answers::trace(0),
    };
    filter::compile(&calls, &answers).map_err(|e| format!("-e: {e}"))
}

/// A program by its path, with what it is started with.
struct Words {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Words {
    fn of(options: &TraceOptions, words: &[OsString]) -> Result<Words, String> {
        let name = words.first().map(|w| w.as_bytes()).unwrap_or_default();
        let environment = environment(options);
        let path = environment.iter().find(|(name, _)| name == "PATH");
        let path = program::find(name, path.map(|(_, value)| value.as_bytes()))?;
        let argument = |word: &OsString| {
            CString::new(word.as_bytes()).map_err(|_| "an argument has a zero byte".to_owned())
        };
        let variable = |(name, value): &(OsString, OsString)| {
            let mut line = name.clone().into_vec();
            line.push(b'=');
            line.extend_from_slice(value.as_bytes());
            CString::new(line).ok()
        };
        Ok(Words {
            path,
            arguments: words.iter().map(argument).collect::<Result<_, _>>()?,
            environment: environment.iter().filter_map(variable).collect(),
        })
    }
}

fn launched(options: &TraceOptions, words: &[OsString], filter: &Program) -> Result<Started, String> {
    let words = Words::of(options, words)?;
    // A filter would save nothing then, and would cost an ordinary user's program its setuid bits.
    let everything = options.results && options.expressions.trace == Selection::everything();
    let catch = Ptrace::launch(Launch {
        path: &words.path,
        arguments: words.arguments,
        environment: words.environment,
        filter: if everything { &[] } else { filter.instructions() },
        wanted: Some(options.expressions.trace.clone()),
        follow: options.follow.clone(),
        may_suspend: is_root() && options.follow != Follow::All,
    })?;
    let mut notes = Vec::new();
    if catch.gave_up_privileges() {
        notes.push(
            "the kernel takes an ordinary user's filter only with no_new_privs: programs with the setuid bit run without \
             it; trace as root, or every call, to keep it"
                .to_owned(),
        );
    }
    Ok(Started {
        first: catch.first(),
        way: Way::Ptrace(Box::new(catch)),
        relatives: None,
        notes,
    })
}

fn notified(options: &TraceOptions, words: &[OsString], filter: &Program) -> Result<Started, String> {
    let words = Words::of(options, words)?;
    let argv = Strings::new(words.arguments.iter().map(CString::as_c_str));
    let envp = Strings::new(words.environment.iter().map(CString::as_c_str));
    let start = Start {
        path: &words.path,
        argv: &argv,
        envp: &envp,
        filter: filter.instructions(),
        flags: 0,
    };
    let guardian = Guardian::start(&Image::own(), None);
    let mut catch =
        Notify::start(&start, guardian).map_err(|e| format!("{}: {e}", words.path.to_string_lossy()))?;
    let notes = catch.notes().iter().map(ToString::to_string).collect();
    Ok(Started {
        first: catch.pid(),
        way: Way::Notify(Box::new(catch)),
        relatives: relatives(options)?,
        notes,
    })
}

fn injected(options: &TraceOptions, pids: &[i32], filter: &Program) -> Result<Started, String> {
    let [pid] = pids else {
        return Err("--inject puts a filter into one process: name one with -p".to_owned());
    };
    let guardian = Guardian::start(&Image::own(), None).map_err(|e| e.to_string())?;
    let (mut catch, injection) =
        inject(*pid, filter.instructions(), guardian).map_err(|e| format!("process {pid}: {e}"))?;
    let mut notes: Vec<String> = catch.notes().iter().map(ToString::to_string).collect();
    let said = notes.iter().any(|note| note.contains("no_new_privs"));
    if injection.no_new_privileges && !said {
        notes.push(format!("process {pid} has no_new_privs now, for good"));
    }
    notes.push(format!(
        "process {pid} stood still for {} us; its filter stays until it ends, and a guardian answers for it",
        injection.nanos / 1000
    ));
    Ok(Started {
        first: None,
        way: Way::Notify(Box::new(catch)),
        relatives: relatives(options)?,
        notes,
    })
}

fn relatives(options: &TraceOptions) -> Result<Option<Relatives>, String> {
    match &options.follow {
        Follow::All => Ok(None),
        Follow::Exec(_) => Err("--follow exec=GLOB needs ptrace, which sees programs change".to_owned()),
        follow => Ok(Some(Relatives::new(follow.clone()))),
    }
}

/// This process's own, with what -E changes.
fn environment(options: &TraceOptions) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    for (name, value) in &options.environment {
        let at = all.iter().position(|(known, _)| known == name);
        match (at, value) {
            (Some(at), Some(value)) => all[at].1.clone_from(value),
            (Some(at), None) => drop(all.remove(at)),
            (None, Some(value)) => all.push((name.clone(), value.clone())),
            (None, None) => {}
        }
    }
    all
}
