//! The name of an account, as far as its form goes: whether there is such an account is the resolver's answer.

use crate::{Invalid, pattern};
use std::fmt;

/// The longest name of an account: LOGIN_NAME_MAX on Linux, without the final zero.
pub const MAX_ACCOUNT_NAME: usize = 255;

/// Between an account's name and that of a container of its machine, in the name of a login: `ACCOUNT+CONTAINER`.
pub const INTO: char = '+';

/// The login of who only watches or joins sessions of others: it is no account, nothing runs by it, and roles let in by their
/// table of recordings. An account of this name is no login, and no role can list it.
pub const VIEWER: &str = "watch@fleetgate";

/// An account's name, or that of a login into a container, which is an account's name and the container's. Never empty, never
/// a path, never taken for a flag, without control characters and colons, so that it may stand in files, messages and
/// argument lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountName {
    text: String,
    /// How much of it is the account's.
    account: usize,
}

/// A login's name apart: the account, and the container, if one is named.
pub fn account_and_container(login: &str) -> (&str, Option<&str>) {
    match login.split_once(INTO) {
        Some((account, container)) if !account.is_empty() && !container.is_empty() => {
            (account, Some(container))
        }
        _ => (login, None),
    }
}

/// Whether `login`, which somebody writes down for others, can let anybody in as it stands: an account, or `ACCOUNT+CONTAINER`
/// with a pattern of containers' names. Nothing here is asked of a login that comes in a request.
pub fn check_written_login(login: &str) -> Result<(), Invalid> {
    let refuse = |why: String| Err(Invalid(why));
    if account_and_container(login).0.trim() == VIEWER {
        return refuse("it is no account: who may watch sessions says `recordings`".to_owned());
    }
    let (account, container) = match login.split_once(INTO) {
        Some((account, container)) => (account, Some(container)),
        None => (login, None),
    };
    if account.trim().is_empty() {
        let container = container.unwrap_or_default().trim();
        return refuse(match container {
            "" => "it names no account: write an account's name, or ACCOUNT+CONTAINER".to_owned(),
            _ => format!("no account stands before the `+`: write it there, as root+{container}"),
        });
    }
    let without_spaces = match container {
        Some(container) => format!("{}{INTO}{}", account.trim(), container.trim()),
        None => account.trim().to_owned(),
    };
    if without_spaces != login {
        check_written_login(&without_spaces)?;
        let place = if account.trim() == account {
            "container"
        } else {
            "account"
        };
        return refuse(format!(
            "there are spaces around the {place}: write {without_spaces:?}"
        ));
    }
    let Some(container) = container else {
        return Ok(());
    };
    if container.is_empty() {
        return refuse(format!(
            "no container stands behind the `+`: write {account}+* for all of them, or {account:?} for the account itself"
        ));
    }
    let separates = |c: char| c.is_whitespace() || ",;|".contains(c);
    let odd = |c: char| separates(c) || "/[]{}=".contains(c);
    let remedy = match container.chars().find(|c| odd(*c)) {
        Some('/') => "a container with slashes in its name is written with dots".to_owned(),
        Some('{' | '}') => format!("{{user}} stands before the `+` alone; any container is {account}+*"),
        Some('[' | ']') => "a pattern has * and ? alone; write several logins instead".to_owned(),
        Some('=') => format!(
            "labels are no part of a login: a role has {account}+* among its logins, and the labels in `containers`"
        ),
        Some(_) => {
            let logins: Vec<String> = container
                .split(separates)
                .filter(|name| !name.is_empty())
                .map(|name| match name.contains(INTO) {
                    true => format!("{name:?}"),
                    false => format!("\"{account}{INTO}{name}\""),
                })
                .collect();
            format!(
                "several logins are several texts of the list: write {}",
                logins.join(", ")
            )
        }
        None if container.starts_with(INTO) => {
            format!(
                "one `+` is enough: write {account}+{}",
                match container.trim_start_matches(INTO) {
                    "" => "*",
                    name => name,
                }
            )
        }
        None => return Ok(()),
    };
    refuse(format!("no container is called {container:?}: {remedy}"))
}

impl AccountName {
    /// As it came in a request.
    pub fn parse(name: &[u8]) -> Result<AccountName, Invalid> {
        let text = std::str::from_utf8(name).map_err(|_| "the user name is no UTF-8")?;
        let refuse = |why: &str| Err(Invalid(format!("the user name {why}")));
        if text.is_empty() {
            return refuse("is empty");
        }
        if text.len() > MAX_ACCOUNT_NAME {
            return refuse(&format!("is longer than {MAX_ACCOUNT_NAME} bytes"));
        }
        if text.starts_with('-') {
            return refuse("begins with a dash");
        }
        if matches!(text, "." | "..") {
            return refuse("is a directory's");
        }
        if text.chars().any(|c| c.is_control() || matches!(c, '/' | ':')) {
            return refuse("holds a slash, a colon or a control character");
        }
        Ok(AccountName {
            text: text.to_string(),
            account: text.len(),
        })
    }

    /// As it came in the request of a login, where that may lead into containers.
    pub fn parse_login(name: &[u8]) -> Result<AccountName, Invalid> {
        let whole = AccountName::parse(name)?;
        let account = account_and_container(&whole.text).0.len();
        if &whole.text[..account] == VIEWER && account < whole.text.len() {
            return Err(Invalid(
                "the user name leads into no container: watch@fleetgate is no account".to_owned(),
            ));
        }
        Ok(AccountName { account, ..whole })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is [`VIEWER`].
    pub fn is_viewer(&self) -> bool {
        self.text == VIEWER
    }

    /// The account alone.
    pub fn account(&self) -> &str {
        &self.text[..self.account]
    }

    /// The container.
    pub fn container(&self) -> Option<&str> {
        self.text.get(self.account + 1..)
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether `own`, a login that somebody was given, is this one, or a container's of the same account that its pattern fits.
pub fn login_matches(own: &str, login: &str) -> bool {
    match (account_and_container(own), account_and_container(login)) {
        ((account, Some(pattern)), (wanted, Some(container))) => {
            account == wanted && pattern::fits(pattern.as_bytes(), container.as_bytes())
        }
        _ => own == login,
    }
}

/// Whether `own` means this login even if what it calls the container is an id. A pattern is one of names: `db*` is not meant for a
/// container whose id begins so.
pub fn may_be_id(own: &str, login: &str) -> bool {
    let (_, pattern) = account_and_container(own);
    login_matches(own, login) && (own == login || pattern == Some("*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_meant_by_all_or_by_themselves() {
        for (own, login, wanted) in [
            ("ann+*", "ann+db12", true),
            ("ann+db12", "ann+db12", true),
            ("ann+db*", "ann+db12", false),
            ("ann+????", "ann+db12", false),
            ("ann+**", "ann+db12", false),
            ("bob+*", "ann+db12", false),
            ("ann", "ann", true),
        ] {
            assert_eq!(may_be_id(own, login), wanted, "{own} {login}");
        }
    }

    #[test]
    fn a_pattern_is_of_containers_alone() {
        for (own, login, wanted) in [
            ("ann", "ann", true),
            ("ann", "ann+web", false),
            ("ann+web", "ann+web", true),
            ("ann+*", "ann+web", true),
            ("ann+*", "ann", false),
            ("ann+w?b", "ann+web", true),
            ("ann+*", "bob+web", false),
            ("a*+*", "ann+web", false),
            ("*", "ann", false),
        ] {
            assert_eq!(login_matches(own, login), wanted, "{own} {login}");
        }
    }

    #[test]
    fn a_login_that_lets_nobody_in_is_not_written_down() {
        for good in [
            "root",
            "a b",
            "DOMAIN+user",
            "ann+*",
            "ann+web-?",
            "ann+web+2",
            "{user}+db*",
            "{user}",
        ] {
            assert_eq!(check_written_login(good), Ok(()), "{good}");
        }
        for (bad, remedy) in [
            ("", "write an account's name"),
            ("+", "write an account's name"),
            ("+web", "write it there, as root+web"),
            (
                "deploy+",
                "write deploy+* for all of them, or \"deploy\" for the account itself",
            ),
            (" deploy", "write \"deploy\""),
            ("deploy +web", "spaces around the account: write \"deploy+web\""),
            ("deploy + web", "spaces around the account: write \"deploy+web\""),
            ("deploy+web ", "spaces around the container: write \"deploy+web\""),
            (" + web", "write it there, as root+web"),
            (" deploy+", "write deploy+* for all of them"),
            ("deploy+web,db", "write \"deploy+web\", \"deploy+db\""),
            ("deploy+web, root+db", "write \"deploy+web\", \"root+db\""),
            ("deploy + a,b c", "write \"deploy+a\", \"deploy+b\", \"deploy+c\""),
            ("deploy+app=web", "and the labels in `containers`"),
            (
                "deploy+{user}",
                "{user} stands before the `+` alone; any container is deploy+*",
            ),
            ("{user}+web-{user}", "any container is {user}+*"),
            ("deploy+web[12]", "a pattern has * and ? alone"),
            ("deploy+ns/pod/web", "written with dots"),
            ("root++", "write root+*"),
            ("root++web", "write root+web"),
        ] {
            let why = check_written_login(bad).expect_err(bad).to_string();
            assert!(why.contains(remedy), "{bad}: {why}");
        }
    }

    #[test]
    fn a_login_into_a_container_has_two_parts() {
        let name = AccountName::parse_login(b"ann+web+2").expect("a name");
        assert_eq!((name.account(), name.container()), ("ann", Some("web+2")));
        let whole = AccountName::parse(b"ann+web").expect("a name");
        assert_eq!((whole.account(), whole.container()), ("ann+web", None));
        for plain in ["ann", "ann+", "+web", "+"] {
            let name = AccountName::parse_login(plain.as_bytes()).expect("a name");
            assert_eq!((name.account(), name.container()), (plain, None));
        }
    }

    #[test]
    fn names_of_accounts() {
        for good in [
            "root",
            "www-data",
            "DOMAIN\\user",
            "a b",
            "user@realm",
            "é",
            &"x".repeat(MAX_ACCOUNT_NAME),
        ] {
            assert_eq!(AccountName::parse(good.as_bytes()).unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            "-l",
            "a/b",
            "a:b",
            "a\nb",
            "a\0",
            "..\u{7f}",
            &"x".repeat(MAX_ACCOUNT_NAME + 1),
        ] {
            assert!(AccountName::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(AccountName::parse(b"\xff").is_err());
    }
}
