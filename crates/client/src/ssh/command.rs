//! `fleetgate ssh` as a whole: the command line becomes a plan, keys and hosts are gathered, the carrier is chosen. Most
//! sessions are then the master's ([`by_master`]); what happens on a connection of the command's own is the engine's.

use super::by_master::{self, SessionOutcome};
use super::carrier::{ProxyCarrier, TcpCarrier};
use super::login::held_by_agent;
use super::options::{Control, Explain, Invocation, LogLevel, Options, Tty, printed};
use super::x11::Display;
use super::{Credential, Hosts, Plan, ServerMemory, SshError, Strict, Work, exit, terminal};
use crate::background::{self, Starter};
use crate::master_client::{self, ProxyConnector};
use crate::profile::{Home, name_here, of_login};
use crate::prompt::Terminal;
use crate::timings::Timings;
use crate::transport::{DialOptions, ReportHandle};
use crate::waterfall::Waterfall;
use crate::{config, connect, login, stderr};
use bytes::Bytes;
use fleetgate_net::otlp::{Exporter, FinishedSpan};
use fleetgate_policy::pattern::fits;
use fleetgate_policy::text;
use fleetgate_proto::v1::Node;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_ssh::settings::Keepalive;
use ring::rand::{SecureRandom, SystemRandom};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The port of an SSH server that says none.
const SSH_PORT: u16 = 22;
/// The variable that names a collector.
const COLLECTOR: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// How long a collector may hold up the end.
const EXPORT_TIME: Duration = Duration::from_secs(1);
/// Nodes that are shown to choose from, at most.
const MAX_CHOICES: usize = 50;
/// Keys that are looked for in `~/.ssh` where none is named.
const USUAL_KEYS: [&str; 5] = ["id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"];

/// Does what the words behind `fleetgate ssh` say; what `--help` says is `help`'s. The exit code.
pub fn command(words: &[OsString], help: &dyn Fn() -> String) -> i32 {
    act(words, help, None)
}

/// The same, as the second process of `-f`.
pub fn in_background(words: &[OsString]) -> i32 {
    match Starter::find() {
        Ok(starter) => act(words, &String::new, Some(starter)),
        Err(e) => {
            stderr::line(format_args!("standard input: {e}"));
            exit::FAILED
        }
    }
}

fn act(words: &[OsString], help: &dyn Fn() -> String, starter: Option<Starter>) -> i32 {
    let options = match Options::parse(words) {
        Ok(Invocation::Run(options)) => options,
        Ok(Invocation::Help) => {
            print!("{}", help());
            return 0;
        }
        Ok(Invocation::Version) => {
            stderr::write(concat!("fleetgate ", env!("CARGO_PKG_VERSION"), "\n"));
            return 0;
        }
        Err(wrong) => {
            stderr::line(wrong);
            stderr::write("try `fleetgate ssh --help`\n");
            return fleetgate_base::exit::USAGE;
        }
    };
    if options.print {
        print!("{}", text::printable_lines(&printed::lines(&options)));
        return 0;
    }
    if options.background && starter.is_none() {
        return background::start(words);
    }
    if options.level >= LogLevel::Info {
        for note in &options.notes {
            stderr::line(note);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = match options.control {
                Some(control) => runtime.block_on(about_kept(&options, control)),
                None => runtime.block_on(run(&options, starter)),
            };
            // A look-up of a name that hangs holds nobody up.
            runtime.shutdown_background();
            outcome
        }
        Err(e) => Err(SshError::Local(format!("the runtime: {e}"))),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            if is_said(options.level, &error) {
                stderr::line(&error);
            }
            error.code()
        }
    }
}

/// As ssh: -q silences what went wrong on the way, not what is wrong with the way in.
fn is_said(level: LogLevel, error: &SshError) -> bool {
    level >= LogLevel::Error || matches!(error, SshError::Host(_) | SshError::Refused(_))
}

/// `-O`, in ssh's words.
async fn about_kept(options: &Options, control: Control) -> Result<i32, SshError> {
    let home = Home::find(options.home.as_deref())?;
    let local =
        |e: std::io::Error| SshError::Local(format!("{}: {e}", home.file(master_client::SOCKET).display()));
    let words = match control {
        Control::Check => {
            let pid = master_client::status(&home).await.map_err(local)?.pid;
            format!("Master running (pid={pid})")
        }
        Control::Exit => {
            master_client::stop(&home).await.map_err(local)?;
            "Exit request sent.".to_owned()
        }
        Control::Stop => {
            master_client::status(&home).await.map_err(local)?;
            master_client::retire(&home);
            "Stop listening request sent.".to_owned()
        }
    };
    if options.level >= LogLevel::Info {
        stderr::write(format_args!("{words}\n"));
    }
    Ok(0)
}

/// Does what the options say, and leaves it to the caller to say how it came out.
pub(crate) async fn run_options(options: &Options) -> Result<i32, SshError> {
    run(options, None).await
}

async fn run(options: &Options, starter: Option<Starter>) -> Result<i32, SshError> {
    let mut timings = Timings::default();
    let mut report = ReportHandle::default();
    let trace = trace();
    let outcome = match options.direct {
        true => direct(options, starter, &mut timings).await,
        false => through(options, starter, &trace, &mut timings, &mut report).await,
    };
    timings.end();
    export(&timings, &trace).await;
    if let Some(explain) = options.explain {
        let waterfall = Waterfall::new(&timings, &report.snapshot().spans, !options.direct);
        match explain {
            Explain::Text => stderr::write(waterfall.text(&options.host, outcome.is_ok())),
            Explain::Json => {
                let document = waterfall.json(&options.host).to_string();
                stderr::write(format_args!("{}\n", text::printable_json(&document)));
            }
        }
    }
    outcome
}

/// To a node, through the proxy of the login.
async fn through(
    options: &Options,
    starter: Option<Starter>,
    trace: &Bytes,
    timings: &mut Timings,
    report: &mut ReportHandle,
) -> Result<i32, SshError> {
    let home = Home::find(options.home.as_deref())?;
    let (mut asked, mut master_was_asked) = (false, false);
    let note = |words: std::fmt::Arguments<'_>| {
        if options.verbose > 0 {
            stderr::line(words);
        }
    };
    let mut connector = ProxyConnector::new(&home, options.keep, options.connect_time, note);
    loop {
        let profile = home.login()?;
        let address = match &options.proxy {
            Some(given) => connect::address(given).await?,
            None => profile.proxy.clone(),
        };
        let address = address.as_str();
        let user = options.user.clone().unwrap_or_else(|| profile.account());
        if !is_selector(&options.host) && !master_was_asked {
            master_was_asked = true;
            let node = config::node(&options.host, &profile.cluster);
            let mut plan = plan(options, user.clone(), "client-node", starter.clone());
            plan.place = node.to_owned();
            if by_master::can_run(&plan)
                && is_untraced()
                && let SessionOutcome::Over(code) = by_master::run(&home, address, node, &plan).await?
            {
                return Ok(code);
            }
        }
        let (proxy, node) = match is_selector(&options.host) {
            true => {
                let (proxy, nodes) = connector.nodes(address, &options.host, timings).await?;
                (proxy, choose(nodes, options)?)
            }
            false => {
                let proxy = connector.proxy(address, timings).await?;
                (proxy, config::node(&options.host, &profile.cluster).to_owned())
            }
        };
        let hosts = Hosts::of_cluster(&node, home.file("known_hosts"));
        let key = Credential::of_files(&home.file("id"), Some(&home.file("id-cert.pub")), &Vec::new)
            .map_err(of_login)?;
        let mut plan = plan(options, user.clone(), "client-node", starter.clone());
        plan.place.clone_from(&node);
        let mut memory = ServerMemory::of_node(&home, &node);
        let mut carrier = ProxyCarrier {
            proxy,
            node,
            login: user,
            options: DialOptions {
                trace: trace.clone(),
                explain: options.explain.is_some(),
                is_silent: options.level < LogLevel::Info,
            },
            report: ReportHandle::default(),
        };
        let outcome = super::run(&plan, &hosts, &mut memory, vec![key], &mut carrier, timings).await;
        *report = carrier.report;
        match outcome {
            Err(SshError::Connect(why)) if !report.snapshot().heard && connector.try_again(&why) => {}
            Err(SshError::Denied(refused)) if refused.reason == Reason::Mfa && !asked && !options.batch => {
                asked = true;
                let Some(mut terminal) = Terminal::open() else {
                    return Err(SshError::Denied(refused));
                };
                terminal.say(&format!("{refused}\n"));
                let code = terminal.secret("Code of the second factor: ")?;
                let fresh = login::refresh(&home, &code).await?;
                let _ = login::into_agent(&home, &fresh);
            }
            outcome => return outcome,
        }
    }
}

/// Labels and patterns choose among nodes; anything else is a name.
fn is_selector(host: &str) -> bool {
    host.contains(['=', ',', '*', '?'])
}

fn choose(mut nodes: Vec<Node>, options: &Options) -> Result<String, SshError> {
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    match names.as_slice() {
        [] => {
            return Err(SshError::Refused(format!(
                "no node that you may reach is {}; `fleetgate ls` has them all",
                options.host
            )));
        }
        [one] => return Ok((*one).to_owned()),
        _ => {}
    }
    let shown = names
        .iter()
        .take(MAX_CHOICES)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    let terminal = Terminal::open().filter(|_| !options.batch);
    let Some(mut terminal) = terminal else {
        return Err(SshError::Refused(format!(
            "{} nodes are {}: {shown}; say which one",
            names.len(),
            options.host
        )));
    };
    for (n, node) in nodes.iter().take(MAX_CHOICES).enumerate() {
        let state = if node.connected { "" } else { "  (not connected)" };
        terminal.say(&format!("{:4}  {}{state}\n", n + 1, node.name));
    }
    if nodes.len() > MAX_CHOICES {
        terminal.say(&format!("      and {} more\n", nodes.len() - MAX_CHOICES));
    }
    let answer = terminal.line("Which one (number or name)? ")?;
    let answer = answer.trim();
    let by_number = answer
        .parse::<usize>()
        .ok()
        .and_then(|n| names.get(n.checked_sub(1)?));
    match by_number.or_else(|| names.iter().find(|n| **n == answer)) {
        Some(name) => Ok((*name).to_owned()),
        None => Err(SshError::Refused(format!("{answer:?} is none of them"))),
    }
}

/// Whether nobody collects the client's steps.
fn is_untraced() -> bool {
    std::env::var_os(COLLECTOR).is_none_or(|endpoint| endpoint.is_empty())
}

/// The client's own steps, to the collector that the environment names (OpenTelemetry's own variable), if it names one.
async fn export(timings: &Timings, trace: &Bytes) {
    let Some(endpoint) = std::env::var(COLLECTOR).ok().filter(|e| !e.is_empty()) else {
        return;
    };
    let exporter = match Exporter::start(&endpoint) {
        Ok(exporter) => exporter,
        Err(wrong) => return stderr::line(format_args!("{COLLECTOR}: {wrong}")),
    };
    let (mut number, mut root) = ([0; 16], [0; 8]);
    number.copy_from_slice(&trace[..16]);
    root.copy_from_slice(&trace[16..]);
    let span = |id, parent, name: &str, start, end, round_trips| FinishedSpan {
        service: "fleetgate-client",
        trace: number,
        id,
        parent,
        name: name.to_owned(),
        start,
        end,
        numbers: vec![("round_trips", i64::from(round_trips))],
        words: Vec::new(),
    };
    let (Some(first), Some(last)) = (timings.steps().first(), timings.steps().last()) else {
        return;
    };
    exporter.send(span(
        root,
        [0; 8],
        "fleetgate ssh",
        first.start,
        last.end,
        timings.round_trips(),
    ));
    for (n, step) in (1u64..).zip(timings.steps()) {
        let id = (u64::from_be_bytes(root) ^ n).to_be_bytes();
        exporter.send(span(id, root, step.name, step.start, step.end, step.round_trips));
    }
    exporter.finish(EXPORT_TIME).await;
}

/// A trace of its own, and the span that everything else hangs on (W3C trace context: 16 and 8 bytes).
fn trace() -> Bytes {
    let mut bytes = vec![0; 24];
    // Without it there is no trace, and everything else goes on.
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes.into()
}

async fn direct(options: &Options, starter: Option<Starter>, timings: &mut Timings) -> Result<i32, SshError> {
    let port = options.port.unwrap_or(SSH_PORT);
    let system = || {
        options
            .global_hosts
            .clone()
            .unwrap_or_else(|| vec!["/etc/ssh/ssh_known_hosts".into()])
    };
    let mut known = match options.known_hosts.is_empty() {
        true => [vec![home(".ssh/known_hosts")?], system()].concat(),
        false => options.known_hosts.clone(),
    };
    if !options.known_hosts.is_empty() {
        known.extend(options.global_hosts.clone().unwrap_or_default());
    }
    let strict = match (options.strict, options.batch) {
        (Strict::Ask, true) => Strict::Yes,
        (strict, _) => strict,
    };
    let hosts = match &options.alias {
        // ssh_config(5), HostKeyAlias: the alias is looked up as it stands, without a port.
        Some(alias) => Hosts::known(alias, SSH_PORT, known, strict),
        None => Hosts::known(&options.host, port, known, strict),
    };
    let user = match &options.user {
        Some(user) => user.clone(),
        None => name_here().ok_or_else(|| {
            SshError::Local(
                "which account? USER is not set, and no account here has this process's user id; say it: USER@HOST or \
                 -l USER"
                    .into(),
            )
        })?,
    };
    let plan = plan(options, user, "client-node", starter);
    // Without a home there is nothing to remember by.
    let mut memory = Home::find(options.home.as_deref()).map_or_else(
        |_| ServerMemory::default(),
        |home| ServerMemory::of_host(&home, &options.host, port),
    );
    let mut carrier = TcpCarrier {
        host: options.host.clone(),
        port,
        time: options.connect_time,
    };
    super::run(&plan, &hosts, &mut memory, keys(options)?, &mut carrier, timings).await
}

/// What is to be done, from what was said.
pub(crate) fn plan(options: &Options, user: String, leg: &'static str, starter: Option<Starter>) -> Plan {
    let here = terminal::is_there();
    let session = matches!(options.work, Work::Shell | Work::Exec(_) | Work::Subsystem(_));
    let terminal = session
        && match options.tty {
            Tty::No => false,
            Tty::Force => true,
            Tty::Yes => here,
            Tty::Auto => here && options.work == Work::Shell,
        };
    if options.tty == Tty::Yes && !here && options.level >= LogLevel::Info {
        stderr::line("standard input is no terminal, so none is asked for; -tt asks all the same");
    }
    Plan {
        user,
        place: options.host.clone(),
        leg,
        options: options.clone(),
        terminal,
        environment: environment(options),
        escape: options.escape.filter(|_| here),
        keepalive: (!options.alive_interval.is_zero()).then_some(Keepalive {
            after: options.alive_interval,
            unanswered: options.alive_count,
        }),
        display: options.x11.filter(|_| session).and_then(|how| {
            let display = Display::find(how);
            // As ssh: the session goes on without it.
            display
                .map_err(|e| stderr::line(format_args!("X11 is not forwarded: {e}")))
                .ok()
        }),
        starter,
    }
}

fn environment(options: &Options) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (name, value) in std::env::vars_os() {
        let name = name.into_vec();
        if options.send_env.iter().any(|p| fits(p.as_bytes(), &name)) {
            all.push((name, value.into_vec()));
        }
    }
    for (name, value) in &options.set_env {
        // What is said outright counts before what is here.
        all.retain(|(n, _)| n != name.as_bytes());
        all.push((name.clone().into_bytes(), value.clone().into_bytes()));
    }
    all
}

/// For a direct connection: the files that were named, or the agent's keys and the usual files.
fn keys(options: &Options) -> Result<Vec<Credential>, SshError> {
    let load = |path: &Path| {
        let mut beside = path.as_os_str().to_owned();
        beside.push("-cert.pub");
        let beside = PathBuf::from(beside);
        let certificate = beside.exists().then_some(beside.as_path());
        Credential::of_files(path, certificate, &held_by_agent)
    };
    // As ssh: a file that is not there is no file that was named.
    let is_there = |path: &&PathBuf| match std::fs::metadata(path) {
        Ok(_) => true,
        Err(e) => {
            if options.level >= LogLevel::Info {
                let why = e.to_string();
                let why = why.split(" (os error").next().unwrap_or_default();
                stderr::line(format_args!(
                    "Warning: Identity file {} not accessible: {why}.",
                    path.display()
                ));
            }
            false
        }
    };
    let named: Vec<&PathBuf> = options.identities.iter().filter(is_there).collect();
    if !named.is_empty() {
        return named
            .into_iter()
            .map(|path| load(path))
            .collect::<Result<_, _>>()
            .map_err(|e| SshError::Login(e.to_string()));
    }
    let mut keys = match options.identities_only {
        true => Vec::new(),
        false => Credential::of_agent(),
    };
    if let Ok(folder) = home(".ssh") {
        for key in USUAL_KEYS.iter().filter_map(|name| load(&folder.join(name)).ok()) {
            // One with a passphrase may be among the agent's already.
            if !keys.iter().any(|k| k.is_shown_as(&key)) {
                keys.push(key);
            }
        }
    }
    Ok(keys)
}

fn home(file: &str) -> Result<PathBuf, SshError> {
    match std::env::var_os("HOME").filter(|h| !h.is_empty()) {
        Some(home) => Ok(PathBuf::from(home).join(file)),
        None => Err(SshError::Local("HOME is not set".into())),
    }
}

#[cfg(test)]
mod tests;
