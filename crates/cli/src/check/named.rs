//! `check list` and `check test`: which named commands there are, here or on a node, and whether they work here.

use crate::account;
use crate::flags::{Arguments, Outcome};
use crate::images;
use crate::node::configuration;
use crate::output::{json_line, print, table};
use fleetgate_base::own;
use fleetgate_checks::plugin::{self, Listing, Place, Secret, Values};
use fleetgate_launch::{Launch, LaunchThreads, RunningHelper, Threads, local};
use fleetgate_node::config::Config;
use fleetgate_policy::cluster::listing::{self, Reader};
use fleetgate_policy::commands::{Command, Commands, NamedCommand};
use fleetgate_policy::{Rule, text};
use fleetgate_seal::{FallbackChain, Options, Source};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::{Fd, file, poll};
use fleetgate_wire::common::{Account, Variable};
use fleetgate_wire::exec::{Exec, Program};
use fleetgate_wire::order::{Role, Work};
use serde_json::json;
use std::error::Error;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// What a check is that did not end as checks do.
const UNKNOWN: i32 = 3;
/// How long what a killed command wrote may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// `check list`
pub fn list(given: &Arguments) -> Outcome {
    let Some(node) = given.word() else {
        for flag in ["login", "container", "address", "home"] {
            if given.value(flag).is_some() {
                return Err(given
                    .wrong(format!("--{flag} is for a node: name it, or leave the flag out"))
                    .into());
            }
        }
        let commands = commands(given)?;
        return print(&match given.has("json") {
            true => listing::json_lines(&commands, Reader::Administrator),
            false => listing::table(&commands, Reader::Administrator),
        });
    };
    if given.value("config").is_some() {
        return Err(given
            .wrong("--config is for this machine's commands: leave it or the node out")
            .into());
    }
    let place = Place {
        node,
        container: given.value("container"),
        login: given.value("login"),
        address: given.value("address"),
        home: given.value("home"),
    };
    plugin::list(&place, Listing::Commands, given.has("json"), "")
        .map_err(|why| given.wrong(why.to_string()).into())
}

/// `check test`
pub fn test(given: &Arguments) -> Outcome {
    let commands = commands(given)?;
    match given.word() {
        None => test_all(given, &commands),
        Some(name) => test_one(given, &commands, name),
    }
}

/// Those of this machine's configuration.
fn commands(given: &Arguments) -> Result<Commands, Box<dyn Error>> {
    let path = configuration(given);
    let config = Config::load(&path)?;
    let mut commands = Commands::new();
    for (name, entry) in &config.commands {
        let added = entry.define().and_then(|command| commands.add(name, command));
        added.map_err(|why| format!("{}: `commands.{name}`: {why}", path.display()))?;
    }
    Ok(commands)
}

/// What can be seen of each without running it.
fn test_all(given: &Arguments, commands: &Commands) -> Outcome {
    let found: Vec<(&str, Option<String>)> = commands
        .iter()
        .map(|(name, command)| (name, problem(command).err().map(|why| why.to_string())))
        .collect();
    let is_good = found.iter().all(|(_, problem)| problem.is_none());
    if given.has("json") {
        let line = |(name, problem): &(&str, Option<String>)| {
            json_line(&json!({ "name": name, "good": problem.is_none(), "problem": problem }))
        };
        print(&found.iter().map(line).collect::<String>())?;
    } else if found.is_empty() {
        print("There are no named commands in the configuration.\n")?;
    } else {
        let row = |(name, problem): &(&str, Option<String>)| {
            let problem = problem.as_deref().unwrap_or("good");
            [(*name).to_owned(), problem.to_owned()]
        };
        print(&table(
            &["NAME", "RESULT"],
            &found.iter().map(row).collect::<Vec<_>>(),
        ))?;
    }
    Ok(i32::from(!is_good))
}

/// The program can be run, and nobody but root can put another in its place; and there is the account.
fn problem(command: &Command) -> Result<(), Box<dyn Error>> {
    let program = Path::new(command.program());
    let about = std::fs::metadata(program).map_err(|e| format!("{}: {e}", program.display()))?;
    if !about.is_file() || about.mode() & 0o111 == 0 {
        return Err(format!("{}: it is no program: chmod +x it?", program.display()).into());
    }
    for path in program.ancestors() {
        own::unchanged(path)?;
    }
    match command.user() {
        Some(user) if account::named(user.as_str())?.is_none() => Err(format!(
            "its account {user} is not in /etc/passwd: make it, unless a directory has it"
        )
        .into()),
        _ => Ok(()),
    }
}

/// Runs one as the node would: its account, its variables, its time, its output.
fn test_one(given: &Arguments, commands: &Commands, name: &str) -> Outcome {
    if given.has("json") {
        return Err(given
            .wrong("--json is for a test of all commands: leave it or the name out")
            .into());
    }
    let words: Vec<String> = given.operands[1..]
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let rule = Rule::new(configuration(given).display().to_string());
    let command = commands.with_arguments(name, &words, &rule)?;
    let secrets = secrets(given, &command)?;
    let account = account_of(given, &command)?;
    let config = Config::load(&configuration(given))?;
    let mut set = Vec::new();
    let environment = config
        .set_env
        .iter()
        .chain(command.environment.iter().map(|(n, v)| (n, v)));
    for (name, value) in environment {
        set.push(variable(name.as_bytes(), value.as_bytes())?);
    }
    for secret in secrets.variables() {
        set.push(variable(&secret.name, &secret.value)?);
    }
    let as_whom = account.name.to_string_lossy().into_owned();
    let mut order = Exec::new(
        local::session_id(),
        account,
        Program::Direct {
            argv: argv(&command)?,
        },
    );
    order.environment.set = set;
    let begun = Instant::now();
    let (exit, cut) = run(order, &command)?;
    let took = begun.elapsed();
    let mut words = match exit {
        Some(Exit::Code(code)) => format!("exit code {code} ({})", state(code)),
        Some(Exit::Signal { number, .. }) => format!("ended by signal {number}"),
        None => format!(
            "ended after its `timeout`, {} s",
            command.limits.timeout.unwrap_or_default().as_secs_f64()
        ),
    };
    if let Some(more) = cut {
        words += &format!("; {more} bytes of output beyond its `output` were left out");
    }
    eprintln!(
        "{}",
        text::printable(&format!(
            "{name}, as {as_whom}: {words}; it took {} ms",
            took.as_millis()
        ))
    );
    Ok(match exit {
        Some(Exit::Code(code)) => code,
        _ => UNKNOWN,
    })
}

fn state(code: i32) -> &'static str {
    match code {
        0 => "OK",
        1 => "WARNING",
        2 => "CRITICAL",
        3 => "UNKNOWN",
        _ => "no state of a check",
    }
}

fn secrets(given: &Arguments, command: &NamedCommand) -> Result<Values, Box<dyn Error>> {
    let mut secrets = Vec::new();
    for pair in given.values("secret") {
        let (name, file) = pair.split_once('=').unwrap_or((pair, ""));
        if !command.secrets.iter().any(|secret| secret == name) {
            return Err(format!("the command {:?} has no secret {name:?}", command.name).into());
        }
        secrets.push(Secret {
            name: name.to_owned(),
            file: file.into(),
        });
    }
    let is_given = |name: &&String| secrets.iter().any(|secret| secret.name == **name);
    match command.secrets.iter().find(|name| !is_given(name)) {
        Some(missing) => {
            Err(format!("the command needs its secret {missing}: --secret {missing}=FILE").into())
        }
        None => Ok(Values::read(&secrets)?),
    }
}

/// Whose program it is: its own account's, the one that a client would log in as, or ours.
fn account_of(given: &Arguments, command: &NamedCommand) -> Result<Account, Box<dyn Error>> {
    let own = account::own()?;
    let name = match (&command.user, given.value("login")) {
        (Some(user), Some(login)) if user.as_str() != login => {
            return Err(given
                .wrong(format!("it runs as {user} whoever logs in: leave --login out"))
                .into());
        }
        (Some(user), _) => user.as_str(),
        (None, Some(login)) => login,
        (None, None) => {
            if own.ids.uid == 0 {
                eprintln!(
                    "note: it runs as root here. On the node it runs as the account that logs in: --login ACCOUNT"
                );
            }
            return Ok(own);
        }
    };
    if own.name.to_bytes() == name.as_bytes() {
        return Ok(own);
    }
    if own.ids.uid != 0 {
        return Err(
            format!("it is to run as {name}, and only root can do that: become root or {name}").into(),
        );
    }
    account::named(name)?.ok_or_else(|| {
        format!("{name} is not in /etc/passwd: run this as {name}, if a directory has the account").into()
    })
}

/// Runs it; its exit, none where its time was over, and how much of its output was left out.
fn run(order: Exec, command: &NamedCommand) -> Result<(Option<Exit>, Option<u64>), Box<dyn Error>> {
    let uid = order.account.ids.uid;
    let source = images::SESSION.as_ref().map_or(Source::Itself, Source::Embedded);
    let chain = FallbackChain::open(source, Options::default())?;
    let threads = LaunchThreads::new(Arc::new(chain), Threads::default())?;
    let null = File::open("/dev/null")?;
    let (output, stdout) = file::pipe().map_err(|e| format!("a pipe: {e}"))?;
    let (errors, stderr) = file::pipe().map_err(|e| format!("a pipe: {e}"))?;
    let streams = vec![
        (Role::Stdin, Fd::from(OwnedFd::from(null))),
        (Role::Stdout, stdout),
        (Role::Stderr, stderr),
    ];
    let (running, _) = threads.launch(Launch::new(Work::Exec(order), streams))?;
    let most = command.limits.output.unwrap_or(u64::MAX);
    let output = thread::spawn(move || pass_on(output, io::stdout(), most));
    let errors = thread::spawn(move || pass_on(errors, io::stderr(), most));
    let exit = wait(&running, uid, command.limits.timeout)?;
    let patience = Instant::now() + LAST_WORDS;
    // What it left in the background may hold the pipes for as long as it likes.
    while !(output.is_finished() && errors.is_finished()) && Instant::now() < patience {
        thread::sleep(Duration::from_millis(1));
    }
    let left_out: u64 = [output, errors]
        .into_iter()
        .filter(thread::JoinHandle::is_finished)
        .filter_map(|thread| thread.join().ok())
        .sum();
    Ok((exit, (left_out > 0).then_some(left_out)))
}

/// Waits for its end, at most so long; then it is killed, with its process group.
fn wait(running: &RunningHelper, uid: u32, time: Option<Duration>) -> Result<Option<Exit>, Box<dyn Error>> {
    let mut watch = [poll::Watch::new(running.pidfd.raw(), poll::READ)];
    let ended =
        poll::poll(&mut watch, time.map(poll::milliseconds)).map_err(|e| format!("waiting for it: {e}"))?;
    if ended == 0 {
        let _ = process::signal_group_as(&running.pidfd, running.pid, process::SIGKILL, uid);
    }
    let exit = process::wait(&running.pidfd, true).map_err(|e| format!("waiting for it: {e}"))?;
    Ok(exit.filter(|_| ended > 0))
}

/// Passes on what it says, up to a bound; how much was beyond it.
fn pass_on(from: Fd, mut to: impl Write, most: u64) -> u64 {
    let from = File::from(OwnedFd::from(from));
    let _ = io::copy(&mut (&from).take(most), &mut to);
    let _ = to.flush();
    io::copy(&mut &from, &mut io::sink()).unwrap_or(0)
}

fn argv(command: &NamedCommand) -> Result<Vec<CString>, Box<dyn Error>> {
    let words = command.argv.iter().map(|word| CString::new(word.as_slice()));
    Ok(words.collect::<Result<_, _>>()?)
}

fn variable(name: &[u8], value: &[u8]) -> Result<Variable, Box<dyn Error>> {
    Ok(Variable {
        name: CString::new(name)?,
        value: CString::new(value)?,
    })
}
