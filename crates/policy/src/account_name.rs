//! The name of an account, as far as its form goes: whether there is such an account is the resolver's answer.

use crate::Invalid;
use std::fmt;

/// The longest name of an account: LOGIN_NAME_MAX on Linux, without the final zero.
pub const MAX_ACCOUNT_NAME: usize = 255;

/// An account's name. Never empty, never a path, never taken for a flag, without control characters and colons, so
/// that it may stand in files, messages and argument lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountName(String);

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
        Ok(AccountName(text.to_string()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
