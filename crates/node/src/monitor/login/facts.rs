//! What has to be known about an account before a login for it is decided, and how it is asked for: the account and its
//! groups of the resolver, its key files of a helper that reads them as the user. For a name that nobody has, the same
//! is asked of the same processes, so that an answer's time tells nothing.

use crate::config::publickey::Files;
use crate::config::trust::{MAX_KEY_FILES, Trust};
use crate::monitor::names::Lane;
use crate::monitor::tools::Tools;
use crate::monitor::wakes::Key;
use fleetgate_launch::{Begun, Launch, LaunchError, RunningHelper};
use fleetgate_policy::{AccountName, VIEWER};
use fleetgate_sys::{file, process};
use fleetgate_wire::common::{Account, Ids};
use fleetgate_wire::home::{CheckHome, MAX_KEY_FILE};
use fleetgate_wire::names::{About, Found};
use fleetgate_wire::order::Work;
use fleetgate_wire::reply::KeyFile;
use std::ffi::{CStr, CString};

/// As whom nobody's files are looked for.
const NOBODY: u32 = 65534;

/// What is known so far.
#[derive(Default)]
pub struct AccountLookups {
    account: Lookup<Option<Account>>,
    groups: Lookup<Vec<String>>,
    files: Lookup<Files>,
}

/// What stands for an account where somebody only sees sessions of others.
pub fn viewer() -> Account {
    Account {
        name: CString::new(VIEWER).unwrap_or_default(),
        ids: Ids {
            uid: NOBODY,
            gid: NOBODY,
            groups: Vec::new(),
        },
        home: c"/".into(),
        shell: c"/bin/false".into(),
        ageing: None,
    }
}

/// One fact.
#[derive(Default)]
enum Lookup<T> {
    #[default]
    No,
    Pending,
    Known(T),
}

/// Everything that was asked for.
pub struct AccountFacts<'a> {
    /// None: nobody has this name.
    pub account: Option<&'a Account>,
    /// The names of its groups, where the lists ask about them.
    pub groups: &'a [String],
    /// Its files, where they were wanted.
    pub files: &'a Files,
}

impl AccountLookups {
    /// All that is wanted about `user`; none: it was asked for, and `key`'s owner is told.
    pub fn gather(
        &mut self,
        user: &[u8],
        want_files: bool,
        trust: &Trust,
        tools: &mut Tools,
        (lane, key): (Lane, Key),
    ) -> Option<AccountFacts<'_>> {
        if user == VIEWER.as_bytes() {
            // No account, so nobody is asked: nothing runs by it.
            self.account = Lookup::Known(Some(viewer()));
            self.groups = Lookup::Known(Vec::new());
            self.files = Lookup::Known(Files::default());
        }
        if let Lookup::No = self.account {
            self.account = match name(user) {
                None => Lookup::Known(None),
                Some(name) => match tools.names.account(lane, &name, key) {
                    Some(account) => Lookup::Known(account),
                    None => Lookup::Pending,
                },
            };
        }
        let Lookup::Known(account) = &self.account else {
            return None;
        };
        if let Lookup::No = self.groups {
            self.groups = match account {
                Some(account) if trust.asks_groups => {
                    let mut gids = account.ids.groups.clone();
                    gids.push(account.ids.gid);
                    gids.sort_unstable();
                    gids.dedup();
                    gids.truncate(fleetgate_wire::names::MAX_IDS);
                    let uids = Vec::new();
                    tools.names.ask(lane, About::Names { uids, gids }, key);
                    Lookup::Pending
                }
                _ => Lookup::Known(Vec::new()),
            };
        }
        let Lookup::Known(groups) = &self.groups else {
            return None;
        };
        if let (Lookup::No, true) = (&self.files, want_files) {
            self.files = match order(user, account.as_ref(), trust) {
                Some(order) => match tools
                    .launches
                    .submit(Launch::new(Work::CheckHome(order), Vec::new()), key)
                {
                    Ok(()) => Lookup::Pending,
                    Err(e) => Lookup::Known(problem(e.to_string())),
                },
                None => Lookup::Known(Files::default()),
            };
        }
        static NONE: Files = Files {
            keys: Vec::new(),
            principals: None,
            problems: Vec::new(),
        };
        let files = match (&self.files, want_files) {
            (Lookup::Known(files), _) => files,
            (_, false) => &NONE,
            (_, true) => return None,
        };
        Some(AccountFacts {
            account: account.as_ref(),
            groups,
            files,
        })
    }

    /// The resolver's answer. The error is for the log: to the outside nobody has the name then.
    pub fn named(&mut self, found: Found) -> Result<(), String> {
        let failed = |found| match found {
            Found::TimedOut => Err("the name service did not answer in time".to_owned()),
            Found::Failed { why } => Err(format!("the name service failed: {}", why.to_string_lossy())),
            _ => Ok(()),
        };
        if let Lookup::Pending = self.account {
            let (account, result) = match found {
                Found::User { account } => (Some(account), Ok(())),
                other => (None, failed(other)),
            };
            self.account = Lookup::Known(account);
            return result;
        }
        if let Lookup::Pending = self.groups {
            let (names, result) = match found {
                Found::Names { groups, .. } => (groups, Ok(())),
                other => (Vec::new(), failed(other)),
            };
            let text = |n: CString| n.into_string().unwrap_or_default();
            self.groups = Lookup::Known(names.into_iter().map(text).collect());
            // Without the groups nobody knows whether a deny list has one of them.
            if result.is_err() {
                self.account = Lookup::Known(None);
            }
            return result;
        }
        Ok(())
    }

    /// The helper's answer.
    pub fn read(
        &mut self,
        user: &[u8],
        outcome: Result<(RunningHelper, Begun), LaunchError>,
        trust: &Trust,
        tools: &mut Tools,
    ) {
        let files = match outcome {
            Ok((running, Begun::Home { home, files, long })) => {
                tools.zombies.take(running.pidfd);
                let account = match &self.account {
                    Lookup::Known(Some(account)) => Some(account),
                    _ => None,
                };
                let mut out = collect(user, account, trust, files, long);
                if let Some(failure) = home {
                    out.problems.push(format!(
                        "the home directory {}: {:?}",
                        failure.subject.to_string_lossy(),
                        failure.reason
                    ));
                }
                out
            }
            Ok((running, _)) => {
                let _ = running.signal(process::SIGKILL);
                tools.zombies.take(running.pidfd);
                problem("the helper that reads key files said something else".to_owned())
            }
            Err(e) => problem(e.to_string()),
        };
        self.files = Lookup::Known(files);
    }

    /// The account, once it is known.
    pub fn account(&self) -> Option<&Account> {
        match &self.account {
            Lookup::Known(account) => account.as_ref(),
            _ => None,
        }
    }
}

fn problem(why: String) -> Files {
    Files {
        problems: vec![why],
        ..Files::default()
    }
}

/// The name in the form that is looked up; none: no account can have it.
fn name(user: &[u8]) -> Option<CString> {
    AccountName::parse(user).ok()?;
    CString::new(user)
        .ok()
        .filter(|n| n.as_bytes().len() <= fleetgate_wire::names::MAX_NAME)
}

/// The files that count for this account: those of keys, then the one of principals.
fn paths(user: &[u8], account: Option<&Account>, trust: &Trust) -> Vec<CString> {
    let home = account.map_or(c"/nonexistent", |a| &a.home);
    let keys = trust.key_files.iter().take(MAX_KEY_FILES);
    let all = keys.chain(&trust.principals_file);
    all.filter_map(|path| expand(path, user, home)).collect()
}

/// `%u`, `%h` and `%%`, as in sshd.
fn expand(path: &str, user: &[u8], home: &CStr) -> Option<CString> {
    let mut out = Vec::new();
    let mut bytes = path.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'%' => match bytes.next()? {
                b'u' => out.extend_from_slice(user),
                b'h' => out.extend_from_slice(home.to_bytes()),
                b'%' => out.push(b'%'),
                _ => return None,
            },
            b => out.push(b),
        }
    }
    CString::new(out).ok()
}

fn order(user: &[u8], account: Option<&Account>, trust: &Trust) -> Option<CheckHome> {
    // What an unknown name is looked for under must be no path.
    let user = if account.is_some() { user } else { b"nobody" };
    let files = paths(user, account, trust);
    if files.is_empty() {
        return None;
    }
    let nobody = Ids {
        uid: NOBODY,
        gid: NOBODY,
        groups: Vec::new(),
    };
    let root = process::effective_uid() == 0;
    let own = Ids {
        uid: process::effective_uid(),
        gid: process::effective_gid(),
        groups: Vec::new(),
    };
    Some(CheckHome {
        ids: match account {
            Some(account) => account.ids.clone(),
            None if root => nobody,
            None => own,
        },
        home: account.map_or_else(|| c"/nonexistent".into(), |a| a.home.clone()),
        files,
        strict_modes: trust.strict_modes,
    })
}

fn collect(
    user: &[u8],
    account: Option<&Account>,
    trust: &Trust,
    files: Vec<KeyFile>,
    long: Vec<fleetgate_sys::Fd>,
) -> Files {
    let mut out = Files::default();
    // Whatever a home of nobody has says nothing.
    let Some(account) = account else { return out };
    let paths = paths(user, Some(account), trust);
    let key_files = paths.len() - usize::from(trust.principals_file.is_some());
    let mut long = long.into_iter();
    for (at, (path, file)) in paths.iter().zip(files).enumerate() {
        let name = path.to_string_lossy().into_owned();
        let content = match (file.failure, file.content) {
            (Some(failure), _) => {
                // Most people have no such file.
                if failure.reason != fleetgate_wire::Reason::Missing {
                    let why = fleetgate_launch::failure_words(&failure);
                    // What is wrong is the file itself, or a directory on the way to it.
                    out.problems.push(match why.starts_with(&format!("{name}: ")) {
                        true => why,
                        false => format!("{name}: {why}"),
                    });
                }
                continue;
            }
            (None, Some(content)) => Some(content),
            (None, None) => long
                .next()
                .and_then(|fd| file::read_to_end(&fd, MAX_KEY_FILE).ok()),
        };
        match content {
            Some(content) if at < key_files => out.keys.push((name, content)),
            Some(content) => out.principals = Some((name, content)),
            None => out.problems.push(format!("{name}: its content did not arrive")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_expanded() {
        for (path, want) in [
            (".ssh/authorized_keys", Some(".ssh/authorized_keys")),
            ("/etc/keys/%u", Some("/etc/keys/ann")),
            ("%h/k%%", Some("/home/ann/k%")),
            ("%x", None),
            ("a%", None),
        ] {
            let got = expand(path, b"ann", c"/home/ann");
            assert_eq!(got.as_deref().and_then(|p| p.to_str().ok()), want, "{path}");
        }
    }

    #[test]
    fn names_that_no_account_has_are_not_asked_about() {
        for (user, good) in [
            (&b"ann"[..], true),
            (b"", false),
            (b"-l", false),
            (b"a/b", false),
            (b"a\0b", false),
            (b"\xff", false),
        ] {
            assert_eq!(name(user).is_some(), good, "{user:?}");
        }
    }
}
