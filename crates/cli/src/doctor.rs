//! `fleetgate doctor`: what is wrong with this host, thing by thing, with the remedy. What a node needs is looked at in `node`,
//! what SELinux needs in `selinux`; here stands what the cluster's services and a login need, where there are any.

mod archive;
mod listener;
mod master;
mod node;
mod recordings;
mod selinux;
mod services;

use crate::cluster::SYSTEM_CONFIG;
use crate::flags::Arguments;
use crate::flags::Outcome;
use crate::output::print;
use crate::{cluster, node as node_command};
use fleetgate_base::exit;
use fleetgate_client::agent::Agent;
use fleetgate_client::error::ClientError;
use fleetgate_client::profile::Home;
use fleetgate_client::timings::Timings;
use fleetgate_client::transport::Proxy;
use fleetgate_client::{connect, login as client_login, time};
use fleetgate_net::x509;
use fleetgate_node::config::Config;
use fleetgate_node::identity::NodeIdentity;
use node::{Finding, Grade, examine};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Prints the findings; the exit code is 1 when one of them is wrong.
pub fn run(given: &Arguments) -> Outcome {
    let config = &node_command::configuration(given);
    let mut findings = examine(config);
    findings.extend(certificates(config));
    findings.extend(services::look(&of_services(given), config));
    findings.extend(login());
    print(&if given.has("json") {
        document(&findings)
    } else {
        table(&findings)
    })?;
    let wrong = findings.iter().any(|f| f.grade == Grade::Wrong);
    Ok(if wrong { exit::REFUSED } else { 0 })
}

/// The configuration of the services: the one that is given, one's own, or the machine's.
fn of_services(given: &Arguments) -> PathBuf {
    let own = cluster::configuration(given).ok();
    own.filter(|path| given.has("config") || path.exists())
        .unwrap_or_else(|| SYSTEM_CONFIG.into())
}

/// A certificate that ends sooner than this was not renewed when it should have been.
const SOON: u64 = 3600;
/// Clocks that differ by more refuse certificates sooner or later.
const CLOCK: u64 = 30;

fn finding(what: &'static str, grade: Grade, found: String, remedy: &str) -> Finding {
    Finding {
        what,
        grade,
        found,
        remedy: remedy.to_owned(),
    }
}

/// The node's own certificates, if it joined.
fn certificates(config: &Path) -> Option<Finding> {
    const WHAT: &str = "certificates";
    let config = Config::load(config).ok()?;
    let identity = NodeIdentity::load(&config.state_directory).ok()??;
    let ends = identity
        .tls_chain
        .first()
        .and_then(|der| x509::Certificate::read(der).ok())
        .map(|leaf| leaf.validity().end)?;
    let now = time::now();
    let when = format!("end {}", time::seen_from(now, ends));
    Some(match ends {
        ends if ends <= now => finding(
            WHAT,
            Grade::Wrong,
            when,
            "remove the state directory's `cluster` and join again",
        ),
        ends if ends - now < SOON => finding(
            WHAT,
            Grade::Less,
            when,
            "they are renewed through a proxy: is one reached?",
        ),
        _ => finding(WHAT, Grade::Good, when, ""),
    })
}

/// The login of whoever asks, and the way to its proxy.
fn login() -> Vec<Finding> {
    let Ok(home) = Home::find(None) else {
        return Vec::new();
    };
    let profile = match home.profile() {
        Err(ClientError::NoLogin { .. }) => return Vec::new(),
        Err(e) => {
            return vec![finding(
                "login",
                Grade::Wrong,
                e.to_string(),
                match e.to_string().contains("run: chmod") {
                    true => "the sentence says what mends it",
                    false => "run fleetgate login",
                },
            )];
        }
        Ok(profile) => profile,
    };
    let now = time::now();
    let mut findings = vec![match profile.expires > now {
        true => finding(
            "login",
            Grade::Good,
            format!("{} until {}", profile.user, time::utc(profile.expires)),
            "",
        ),
        false => finding(
            "login",
            Grade::Less,
            format!("{} ended {}", profile.user, time::seen_from(now, profile.expires)),
            "run fleetgate login",
        ),
    }];
    let of_proxy = match connect::run(ahead(&home, &profile.proxy)) {
        Err(e) => finding(
            "proxy",
            Grade::Less,
            e.to_string(),
            "is it up, and does a firewall let this machine reach it?",
        ),
        Ok(ahead) if ahead.unsigned_abs() > CLOCK => finding(
            "proxy",
            Grade::Less,
            format!(
                "{} is reached; the clocks are {} apart",
                profile.proxy,
                time::span(ahead.unsigned_abs())
            ),
            "set this machine's clock (NTP)",
        ),
        Ok(_) => {
            if profile.expires > now
                && let Err(why) = connect::run(is_taken(&home, &profile.proxy))
            {
                let found = format!("{}: {why}", profile.user);
                findings[0] = finding("login", Grade::Less, found, "run fleetgate login");
            }
            finding(
                "proxy",
                Grade::Good,
                format!("{} is reached; the clocks agree", profile.proxy),
                "",
            )
        }
    };
    findings.push(of_proxy);
    if profile.expires > now {
        findings.push(master::look(&home, &profile, now));
    }
    findings.push(
        match Agent::connect(std::env::var_os("SSH_AUTH_SOCK")).and_then(|mut a| a.identities()) {
            Ok(keys) => finding(
                "ssh-agent",
                Grade::Good,
                match keys.len() {
                    1 => "runs, with 1 key".to_owned(),
                    n => format!("runs, with {n} keys"),
                },
                "",
            ),
            Err(e) => finding(
                "ssh-agent",
                Grade::Less,
                e.to_string(),
                "without one keys are in files alone",
            ),
        },
    );
    findings
}

/// Whether the proxy still takes the login: a lock, a reset or a changed role ends one before its time.
async fn is_taken(home: &Home, proxy: &str) -> Result<(), ClientError> {
    let (believe, credentials) = (connect::believe(home)?, connect::credentials(home)?);
    let mut timings = Timings::default();
    let proxy = Proxy::connect(proxy, &believe, &credentials, None, &mut timings).await?;
    proxy.nodes("", &mut timings).await.map(drop)
}

async fn ahead(home: &Home, proxy: &str) -> Result<i64, ClientError> {
    let mut auth = connect::identity(proxy, &connect::believe(home)?, None).await?;
    client_login::clock_ahead(&mut auth).await
}

fn document(findings: &[Finding]) -> String {
    let rows: Vec<_> = findings
        .iter()
        .map(|f| json!({ "what": f.what, "grade": f.grade.name(), "found": f.found, "remedy": f.remedy }))
        .collect();
    format!("{:#}\n", json!({ "findings": rows }))
}

fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|f| f.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for f in findings {
        text += &format!(
            "{:<5}  {:<width$}  {}\n",
            f.grade.name(),
            f.what,
            f.found.replace('\n', " ")
        );
        if !f.remedy.is_empty() {
            text += &format!("{:<5}  {:<width$}  -> {}\n", "", "", f.remedy);
        }
    }
    text
}
