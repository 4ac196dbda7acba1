//! `fleetgate login`, `status`, `logout`: the questions and the answers. What is done with them is the client's.

use crate::flags::{Arguments, Outcome};
use crate::output::{self, print};
use fleetgate_auth::check_password;
use fleetgate_base::exit;
use fleetgate_client::error::ClientError;
use fleetgate_client::login::{self, PasswordLogin};
use fleetgate_client::master_client::{self, Kind};
use fleetgate_client::profile::{Home, Profile};
use fleetgate_client::prompt::{self, AnswerSource, Terminal};
use fleetgate_client::totp::Factor;
use fleetgate_client::waiting::BoundedChannel;
use fleetgate_client::{connect, files, time};
use fleetgate_net::tls::Believe;
use fleetgate_net::{Admits, Pin, Ticket};
use fleetgate_policy::cluster::MIN_LIFETIME;
use fleetgate_proto::v1::identity_client::IdentityClient;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write as _};
use std::path::Path;
use zeroize::Zeroizing;

/// Where the clocks differ by more than this, it is said.
const CLOCK_WARNING: i64 = 30;

/// `login`
pub fn run(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    // Whom it believes is read before a password is asked for.
    home.check_mode()?;
    let profile = match (given.has("renew"), given.has("mfa")) {
        (true, _) => renew(given, &home)?,
        (false, true) => refresh(given, &home)?,
        (false, false) => log_in(given, &home, &Known::of(&home))?,
    };
    if !given.has("no-agent") {
        match login::into_agent(&home, &profile) {
            Ok(true) => {}
            Ok(false) => tracing::info!("no ssh-agent runs; the keys are in files alone"),
            Err(e) => tracing::warn!("the ssh-agent: {e}"),
        }
    }
    status_of(given, &home, &profile)?;
    Ok(0)
}

/// For another lifetime.
fn renew(given: &Arguments, home: &Home) -> Result<Profile, ClientError> {
    for flag in ["mfa", "ttl", "user", "proxy", "ca"] {
        if given.has(flag) || given.value(flag).is_some() {
            return Err(ClientError::Usage(format!(
                "--renew goes on with the login that is there: leave --{flag} out"
            )));
        }
    }
    home.login()?;
    connect::run(login::renew(home))
}

/// With a fresh second factor.
fn refresh(given: &Arguments, home: &Home) -> Result<Profile, ClientError> {
    home.login()?;
    let code = code(given)?;
    connect::run(login::refresh(home, &code))
}

/// What is known of the login before.
struct Known {
    /// Where and who.
    profile: Option<Profile>,
    /// There is one that cannot be read.
    is_damaged: bool,
}

impl Known {
    /// A file that cannot be read is named: the login goes on by what is given to it, and writes that file anew.
    fn of(home: &Home) -> Known {
        let profile = home.profile();
        let damage = match (&profile, home.damaged_last()) {
            (Ok(_), _) | (Err(ClientError::NoLogin { .. }), None) => None,
            (Err(ClientError::NoLogin { .. }), Some(last)) => Some(format!(
                "{}: cannot be read; say the proxy with --proxy and the user with --user",
                last.display()
            )),
            (Err(why), _) => Some(why.to_string()),
        };
        if let Some(damage) = &damage {
            eprintln!("fleetgate: {}", output::printable(damage));
        }
        Known {
            profile: profile.ok().or_else(|| home.last()),
            is_damaged: damage.is_some(),
        }
    }
}

fn log_in(given: &Arguments, home: &Home, before: &Known) -> Result<Profile, ClientError> {
    let known = before.profile.as_ref();
    // Before anything is asked for: auth refuses it too.
    if given
        .seconds("ttl")
        .is_some_and(|ttl| u64::from(ttl) < MIN_LIFETIME.as_secs())
    {
        let least = time::span(MIN_LIFETIME.as_secs());
        let ttl = given.value("ttl").unwrap_or_default();
        return Err(ClientError::Usage(format!(
            "`--ttl` wants {least} or more, not `{ttl}`"
        )));
    }
    let proxy = given
        .value("proxy")
        .or(known.map(|p| p.proxy.as_str()))
        .ok_or_else(|| ClientError::Usage("`--proxy` is missing: where the cluster's proxy is".to_owned()))?;
    let proxy = match known.filter(|p| p.proxy.rsplit_once(':').is_some_and(|(host, _)| host == proxy)) {
        // The port that was found the last time.
        Some(known) => known.proxy.clone(),
        None => connect::run(connect::address(proxy))?,
    };
    let proxy = proxy.as_str();
    let same_cluster = known.filter(|p| p.proxy == proxy);
    let believe = match (given.value("ca"), given.value("invite-file"), same_cluster) {
        (Some(pin), _, _) => Some(Believe::Pin(
            pin.parse::<Pin>()
                .map_err(|e| ClientError::Usage(format!("`--ca`: {e}")))?,
        )),
        (None, None, Some(_)) => Some(connect::believe(home)?),
        // Of which proxy the login was is not known. Whom it believed is: anybody else is refused by that.
        (None, None, None) if before.is_damaged => connect::believe(home).ok(),
        _ => None,
    };
    let ticket = match &believe {
        Some(_) if !given.has("invite-file") => None,
        _ => Some(invite(given)?),
    };
    let believe = match (&believe, &ticket) {
        (Some(believe), _) => believe.clone(),
        (None, Some(ticket)) => Believe::Pin(ticket.pin),
        (None, None) => unreachable!("without a pin there is an invite"),
    };
    connect::run(async {
        let mut auth = connect::identity(proxy, &believe, None).await?;
        let user = match &ticket {
            Some(ticket) => first_time(given, &mut auth, ticket).await?,
            None => (user(given, known)?, None),
        };
        let (user, first) = user;
        let is_first = first.is_some();
        let (password, code) = match first {
            Some(shown) => shown,
            None => {
                let password = prompt::secret(
                    &from(given, "password-file"),
                    "Password",
                    "give --password-file FILE, or - for standard input",
                )?;
                (password, code(given)?)
            }
        };
        let shown = PasswordLogin {
            user: &user,
            password: &password,
            code: &code,
            lifetime: given.seconds("ttl").unwrap_or(0),
        };
        let done = login::log_in(&mut auth, home, proxy, &shown).await;
        // An invite is good once: asked for it again, auth would say no more than that.
        if done.is_err()
            && is_first
            && let Some(ticket) = &ticket
        {
            let _ = writeln!(
                std::io::stderr(),
                "fleetgate: the invite was accepted, and the password and the second factor are set. Log in with them: `fleetgate login --proxy \
                 {proxy} --user {user} --ca {}`",
                ticket.pin
            );
        }
        done
    })
}

/// How often the first code is asked for.
const CODE_TRIES: u32 = 3;

type Factors = (Zeroizing<String>, Zeroizing<String>);

/// Password and second factor are set; what was shown is good for the login that follows.
async fn first_time(
    given: &Arguments,
    auth: &mut IdentityClient<BoundedChannel>,
    ticket: &Ticket,
) -> Result<(String, Option<Factors>), ClientError> {
    let (user, factor) = login::begin_invite(auth, ticket.secret()).await?;
    let password = new_password(given, &user)?;
    let code = match given.value("authenticator") {
        Some(path) => {
            // The login that follows shows this code once more.
            let now = time::now();
            keep_authenticator(path, &factor, factor.next_code(now, 0).1)?;
            factor.code(now)
        }
        None => {
            let colours = std::io::stderr().is_terminal();
            eprint!(
                "\nScan this with an authenticator, or type the secret into it:\n\n{}\n{}\n{}\n\n",
                factor.square(colours).as_str(),
                factor.by_hand().as_str(),
                factor.address()
            );
            let mut left = CODE_TRIES;
            loop {
                let code = code(given)?;
                left -= 1;
                // A mistyped one would have it all begin again. Where this machine's clock is wrong, auth says so at last.
                if left == 0 || given.has("code-file") || factor.could_show(&code, time::now()) {
                    break code;
                }
                eprintln!("That is no code of this secret now; type the one that the authenticator shows.");
            }
        }
    };
    login::accept_invite(auth, ticket.secret(), &password, &code).await?;
    Ok((user, Some((password, code))))
}

fn new_password(given: &Arguments, user: &str) -> Result<Zeroizing<String>, ClientError> {
    let what = "Password";
    let instead = "give --password-file FILE, or - for standard input";
    if given.has("password-file") {
        let password = prompt::secret(&from(given, "password-file"), what, instead)?;
        return match check_password(&password, user) {
            Ok(()) => Ok(password),
            Err(why) => Err(ClientError::Usage(format!("`--password-file`: {why}"))),
        };
    }
    let mut terminal = Terminal::open().ok_or(ClientError::NoTerminal(what, instead))?;
    terminal.say(&format!("Welcome, {user}. Choose a password.\n"));
    loop {
        let password = terminal.secret("Password: ")?;
        // Before the second factor is shown: a password that is refused later would have it set up for nothing.
        if let Err(why) = check_password(&password, user) {
            terminal.say(&format!("{why}.\n"));
            continue;
        }
        let again = terminal.secret("Again: ")?;
        if password == again {
            return Ok(password);
        }
        terminal.say("They differ.\n");
    }
}

fn invite(given: &Arguments) -> Result<Ticket, ClientError> {
    let text = prompt::secret(
        &from(given, "invite-file"),
        "Invite",
        "give --invite-file FILE for a first login, or --ca sha256:HASH for a later one",
    )?;
    let ticket: Ticket = text
        .parse()
        .map_err(|e| ClientError::Usage(format!("the invite: {e}")))?;
    match ticket.admits {
        Admits::User => Ok(ticket),
        Admits::Machine => Err(ClientError::Usage(
            "this is a token for a machine (`fleetgate join`); a person has an invite, from `fleetgate user add`"
                .to_owned(),
        )),
    }
}

fn code(given: &Arguments) -> Result<Zeroizing<String>, ClientError> {
    let Some(path) = given.value("authenticator") else {
        return prompt::secret(
            &from(given, "code-file"),
            "Code",
            "give --code-file FILE, or - for standard input",
        );
    };
    let text = files::read_text(Path::new(path))?;
    let mut lines = text.lines();
    let factor = Factor::parse(lines.next().unwrap_or_default())
        .map_err(|why| ClientError::Broken(path.into(), why.to_string()))?;
    let shown = lines.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let (code, step, wait) = factor.next_code(time::now(), shown);
    if wait > 0 {
        eprintln!("waiting {wait} s for the next code: each is good for one login");
    }
    std::thread::sleep(std::time::Duration::from_secs(wait));
    keep_authenticator(path, &factor, step)?;
    Ok(code)
}

/// The address, and the step of the code that was shown last.
fn keep_authenticator(path: &str, factor: &Factor, step: u64) -> Result<(), ClientError> {
    let text = Zeroizing::new(format!("{}\n{step}\n", factor.address()));
    files::write(Path::new(path), 0o600, text.as_bytes())
}

fn from<'a>(given: &'a Arguments, flag: &str) -> AnswerSource<'a> {
    given
        .value(flag)
        .map_or(AnswerSource::Terminal, AnswerSource::File)
}

fn user(given: &Arguments, known: Option<&Profile>) -> Result<String, ClientError> {
    given
        .value("user")
        .or(known.map(|p| p.user.as_str()))
        .map(str::to_owned)
        .or_else(|| std::env::var("USER").ok().filter(|u| !u.is_empty()))
        .ok_or_else(|| ClientError::Usage("`--user` is missing: who logs in".to_owned()))
}

/// `logout`
pub fn logout(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let profile = match home.profile() {
        Err(why @ ClientError::NoLogin { .. }) => return Err(why.into()),
        profile => profile,
    };
    login::out_of_agent(&home)?;
    master_client::retire(&home, Kind::Login);
    let had_config = home.file("ssh_config").exists();
    home.forget()?;
    // What can be read or not, its keys are gone.
    let profile = match profile {
        Err(ClientError::Broken(path, why)) => {
            let why = format!("{why}. The login was removed all the same");
            return Err(ClientError::Broken(path, why).into());
        }
        profile => profile?,
    };
    let config = match had_config {
        true => {
            "; ssh's configuration went too: after the next login `fleetgate config ssh --write` makes it again"
        }
        false => "",
    };
    print(&format!(
        "{} is logged out of {}{config}\n",
        profile.user, profile.cluster
    ))
}

/// `status`
pub fn status(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let profile = home.profile()?;
    status_of(given, &home, &profile)?;
    Ok(if profile.expires > time::now() {
        0
    } else {
        exit::REFUSED
    })
}

fn status_of(given: &Arguments, home: &Home, profile: &Profile) -> Outcome {
    let is_enrolled = home.file("device.json").exists();
    output::either(
        given.has("json"),
        || document(profile),
        || text(profile, is_enrolled),
    )
}

/// `is_enrolled`: this machine has a key of its own, be it approved or not.
fn text(p: &Profile, is_enrolled: bool) -> String {
    let now = time::now();
    let mut rows = vec![
        ("user", p.user.clone()),
        ("cluster", format!("{} by {}", p.cluster, p.proxy)),
        ("roles", p.roles.join(", ")),
        ("accounts", p.logins.join(", ")),
        (
            "holds",
            match p.expires > now {
                true => match p.renewable.filter(|until| *until > p.expires) {
                    Some(until) => format!(
                        "for {}; by its roles as they were then it can be renewed for {}",
                        time::span(p.expires - now),
                        time::span(until - now)
                    ),
                    None => format!("for {}", time::span(p.expires - now)),
                },
                false => format!("no more since {}; log in again", time::span(now - p.expires)),
            },
        ),
        (
            "second factor",
            p.mfa
                .map_or("not shown".to_owned(), |at| time::seen_from(now, at)),
        ),
        (
            "device",
            p.device.clone().unwrap_or_else(|| match is_enrolled {
                true => "enrolled; the login was made without it: it waits to be approved, or log in again"
                    .to_owned(),
                false => "not enrolled".to_owned(),
            }),
        ),
    ];
    if p.clock_ahead.abs() > CLOCK_WARNING {
        let way = if p.clock_ahead > 0 { "ahead of" } else { "behind" };
        let by = time::span(p.clock_ahead.unsigned_abs());
        rows.push((
            "clock",
            format!("this machine's is {by} {way} the cluster's: set it"),
        ));
    }
    rows.iter()
        .map(|(name, value)| format!("{name:<13}  {}\n", output::printable(value)))
        .collect()
}

fn document(p: &Profile) -> Value {
    let now = time::now();
    json!({
        "user": p.user,
        "cluster": p.cluster,
        "proxy": p.proxy,
        "roles": p.roles,
        "logins": p.logins,
        "issued": p.issued,
        "expires": p.expires,
        "renewable": p.renewable,
        "holds": p.expires > now,
        "mfa": p.mfa,
        "mfa_age": p.mfa.map(|at| now.saturating_sub(at)),
        "device": p.device,
        "clock_ahead": p.clock_ahead,
    })
}
