//! Which accounts may log in from where: allow and deny lists and the root rule, read as sshd reads them. Group
//! names and the uid are what the resolver said; nothing is looked up here.

use crate::Invalid;
use crate::address::Sources;
use crate::pattern::{self, Patterns};
use crate::rule::Denied;
use std::net::IpAddr;

/// The most entries of one list.
pub const MAX_ENTRIES: usize = 1024;

/// `user` or `user@addresses`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UserPattern {
    shown: String,
    user: String,
    sources: Option<Sources>,
}

/// sshd's AllowUsers, DenyUsers, AllowGroups, DenyGroups, and PermitRootLogin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    allow_users: Vec<UserPattern>,
    deny_users: Vec<UserPattern>,
    allow_groups: Vec<Patterns>,
    deny_groups: Vec<Patterns>,
    root: RootLogin,
}

/// How root may log in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RootLogin {
    /// Like everybody.
    Yes,
    /// With a key, never with a password.
    #[default]
    ProhibitPassword,
    /// With a key that has a forced command.
    ForcedCommandsOnly,
    /// Not at all.
    No,
}

/// What somebody proved himself with, as far as the root rule asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofKind {
    /// A key or certificate.
    Key {
        /// It is bound to a forced command or to a list of commands.
        forced: bool,
    },
    /// A password or PAM's questions.
    Password,
}

/// What the lists ask about an account.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its number.
    pub uid: u32,
    /// The names of all its groups.
    pub groups: &'a [&'a str],
}

impl RootLogin {
    /// By its name in the configuration.
    pub fn parse(text: &str) -> Result<RootLogin, Invalid> {
        Ok(match text {
            "yes" => RootLogin::Yes,
            "prohibit-password" | "without-password" => RootLogin::ProhibitPassword,
            "forced-commands-only" => RootLogin::ForcedCommandsOnly,
            "no" => RootLogin::No,
            _ => {
                return Err(Invalid(format!(
                    "{text:?} is not yes, prohibit-password, forced-commands-only or no"
                )));
            }
        })
    }

    /// Whether an account of uid 0, by whatever name, may come in with this proof.
    pub fn allow(self, account: &Account<'_>, proof: ProofKind) -> Result<(), Denied> {
        let refused = |why: &str| Err(Denied::new(format!("{} may not log in: {why}", account.name)));
        match (self, proof) {
            _ if account.uid != 0 => Ok(()),
            (RootLogin::Yes, _) => Ok(()),
            (RootLogin::No, _) => refused("root_login is \"no\""),
            (_, ProofKind::Password) => refused("root_login asks for a key"),
            (RootLogin::ForcedCommandsOnly, ProofKind::Key { forced: false }) => {
                refused("root_login asks for a key with a forced command")
            }
            (_, ProofKind::Key { .. }) => Ok(()),
        }
    }
}

impl Access {
    /// From the lists of the configuration. An error names the entry.
    pub fn parse(
        allow_users: &[&str],
        deny_users: &[&str],
        allow_groups: &[&str],
        deny_groups: &[&str],
        root: RootLogin,
    ) -> Result<Access, Invalid> {
        Ok(Access {
            allow_users: users(allow_users)?,
            deny_users: users(deny_users)?,
            allow_groups: groups(allow_groups)?,
            deny_groups: groups(deny_groups)?,
            root,
        })
    }

    /// The root rule.
    pub fn root(&self) -> RootLogin {
        self.root
    }

    /// Whether this account may log in from this address, in sshd's order: deny_users, allow_users, deny_groups,
    /// allow_groups.
    pub fn allow(&self, account: &Account<'_>, source: IpAddr) -> Result<(), Denied> {
        let name = account.name;
        let refused = |why: String| Err(Denied::new(format!("{name} may not log in: {why}")));
        if let Some(entry) = self.deny_users.iter().find(|p| p.fits(name, source)) {
            return refused(format!("deny_users has {:?}", entry.shown));
        }
        if !self.allow_users.is_empty() && !self.allow_users.iter().any(|p| p.fits(name, source)) {
            return refused(format!("allow_users has no entry for it from {source}"));
        }
        let in_one = |lists: &[Patterns]| {
            account
                .groups
                .iter()
                .find(|group| lists.iter().any(|p| p.fit(group)))
                .map(|g| g.to_string())
        };
        if let Some(group) = in_one(&self.deny_groups) {
            return refused(format!("deny_groups has its group {group:?}"));
        }
        if !self.allow_groups.is_empty() && in_one(&self.allow_groups).is_none() {
            return refused("allow_groups has none of its groups".to_string());
        }
        Ok(())
    }
}

impl UserPattern {
    fn fits(&self, name: &str, source: IpAddr) -> bool {
        pattern::fits(self.user.as_bytes(), name.as_bytes())
            && self.sources.as_ref().is_none_or(|s| s.fit(source))
    }
}

/// The last `@` parts user and address, as in sshd: a Kerberos name needs an address behind it.
fn users(entries: &[&str]) -> Result<Vec<UserPattern>, String> {
    bounded(entries)?;
    let one = |entry: &&str| {
        let (user, sources) = match entry.rsplit_once('@') {
            Some((user, list)) => {
                let sources = Sources::parse(list).map_err(|why| format!("in {entry:?}: {why}"))?;
                (user, Some(sources))
            }
            None => (*entry, None),
        };
        if user.is_empty() || user.starts_with('!') {
            return Err(format!(
                "{entry:?} is no pattern of a user (to refuse somebody use deny_users)"
            ));
        }
        Ok(UserPattern {
            shown: entry.to_string(),
            user: user.to_string(),
            sources,
        })
    };
    entries.iter().map(one).collect()
}

fn groups(entries: &[&str]) -> Result<Vec<Patterns>, String> {
    bounded(entries)?;
    entries
        .iter()
        .map(|e| Patterns::parse(e).map_err(|why| format!("in {e:?}: {why}")))
        .collect()
}

fn bounded(entries: &[&str]) -> Result<(), String> {
    match entries.len() > MAX_ENTRIES {
        true => Err(format!(
            "a list of users or groups has at most {MAX_ENTRIES} entries"
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_allowed_as_in_sshd() {
        type Lists<'a> = [&'a [&'a str]; 4];
        let alice = Account {
            name: "alice",
            uid: 1000,
            groups: &["alice", "staff"],
        };
        let cases: [(Lists<'_>, &str, Result<(), &str>); 14] = [
            ([&[], &[], &[], &[]], "10.0.0.1", Ok(())),
            ([&["alice"], &[], &[], &[]], "10.0.0.1", Ok(())),
            ([&["al*"], &[], &[], &[]], "10.0.0.1", Ok(())),
            (
                [&["bob"], &[], &[], &[]],
                "10.0.0.1",
                Err("allow_users has no entry for it from 10.0.0.1"),
            ),
            ([&["alice@10.0.0.0/8"], &[], &[], &[]], "10.0.0.1", Ok(())),
            (
                [&["alice@10.0.0.0/8"], &[], &[], &[]],
                "11.0.0.1",
                Err("allow_users has no entry for it from 11.0.0.1"),
            ),
            ([&["alice@10.*"], &[], &[], &[]], "10.0.0.1", Ok(())),
            (
                [&["alice@host"], &[], &[], &[]],
                "10.0.0.1",
                Err("allow_users has no entry for it from 10.0.0.1"),
            ),
            (
                [&["alice"], &["alice@10.*"], &[], &[]],
                "10.0.0.1",
                Err("deny_users has \"alice@10.*\""),
            ),
            ([&["alice"], &["alice@10.*"], &[], &[]], "11.0.0.1", Ok(())),
            ([&[], &[], &["staff"], &[]], "10.0.0.1", Ok(())),
            (
                [&[], &[], &["wheel"], &[]],
                "10.0.0.1",
                Err("allow_groups has none of its groups"),
            ),
            (
                [&[], &[], &[], &["st*"]],
                "10.0.0.1",
                Err("deny_groups has its group \"staff\""),
            ),
            (
                [&["bob"], &[], &["staff"], &[]],
                "10.0.0.1",
                Err("allow_users has no entry for it from 10.0.0.1"),
            ),
        ];
        for (lists, source, want) in cases {
            let [au, du, ag, dg] = lists;
            let access = Access::parse(au, du, ag, dg, RootLogin::No).unwrap();
            let got = access
                .allow(&alice, source.parse().unwrap())
                .map_err(|d| d.to_string());
            assert_eq!(
                got,
                want.map_err(|w| format!("alice may not log in: {w}")),
                "{lists:?}"
            );
        }
    }

    #[test]
    fn the_root_rule_counts_for_uid_0() {
        let (key, forced) = (ProofKind::Key { forced: false }, ProofKind::Key { forced: true });
        for (rule, password, with_key, with_forced) in [
            ("yes", true, true, true),
            ("prohibit-password", false, true, true),
            ("forced-commands-only", false, false, true),
            ("no", false, false, false),
        ] {
            let rule = RootLogin::parse(rule).unwrap();
            let root = Account {
                name: "toor",
                uid: 0,
                groups: &[],
            };
            let user = Account {
                name: "root",
                uid: 1,
                groups: &[],
            };
            for (proof, want) in [
                (ProofKind::Password, password),
                (key, with_key),
                (forced, with_forced),
            ] {
                assert_eq!(rule.allow(&root, proof).is_ok(), want, "{rule:?} {proof:?}");
                assert!(rule.allow(&user, proof).is_ok());
            }
        }
        assert!(RootLogin::parse("maybe").is_err());
    }

    #[test]
    fn bad_entries_are_named() {
        let parse = |users: &[&str], groups: &[&str]| Access::parse(users, &[], groups, &[], RootLogin::No);
        for bad in ["", "@10.0.0.1", "!alice", "alice@10.0.0.1/8", "alice@"] {
            assert!(parse(&[bad], &[]).unwrap_err().to_string().contains(bad), "{bad}");
        }
        assert!(parse(&[], &["a,,b"]).is_err());
        assert!(parse(&vec!["a"; MAX_ENTRIES + 1], &[]).is_err());
        assert!(parse(&vec!["a"; MAX_ENTRIES], &["!x,*"]).is_ok());
    }
}
