//! The command line: check_nrpe's letters, and a few of fleetgate's own. Both programs read it here.

use crate::line::{MAX_ARGUMENT, MAX_ARGUMENTS, MAX_LOGIN, MAX_NAME};
use crate::secret::{self, MAX_SECRETS, Secret};
use crate::verdict::State;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_wire::master::{ALWAYS, container_at};

/// How long an answer is waited for, in seconds: check_nrpe's default.
pub const TIMEOUT: u32 = 10;
/// The longest time that can be asked for, in seconds.
pub const MAX_TIMEOUT: u32 = 3600;
/// For how long the connection is kept after a check, in seconds.
pub const KEEP: u32 = 1800;
/// The longest time for which it is kept that is not always, in seconds.
pub const MAX_KEEP: u32 = 86_400;

/// A check that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The node.
    pub host: Vec<u8>,
    /// The check's name: a named command of the node's.
    pub command: Vec<u8>,
    /// What is filled in.
    pub arguments: Vec<Vec<u8>>,
    /// What is given to it beside its words.
    pub secrets: Vec<Secret>,
    /// How long an answer is waited for, in seconds.
    pub timeout: u32,
    /// What it is when none comes.
    pub at_timeout: State,
    /// Where the node's own port is; none: it is reached through the proxy.
    pub address: Option<Vec<u8>>,
    /// The account; none: the login's own.
    pub login: Option<Vec<u8>>,
    /// A container of the node, in which the check runs; none: the node itself, or the container that the account names.
    pub container: Option<Vec<u8>>,
    /// The directory of the login; none: the usual one.
    pub home: Option<Vec<u8>>,
    /// For how many seconds the connection is kept after the check; `ALWAYS`.
    pub keep: u32,
    /// When it was asked for, in nanoseconds of the monotonic clock, where another program of ours did not end it; none: now.
    pub asked: Option<i64>,
    /// By a connection of its own: the node did not begin it on the one that is kept.
    pub is_alone: bool,
}

impl Options {
    /// Until when an answer is waited for, in nanoseconds of the monotonic clock.
    pub fn end(&self, now: i64) -> i64 {
        self.asked.unwrap_or(now).min(now) + i64::from(self.timeout) * 1_000_000_000
    }

    /// The login as the master is asked for it: `ACCOUNT`, `ACCOUNT+CONTAINER`, and without an account that is named what is
    /// left of these. The master knows the account.
    pub fn login_name(&self) -> Vec<u8> {
        let mut name = self.login.clone().unwrap_or_default();
        if let Some(container) = &self.container {
            name.push(b'+');
            name.extend_from_slice(container);
        }
        name
    }
}

/// The flag by which one of our programs says to the next when the check was asked for.
pub const ASKED: &str = "--asked";
/// The flag by which it says that the node refused the check on the connection that is kept.
pub const ALONE: &CStr = c"--alone";

/// What the words ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// A check.
    Run(Options),
    /// This text.
    Say(String),
}

/// `--help`'s text.
pub const HELP: &str = "\
Runs a check on a node: a named command of its node.toml, without a shell. What it prints and its exit code are the plugin's.
Whatever goes wrong on the way is UNKNOWN (3), with one line that says what.

  check_fleetgate -H NODE -c CHECK [-a ARGUMENT...]... [--secret NAME=FILE]... [-t SECONDS[:STATE]] [-l ACCOUNT]

  -H, --host NODE[+CONTAINER]
                          where: on the node, or in a container there
      --container NAME    in this container of the node; the same as NODE+NAME
      --address HOST[:PORT]
                          connect to the node's own port there (default 22), and not through the proxy
  -c, --command CHECK     its name there
  -a, --args ARGUMENT...  what is filled in, in its order; a word that begins with a dash stands behind an -a of its own
  -t, --timeout SECONDS[:STATE]
                          how long an answer is waited for (default 10), and what it is then: OK, WARNING, CRITICAL or
                          UNKNOWN (default)
  -u, --unknown-timeout   UNKNOWN when no answer comes, whatever -t says
      --secret NAME=FILE  a variable for the check, whose value stands in a file that nobody else can read; the command of
                          the node.toml has to name it in `secrets`
  -l, --login ACCOUNT     the account (default: the one that `fleetgate ssh` takes)
      --keep TIME         how long the connection is kept for the next check: seconds (default 1800), or `always`: until the
                          login ends, and made anew when it breaks
      --home DIR          the login's directory (default: FLEETGATE_HOME, else ~/.fleetgate)
  -h, --help              this text
  -V, --version           the version

  check_fleetgate -H web1 -c load -a 15,10,5 30,25,20
  check_fleetgate -H web1 --address 10.0.0.5 -c load -a 15,10,5 30,25,20
  check_fleetgate -H web1 -c disk -a 20 -t 30:CRITICAL
  check_fleetgate -H web1+shop -c load -a 15,10,5 30,25,20
  check_fleetgate -H db1 -c mysql --secret DB_PASSWORD=/etc/fleetgate/db1.password
";

/// What check_nrpe has and this has no use for, with the reason.
const UNUSED: [(&[u8], &str); 9] = [
    (
        b"-p",
        "the proxy knows the way; without the proxy it is --address HOST:PORT",
    ),
    (
        b"--port",
        "the proxy knows the way; without the proxy it is --address HOST:PORT",
    ),
    (b"-n", "connections are always encrypted"),
    (b"--no-ssl", "connections are always encrypted"),
    (b"-2", "there is one protocol"),
    (b"-3", "there is one protocol"),
    (b"-S", "the protocol's version is negotiated"),
    (b"-C", "`fleetgate login` makes the certificates"),
    (b"-K", "`fleetgate login` makes the keys"),
];

/// Reads the words behind the program's name. The error is what the monitoring is told.
pub fn parse(words: &[&[u8]]) -> Result<Invocation, String> {
    let mut options = Options {
        host: Vec::new(),
        command: Vec::new(),
        arguments: Vec::new(),
        secrets: Vec::new(),
        timeout: TIMEOUT,
        at_timeout: State::Unknown,
        address: None,
        login: None,
        container: None,
        home: None,
        keep: KEEP,
        asked: None,
        is_alone: false,
    };
    let mut unknown_timeout = false;
    let mut host = &b""[..];
    let mut container = None;
    let mut rest = words.iter().copied().peekable();
    while let Some(word) = rest.next() {
        let (name, attached) = split(word);
        let mut value = || {
            let value = attached.or_else(|| rest.next());
            value.ok_or_else(|| format!("the option {} needs a value", shown(name)))
        };
        match name {
            b"-H" | b"--host" => host = value()?,
            b"-c" | b"--command" => options.command = name_of("the check", value()?, MAX_NAME)?,
            b"--address" => options.address = Some(name_of("the address", value()?, MAX_NAME)?),
            b"-l" | b"--login" => options.login = Some(name_of("the account", value()?, MAX_LOGIN)?),
            b"--container" => container = Some(value()?),
            b"--home" => options.home = Some(value()?.to_vec()),
            b"--keep" => options.keep = keep(value()?)?,
            b"--alone" if attached.is_none() => options.is_alone = true,
            b"--asked" => options.asked = Some(moment(value()?)?),
            b"--secret" => {
                let secret = secret_of(value()?)?;
                add_secret(&mut options.secrets, secret)?;
            }
            b"-t" | b"--timeout" => (options.timeout, options.at_timeout) = timeout(value()?)?,
            b"-u" | b"--unknown-timeout" if attached.is_none() => unknown_timeout = true,
            b"-a" | b"--args" => {
                // As with check_nrpe, there may be none behind it: a macro that is empty.
                let Some(first) = attached.or_else(|| rest.next()) else {
                    continue;
                };
                add(&mut options.arguments, first)?;
                while let Some(next) = rest.next_if(|word| !is_option(word)) {
                    add(&mut options.arguments, next)?;
                }
            }
            b"-h" | b"--help" => return Ok(Invocation::Say(HELP.to_string())),
            b"-V" | b"--version" => {
                return Ok(Invocation::Say(format!("check_fleetgate {}\n", crate::VERSION)));
            }
            _ => {
                let unused = UNUSED.iter().find(|(unused, _)| *unused == name);
                return Err(match unused {
                    Some((_, why)) => format!("the option {} is not taken: {why}", shown(name)),
                    None => format!(
                        "the word {} is not understood; see check_fleetgate --help",
                        shown(word)
                    ),
                });
            }
        }
    }
    // An empty macro in quotes.
    if options.arguments == [b""] {
        options.arguments.clear();
    }
    if host.is_empty() {
        return Err("no node is named; -H NODE names it".to_string());
    }
    if let Some(at) = container_at(host) {
        let (node, named) = (&host[..at], &host[at + 1..]);
        if container.replace(named).is_some_and(|other| other != named) {
            return Err(format!("--container: {} names a container already", shown(host)));
        }
        host = node;
    }
    options.host = name_of("the node", host, MAX_NAME)?;
    if let Some(container) = container {
        options.container = Some(name_of("the container", container, MAX_LOGIN)?);
    }
    if let Some(login) = options.login.as_deref().filter(|login| login.contains(&b'+')) {
        let named = login.iter().position(|b| *b == b'+').map(|at| &login[at + 1..]);
        if let Some(container) = container
            && named != Some(container)
        {
            return Err(format!(
                "-l {} names another container than {}: leave one out",
                shown(login),
                shown(container)
            ));
        }
        options.container = None;
        if login.starts_with(b"+") {
            return Err(format!(
                "the account is missing in {}; --container NAME needs none",
                shown(login)
            ));
        }
    }
    if options.command.is_empty() {
        return Err("no check is named; -c CHECK names it".to_string());
    }
    if unknown_timeout {
        options.at_timeout = State::Unknown;
    }
    Ok(Invocation::Run(options))
}

/// An option's name, and a value in the same word: `-Hweb1`, `--host=web1`.
fn split(word: &[u8]) -> (&[u8], Option<&[u8]>) {
    match word {
        [b'-', b'-', ..] => match word.iter().position(|b| *b == b'=') {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (word, None),
        },
        [b'-', _, _, ..] => (&word[..2], Some(&word[2..])),
        _ => (word, None),
    }
}

/// A word that begins with a dash, and is no negative number.
fn is_option(word: &[u8]) -> bool {
    matches!(word, [b'-', next, ..] if !next.is_ascii_digit() && *next != b'.')
}

fn add(arguments: &mut Vec<Vec<u8>>, word: &[u8]) -> Result<(), String> {
    if arguments.len() == MAX_ARGUMENTS {
        return Err(format!("a check has at most {MAX_ARGUMENTS} arguments"));
    }
    if word.len() > MAX_ARGUMENT {
        return Err(format!("an argument has at most {MAX_ARGUMENT} bytes"));
    }
    if word.iter().any(u8::is_ascii_control) {
        return Err(format!(
            "the argument {} has control characters in it",
            shown(word)
        ));
    }
    arguments.push(word.to_vec());
    Ok(())
}

/// `NAME=FILE`.
fn secret_of(word: &[u8]) -> Result<Secret, String> {
    let at = word.iter().position(|b| *b == b'=');
    let parts = at.map(|at| (core::str::from_utf8(&word[..at]), &word[at + 1..]));
    match parts {
        Some((Ok(name), file)) if secret::is_name(name) && !file.is_empty() => Ok(Secret {
            name: name.to_string(),
            file: file.to_vec(),
        }),
        // Not shown: somebody may have given the secret itself.
        _ => Err(
            "--secret takes NAME=FILE: a variable's name, and the file in which its value stands".to_string(),
        ),
    }
}

/// Adds a secret to a check's.
pub fn add_secret(secrets: &mut Vec<Secret>, secret: Secret) -> Result<(), String> {
    if secrets.len() == MAX_SECRETS {
        return Err(format!("a check has at most {MAX_SECRETS} secrets"));
    }
    if secrets.iter().any(|other| other.name == secret.name) {
        return Err(format!("the secret {} is given twice", secret.name));
    }
    secrets.push(secret);
    Ok(())
}

/// A name is a word: nothing that a shell, a terminal or an option could be.
fn name_of(what: &str, word: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let fits = |b: &u8| b.is_ascii_graphic() && !b"'\"\\`$|&;<>(){}!#".contains(b);
    if word.is_empty() || word.len() > most || word[0] == b'-' || !word.iter().all(fits) {
        return Err(format!(
            "{what} has a name of 1 to {most} letters, digits and such, not {}",
            shown(word)
        ));
    }
    Ok(word.to_vec())
}

/// `SECONDS` or `SECONDS:STATE`.
fn timeout(word: &[u8]) -> Result<(u32, State), String> {
    let wrong = || {
        format!(
            "-t takes 1 to {MAX_TIMEOUT} seconds, and behind a colon OK, WARNING, CRITICAL or UNKNOWN, not {}",
            shown(word)
        )
    };
    let text = core::str::from_utf8(word).map_err(|_| wrong())?;
    let (seconds, state) = match text.split_once(':') {
        Some((seconds, state)) => (seconds, State::named(state).ok_or_else(wrong)?),
        None => (text, State::Unknown),
    };
    match seconds.parse() {
        Ok(seconds @ 1..=MAX_TIMEOUT) => Ok((seconds, state)),
        _ => Err(wrong()),
    }
}

/// Nanoseconds of the monotonic clock, which begins at 0 and has not run for a century.
fn moment(word: &[u8]) -> Result<i64, String> {
    const CENTURY: i64 = 100 * 365 * 86_400 * 1_000_000_000;
    let number = core::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    number
        .filter(|at| (0..CENTURY).contains(at))
        .ok_or_else(|| format!("{ASKED} is for fleetgate itself, and takes no {}", shown(word)))
}

/// Seconds, or `always`.
fn keep(word: &[u8]) -> Result<u32, String> {
    let seconds = || core::str::from_utf8(word).ok()?.parse().ok();
    match (word, seconds()) {
        (b"always", _) => Ok(ALWAYS),
        (_, Some(seconds @ 1..=MAX_KEEP)) => Ok(seconds),
        _ => Err(format!(
            "--keep takes 1 to {MAX_KEEP} seconds, or always, not {}",
            shown(word)
        )),
    }
}

/// A word as it is shown to people: short, and without what a terminal or the monitoring's line could take for its own.
fn shown(word: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(word).chars().take(60).collect();
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Options, String> {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        match parse(&words)? {
            Invocation::Run(options) => Ok(options),
            Invocation::Say(text) => panic!("{text}"),
        }
    }

    fn arguments(options: &Options) -> Vec<&str> {
        options
            .arguments
            .iter()
            .map(|a| core::str::from_utf8(a).expect("text"))
            .collect()
    }

    #[test]
    fn check_nrpes_letters_are_understood() {
        let options = read("-H web1 -c load -a 15,10,5 -a 30,25,20 -t 30:CRITICAL").expect("read");
        assert_eq!(
            (&options.host[..], &options.command[..]),
            (&b"web1"[..], &b"load"[..])
        );
        assert_eq!(arguments(&options), ["15,10,5", "30,25,20"]);
        assert_eq!((options.timeout, options.at_timeout), (30, State::Critical));
        let options = read("-Hweb1 --command=disk -u -t 5:2 -a 20 10 -l nagios --home /x").expect("read");
        assert_eq!(arguments(&options), ["20", "10"]);
        assert_eq!((options.timeout, options.at_timeout), (5, State::Unknown));
        assert_eq!(options.login.as_deref(), Some(&b"nagios"[..]));
        let options = read("-H db1 -c mysql --secret A=/etc/a --secret=B=/etc/b=c -a 1").expect("read");
        let secrets: Vec<_> = options.secrets.iter().map(|s| (&*s.name, &s.file[..])).collect();
        assert_eq!(secrets, [("A", &b"/etc/a"[..]), ("B", b"/etc/b=c")]);
        let options = read("-H web1 -c temperature -a -5 -3.5 -a -w -t 9").expect("read");
        assert_eq!(arguments(&options), ["-5", "-3.5", "-w"]);
        assert_eq!(options.timeout, 9);
        for none in ["-H web1 -c load -a", "-H web1 -c load -a "] {
            assert_eq!(arguments(&read(none).expect("read")), [""; 0], "{none}");
        }
        let usual = read("-H web1 -c load").expect("read");
        assert_eq!((usual.timeout, usual.keep), (TIMEOUT, KEEP));
        let kept = |words: &str| read(&format!("-H web1 -c load --keep {words}")).map(|o| o.keep);
        assert_eq!((kept("60"), kept("always")), (Ok(60), Ok(ALWAYS)));
        // One time, from when the first program was asked; never later than now.
        let asked = read("-H web1 -c load -t 5 --asked 7").expect("read");
        assert_eq!((asked.end(100), asked.end(3)), (5_000_000_007, 5_000_000_003));
        assert_eq!(usual.end(100), 10_000_000_100);
    }

    #[test]
    fn a_container_is_named_as_fleetgate_ssh_has_it() {
        for (words, host, login) in [
            ("-H web1", "web1", ""),
            ("-H web1+shop", "web1", "+shop"),
            ("-Hweb1+a+b -l ann", "web1", "ann+a+b"),
            ("-H web1 --container shop", "web1", "+shop"),
            ("--container=shop -H web1 -l ann", "web1", "ann+shop"),
            // The same name twice.
            ("-H web1+shop -l ann+shop", "web1", "ann+shop"),
            ("-H web1+shop --container shop", "web1", "+shop"),
            ("-H web1 -l ann+shop", "web1", "ann+shop"),
            // Labels, with a value that has one.
            ("-H env=a+b", "env=a+b", ""),
            ("-H env=a+b --container shop", "env=a+b", "+shop"),
        ] {
            let options = read(&format!("-c load {words}")).expect(words);
            let name = String::from_utf8(options.login_name()).expect("text");
            assert_eq!((&*options.host, &*name), (host.as_bytes(), login), "{words}");
        }
    }

    #[test]
    fn bad_words_are_refused_with_the_reason() {
        for (words, why) in [
            ("-H web1+ -c load", "the container has a name"),
            ("-H +shop -c load", "the node has a name"),
            ("-H web1+a;b -c load", "the container has a name"),
            ("-H web1 --container= -c load", "the container has a name"),
            (
                "-H web1+shop --container shops -c load",
                "names a container already",
            ),
            (
                "-H web1 --container a -l ann+b -c load",
                "-l \"ann+b\" names another container than \"a\": leave one out",
            ),
            (
                "-H web1+a -l ann+b -c load",
                "-l \"ann+b\" names another container than \"a\": leave one out",
            ),
            ("-H web1 -l +b -c load", "the account is missing"),
            ("-c load", "-H NODE names it"),
            ("-H web1", "-c CHECK names it"),
            ("-H", "needs a value"),
            ("-H web1 -c load -x", "\"-x\" is not understood"),
            ("-H web1 -c load more", "\"more\" is not understood"),
            ("-H web1 -c load;id", "the check has a name"),
            ("-H web$(id) -c load", "the node has a name"),
            ("-H -w -c load", "the node has a name"),
            ("-H web1 -c load -t 0", "-t takes 1 to 3600 seconds"),
            ("-H web1 -c load -t 5:BAD", "-t takes 1 to 3600 seconds"),
            ("-H web1 -c load -t 5:", "-t takes 1 to 3600 seconds"),
            ("-H web1 -c load -t 99999", "-t takes 1 to 3600 seconds"),
            ("-H web1 -c load --asked x", "--asked is for fleetgate itself"),
            ("-H web1 -c load --asked -1", "--asked is for fleetgate itself"),
            (
                "-H web1 -c load --asked -9223372036854775808",
                "--asked is for fleetgate itself",
            ),
            (
                "-H web1 -c load --asked 9223372036854775807",
                "--asked is for fleetgate itself",
            ),
            ("-H web1 -c load --keep 0", "--keep takes 1 to 86400 seconds"),
            ("-H web1 -c load --keep 86401", "--keep takes 1 to 86400 seconds"),
            ("-H web1 -c load --keep ever", "--keep takes 1 to 86400 seconds"),
            ("-H web1 -c load -a a\nb", "control characters"),
            ("-H web1 -c load -p 5666", "--address HOST:PORT"),
            ("-H web1 -c load --address", "needs a value"),
            ("-H web1 -c load --address a;b", "the address has a name"),
            ("-H web1 -c load -n", "always encrypted"),
            ("-H web1 -c load --secret hunter2", "--secret takes NAME=FILE"),
            ("-H web1 -c load --secret A=", "--secret takes NAME=FILE"),
            ("-H web1 -c load --secret 1=/a", "--secret takes NAME=FILE"),
            (
                "-H web1 -c load --secret FLEETGATE_USER=/a",
                "--secret takes NAME=FILE",
            ),
            (
                "-H web1 -c load --secret A=/a --secret A=/b",
                "the secret A is given twice",
            ),
        ] {
            let said = read(words).expect_err(words);
            assert!(said.contains(why), "{words}: {said}");
            assert!(!said.contains('\n'), "{words}: one line: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
        let many: String = core::iter::repeat_n(" 1", MAX_ARGUMENTS + 1).collect();
        let said = read(&format!("-H web1 -c load -a{many}")).expect_err("too many");
        assert!(said.contains("at most"), "{said}");
    }
}
