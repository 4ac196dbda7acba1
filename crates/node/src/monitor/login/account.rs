//! Whether an account may come in at all, whatever proves that it is its owner. It asks nobody: account, groups and
//! lists are given.

use super::LoginContext;
use crate::config::publickey::ClosedAccount;
use crate::config::trust::Trust;
use fleetgate_policy::{AccountName, access};
use fleetgate_sys::clock;
use fleetgate_wire::common::Account;

/// Whether the lists let this account in from here; without root nobody but our own user.
pub fn allowed(
    account: &Account,
    name: &AccountName,
    groups: &[String],
    trust: &Trust,
    context: &LoginContext<'_>,
) -> Result<(), String> {
    if context.tools.user_mode && account.ids.uid != fleetgate_sys::process::effective_uid() {
        return Err("without root the node serves its own user only".to_owned());
    }
    // Names in another spelling (a directory that knows no case) would pass by the lists.
    if account.name.to_bytes() != name.account().as_bytes() {
        return Err("the account is written otherwise".to_owned());
    }
    if let Some(why) = not_in_use(account, context) {
        return Err(why);
    }
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let account = access::Account {
        name: name.account(),
        uid: account.ids.uid,
        groups: &groups,
    };
    trust
        .access
        .allow(&account, context.source)
        .map_err(|d| d.to_string())
}

/// Why nobody comes in as this account, whatever he shows; none: somebody may.
pub fn closed(account: Option<&Account>, context: &LoginContext<'_>) -> Option<ClosedAccount> {
    match account {
        None => Some(ClosedAccount::Missing),
        Some(account) => not_in_use(account, context).map(ClosedAccount::NotInUse),
    }
}

/// Why the account is not in use, if it is not: locked, or its time is over.
fn not_in_use(account: &Account, context: &LoginContext<'_>) -> Option<String> {
    match context.tools.pam {
        true => None,
        false => standing(account, clock::wall().sec / 86_400).err(),
    }
}

/// Whether the account is in use on `today` (days since 1970). PAM's account phase says that where there is PAM.
fn standing(account: &Account, today: i64) -> Result<(), String> {
    let Some(ageing) = &account.ageing else {
        return Ok(());
    };
    if ageing.locked {
        let why = "the account is locked: its password begins with `!`; `usermod -p '*'` lets keys in, and no password";
        return Err(why.to_owned());
    }
    // shadow(5): the day of expiry itself still counts, as in sshd.
    if ageing.expires >= 0 && ageing.expires < today {
        return Err("the account has expired".to_owned());
    }
    Ok(())
}
