//! `fleetgate ssh` as a whole: the command line becomes a plan, keys and hosts are gathered, the carrier is chosen. Most
//! sessions are then the master's ([`by_master`]); what happens on a connection of the command's own is the engine's.

use super::by_master::{self, SessionOutcome};
use super::carrier::ProxyCarrier;
use super::options::{Control, Explain, Invocation, LogLevel, Options, is_selector, printed};
use super::plan::plan;
use super::{Credential, Hosts, ServerMemory, SshError, collector, direct, exit};
use crate::background::{self, Starter};
use crate::master_client::lend::by_proxy;
use crate::master_client::{self, Kind, ProxyConnector};
use crate::profile::{Home, of_login};
use crate::prompt::Terminal;
use crate::timings::Timings;
use crate::transport::{DialOptions, ReportHandle};
use crate::waterfall::Waterfall;
use crate::{config, connect, login, stderr};
use bytes::Bytes;
use fleetgate_policy::text;
use fleetgate_proto::v1::Node;
use fleetgate_proto::v1::denied::Reason;
use std::ffi::OsString;

/// Nodes that are shown to choose from, at most.
const MAX_CHOICES: usize = 50;

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
    run_to_end(&options, starter)
}

/// Does what the options say, and says what went wrong; the exit code.
pub fn run_to_end(options: &Options, starter: Option<Starter>) -> i32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = match options.control {
                Some(control) => runtime.block_on(about_kept(options, control)),
                None => runtime.block_on(run(options, starter)),
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
    let kind = match options.direct {
        true => Kind::Direct,
        false => Kind::Login,
    };
    let local = |e: std::io::Error| SshError::Local(format!("{}: {e}", home.file(kind.socket()).display()));
    let words = match control {
        Control::Check => {
            let pid = master_client::status(&home, kind).await.map_err(local)?.pid;
            format!("Master running (pid={pid})")
        }
        Control::Exit => {
            master_client::stop(&home, kind).await.map_err(local)?;
            "Exit request sent.".to_owned()
        }
        Control::Stop => {
            master_client::status(&home, kind).await.map_err(local)?;
            master_client::retire(&home, kind);
            "Stop listening request sent.".to_owned()
        }
    };
    if options.level >= LogLevel::Info {
        stderr::write(format_args!("{words}\n"));
    }
    Ok(0)
}

/// Does what the options say, and leaves it to the caller to say how it came out.
pub async fn run_options(options: &Options) -> Result<i32, SshError> {
    run(options, None).await
}

async fn run(options: &Options, starter: Option<Starter>) -> Result<i32, SshError> {
    let mut timings = Timings::default();
    let mut report = ReportHandle::default();
    let trace = collector::trace();
    let outcome = match &options.address {
        _ if options.direct => direct::to_server(options, starter, &mut timings).await,
        Some(address) => direct::to_port(options, address, starter, &mut timings).await,
        None => through(options, starter, &trace, &mut timings, &mut report).await,
    };
    timings.end();
    collector::export(&timings, &trace).await;
    if let Some(explain) = options.explain {
        let waterfall = Waterfall::new(&timings, &report.snapshot().spans, options.goes_by_proxy());
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
        let user = options.login(|container| profile.account(container));
        if !is_selector(&options.host) && !master_was_asked {
            master_was_asked = true;
            let node = config::node(&options.host, &profile.cluster);
            let mut plan = plan(options, user.clone(), "client-node", starter.clone());
            plan.place = node.to_owned();
            let way = by_proxy(address).map_err(|e| SshError::Local(format!("the proxy's address: {e}")))?;
            let whom = format!("{node}, through the proxy {address}");
            if by_master::can_run(&plan)
                && let SessionOutcome::Over(code) = by_master::run(&home, way, node, &whom, &plan).await?
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

#[cfg(test)]
mod tests;
