//! Whether the account may come in: /etc/nologin and password ageing, as sshd checks them without PAM.

use super::{NO_LOGIN, NO_SHELL, Stop, messages};
use crate::order::failure;
use core::ffi::CStr;
use fleetgate_sys::file::{self, flags};
use fleetgate_sys::{Errno, clock};
use fleetgate_wire::Reason;
use fleetgate_wire::common::Ageing;
use fleetgate_wire::exec::Exec;

/// sshd's file, and the one that systemd keeps while the machine goes up or down.
const NOLOGIN: [(&CStr, &str); 2] = [
    (c"/etc/nologin", "/etc/nologin"),
    (c"/run/nologin", "/run/nologin"),
];
/// The most of it that is shown.
const MAX_NOLOGIN: usize = 64 << 10;

/// What becomes of an account that may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It gets what it asked for.
    Allowed,
    /// It gets `passwd`, whatever it asked for.
    ChangePassword,
}

/// Makes the checks that the order asks for; tells the user what he is refused for.
pub fn check(order: &Exec) -> Result<Verdict, Stop> {
    if order.checks.nologin && order.account.ids.uid != 0 {
        for (path, name) in NOLOGIN {
            no_login(path, name)?;
        }
    }
    let Some(ageing) = order.account.ageing.as_ref().filter(|_| order.checks.expiry) else {
        return Ok(Verdict::Allowed);
    };
    let stop = |reason| Stop {
        failure: failure(reason, Errno(0), &order.account.name.to_string_lossy()),
        code: NO_SHELL,
    };
    match standing(ageing, clock::wall().sec.div_euclid(86_400)) {
        AccountStatus::Good => Ok(Verdict::Allowed),
        AccountStatus::AccountExpired => {
            messages::error(&[b"Your account has expired; please contact your system administrator.\n"]);
            Err(stop(Reason::AccountExpired))
        }
        AccountStatus::PasswordExpired if order.terminal.is_some() => {
            messages::error(&[
                b"WARNING: Your password has expired.\n",
                b"You must change your password now and login again!\n",
            ]);
            Ok(Verdict::ChangePassword)
        }
        AccountStatus::PasswordExpired => {
            messages::error(&[
                b"WARNING: Your password has expired.\n",
                b"Password change required but no TTY available.\n",
            ]);
            Err(stop(Reason::PasswordExpired))
        }
    }
}

/// Refuses when `path` is there, readable or not, and shows what it says.
fn no_login(path: &CStr, name: &str) -> Result<(), Stop> {
    let opened = file::openat(
        file::CWD,
        path,
        flags::O_RDONLY | flags::O_NONBLOCK | flags::O_NOCTTY,
        0,
    );
    let errno = match opened {
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
        Err(e) => e,
        Ok(fd) => {
            if let Ok(text) = file::read_up_to(&fd, MAX_NOLOGIN) {
                messages::error(&[&text]);
            }
            Errno(0)
        }
    };
    Err(Stop {
        failure: failure(Reason::NoLogin, errno, name),
        code: NO_LOGIN,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccountStatus {
    Good,
    AccountExpired,
    PasswordExpired,
}

/// Where an account stands on `today`, in days since 1970. The rules of shadow(5), with sshd's boundaries: the
/// last day still counts.
fn standing(ageing: &Ageing, today: i64) -> AccountStatus {
    let set = |days: i64| (days >= 0).then_some(days);
    if set(ageing.expires).is_some_and(|last| last < today) {
        return AccountStatus::AccountExpired;
    }
    if ageing.last_change == 0 {
        return AccountStatus::PasswordExpired;
    }
    let (Some(change), Some(max)) = (set(ageing.last_change), set(ageing.max_days)) else {
        return AccountStatus::Good;
    };
    let last = change.saturating_add(max);
    if last >= today {
        return AccountStatus::Good;
    }
    match set(ageing.inactive_days) {
        Some(grace) if last.saturating_add(grace) < today => AccountStatus::AccountExpired,
        _ => AccountStatus::PasswordExpired,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ageing_as_shadow_says() {
        let today = 20_000;
        let table = [
            // last change, max, inactive, expires
            ((-1, -1, -1, -1), AccountStatus::Good),
            ((19_990, 99_999, 7, -1), AccountStatus::Good),
            ((19_990, 10, -1, -1), AccountStatus::Good),
            ((19_989, 10, -1, -1), AccountStatus::PasswordExpired),
            ((19_980, 10, 10, -1), AccountStatus::PasswordExpired),
            ((19_979, 10, 10, -1), AccountStatus::AccountExpired),
            ((0, -1, -1, -1), AccountStatus::PasswordExpired),
            ((19_990, -1, -1, 20_000), AccountStatus::Good),
            ((19_990, -1, -1, 19_999), AccountStatus::AccountExpired),
            ((0, 0, 0, 1), AccountStatus::AccountExpired),
            ((i64::MAX, i64::MAX, i64::MAX, -1), AccountStatus::Good),
            ((1, 1, i64::MAX, -1), AccountStatus::PasswordExpired),
        ];
        for ((last_change, max_days, inactive_days, expires), wanted) in table {
            let ageing = Ageing {
                last_change,
                max_days,
                inactive_days,
                expires,
                locked: false,
            };
            assert_eq!(standing(&ageing, today), wanted, "{ageing:?}");
        }
    }
}
