//! One PAM session, in a process of its own, from the first prompt to the last close. What opened is closed in
//! reverse order whatever happens to the session or to the server; a module that crashes or hangs takes this process
//! and nothing else.

use super::conversation::{Link, LinkClosed, OverLink};
use super::keep::keep;
use fleetgate_sys::glibc::fork::{self, Watchdog};
use fleetgate_sys::glibc::nss;
use fleetgate_sys::glibc::pam::{Code, Item, Libpam, Transaction, flags};
use fleetgate_sys::{Errno, Fd, credentials, process};
use fleetgate_wire::common::Variable;
use fleetgate_wire::pam::{FromPam, Start, ToPam};
use std::ffi::{CStr, CString};
use std::rc::Rc;

/// A login whose conversation or opening takes longer is killed: a module hangs. Longer than any conversation.
const LOGIN_SECONDS: u32 = 900;
/// Closing that takes longer is killed too.
const CLOSE_SECONDS: u32 = 300;
/// Why there is no session.
enum Stop {
    /// A call refused.
    Refused {
        call: &'static CStr,
        code: Code,
        message: CString,
    },
    /// The peer has gone or gave up: nobody to tell.
    LinkClosed,
}

impl From<LinkClosed> for Stop {
    fn from(_: LinkClosed) -> Stop {
        Stop::LinkClosed
    }
}

/// The life of this process. `libpam` is there when the warm server had loaded it.
pub fn run(libpam: Option<Libpam>, start: &Start, peer: Fd) {
    // A process group and session of its own: what is sent to the server's terminal or group passes it by.
    let _ = fork::leave_session();
    fork::outlive_signals();
    let Ok(link) = Link::new(peer, start.prompt_timeout_ms) else {
        return;
    };
    if let Err(Stop::Refused { call, code, message }) = live(libpam, start, &link) {
        let call = call.to_owned();
        let code = code.0;
        link.say(&FromPam::Refused { call, code, message }, &[]);
    }
}

fn live(libpam: Option<Libpam>, start: &Start, link: &Rc<Link>) -> Result<(), Stop> {
    let watchdog = Watchdog::new().map_err(|e| system(c"timer_create", e))?;
    watchdog
        .set(LOGIN_SECONDS)
        .map_err(|e| system(c"timer_settime", e))?;
    let mut login = Login::begin(libpam, start, link)?;
    let must_change = login.enter(start.authenticate, start.defer_change)?;
    let user = login
        .pam
        .user()
        .map_err(|code| login.refused(c"pam_get_item", code))?;
    let accepted = FromPam::Accepted {
        user: user.clone(),
        must_change,
    };
    link.say(&accepted, &[]);
    // The connection's first session or forward may come hours later, and no module runs meanwhile.
    let _ = watchdog.set(0);
    let (tty, door) = match link.hear(true)? {
        (ToPam::Open { tty }, mut fds) => (tty, fds.pop()),
        (ToPam::Close, _) => {
            login.end(link);
            return Ok(());
        }
        _ => return Err(Stop::LinkClosed),
    };
    watchdog
        .set(LOGIN_SECONDS)
        .map_err(|e| system(c"timer_settime", e))?;
    login.open(&user, &tty, start.authenticate)?;
    let environment = login.pam.variables().iter().filter_map(|v| variable(v)).collect();
    let groups = credentials::groups().map_err(|e| system(c"getgroups", e))?;
    let process = process::id();
    let opened = FromPam::Opened {
        environment,
        groups,
        process,
    };
    link.say(&opened, &[]);
    // The session may last for weeks.
    let _ = watchdog.set(0);
    let last = keep(link, door, &opened);
    let _ = watchdog.set(CLOSE_SECONDS);
    link.stop_asking();
    login.end(&last);
    Ok(())
}

fn system(call: &'static CStr, errno: Errno) -> Stop {
    Stop::Refused {
        call,
        code: Code::SYSTEM_ERR,
        message: CString::new(format!("{errno}")).unwrap_or_default(),
    }
}

/// `NAME=value` in two; what has no `=` is no variable.
fn variable(assignment: &CStr) -> Option<Variable> {
    let bytes = assignment.to_bytes();
    let at = bytes.iter().position(|b| *b == b'=')?;
    Some(Variable {
        name: CString::new(&bytes[..at]).ok()?,
        value: CString::new(&bytes[at + 1..]).ok()?,
    })
}

/// The transaction, and what of it is open. Dropped on an error's way out: closes what is open, last first.
struct Login {
    pam: Transaction,
    credentials: bool,
    session: bool,
}

impl Login {
    fn begin(libpam: Option<Libpam>, start: &Start, link: &Rc<Link>) -> Result<Login, Stop> {
        let libpam = match libpam {
            Some(libpam) => libpam,
            None => Libpam::open().map_err(|why| Stop::Refused {
                call: c"libpam",
                code: Code::OPEN_ERR,
                message: CString::new(format!(
                    "{}: install libpam0g (Debian) or pam-libs (Fedora), or switch PAM off",
                    why.to_string_lossy()
                ))
                .unwrap_or_default(),
            })?,
        };
        let conversation = Box::new(OverLink(Rc::clone(link)));
        let begun = Transaction::start(libpam, &start.service, &start.user, conversation);
        let pam = begun.map_err(|code| Stop::Refused {
            call: c"pam_start",
            code,
            message: CString::new(format!(
                "the service {} cannot be read: see /etc/pam.d",
                start.service.to_string_lossy()
            ))
            .unwrap_or_default(),
        })?;
        let mut login = Login {
            pam,
            credentials: false,
            session: false,
        };
        let items = [
            (Item::RemoteHost, &start.remote_host),
            (Item::RemoteUser, &start.remote_user),
            (Item::Tty, &start.tty),
        ];
        for (item, value) in items {
            if !value.is_empty() {
                let set = login.pam.set(item, value);
                set.map_err(|code| login.refused(c"pam_set_item", code))?;
            }
        }
        for Variable { name, value } in &start.environment {
            let pair = [name.as_bytes(), b"=", value.as_bytes()].concat();
            // Neither has a zero byte inside: both came as C strings.
            let pair = CString::new(pair).unwrap_or_default();
            let put = login.pam.put_variable(&pair);
            put.map_err(|code| login.refused(c"pam_putenv", code))?;
        }
        Ok(login)
    }

    fn refused(&self, call: &'static CStr, code: Code) -> Stop {
        Stop::Refused {
            call,
            code,
            message: self.pam.sentence(code),
        }
    }

    /// Who he is, and whether he may come in. Whether his password has to be changed first, where that is `deferred`; else
    /// it is changed here.
    fn enter(&mut self, authenticate: bool, deferred: bool) -> Result<bool, Stop> {
        let strict = flags::DISALLOW_NULL_AUTHTOK;
        if authenticate {
            let done = self.pam.authenticate(strict);
            done.map_err(|code| self.refused(c"pam_authenticate", code))?;
        }
        match self.pam.acct_mgmt(strict) {
            Ok(()) => Ok(false),
            Err(Code::NEW_AUTHTOK_REQD) if deferred => Ok(true),
            Err(Code::NEW_AUTHTOK_REQD) => {
                let changed = self.pam.chauthtok(flags::CHANGE_EXPIRED_AUTHTOK);
                changed.map_err(|code| self.refused(c"pam_chauthtok", code))?;
                Ok(false)
            }
            Err(code) => Err(self.refused(c"pam_acct_mgmt", code)),
        }
    }

    /// Groups first: pam_group adds to what is there. Then credentials, then the session, as PAM's manual orders.
    fn open(&mut self, user: &CStr, tty: &CStr, authenticated: bool) -> Result<(), Stop> {
        let account = nss::user_by_name(user).map_err(|e| system(c"getpwnam", e))?;
        let account = account.ok_or_else(|| self.refused(c"getpwnam", Code::USER_UNKNOWN))?;
        let groups = nss::groups_of(&account.name, account.gid).map_err(|e| system(c"getgrouplist", e))?;
        credentials::set_groups(&groups).map_err(|e| system(c"setgroups", e))?;
        let set = self.pam.set(Item::Tty, tty);
        set.map_err(|code| self.refused(c"pam_set_item", code))?;
        match self.pam.setcred(flags::ESTABLISH_CRED) {
            Ok(()) => self.credentials = true,
            // Modules that saw no password (a key was used) may have none to give: so does sshd.
            Err(code) if !authenticated => crate::log(format_args!(
                "pam_setcred: {}",
                self.pam.sentence(code).to_string_lossy()
            )),
            Err(code) => return Err(self.refused(c"pam_setcred", code)),
        }
        let opened = self.pam.open_session();
        opened.map_err(|code| self.refused(c"pam_open_session", code))?;
        self.session = true;
        Ok(())
    }

    /// Closes what is open, last first; a sentence for each call that failed.
    fn close(&mut self) -> Vec<CString> {
        let mut errors = Vec::new();
        let mut note = |call: &str, pam: &Transaction, done: Result<(), Code>| {
            if let Err(code) = done {
                let text = format!("{call}: {}", pam.sentence(code).to_string_lossy());
                errors.push(CString::new(text).unwrap_or_default());
            }
        };
        if std::mem::take(&mut self.session) {
            let done = self.pam.close_session();
            note("pam_close_session", &self.pam, done);
        }
        if std::mem::take(&mut self.credentials) {
            let done = self.pam.setcred(flags::DELETE_CRED);
            note("pam_setcred", &self.pam, done);
        }
        errors
    }

    /// Closes and ends, and says so when all is done.
    fn end(mut self, link: &Link) {
        let close_errors = self.close();
        for error in &close_errors {
            crate::log(format_args!("{}", error.to_string_lossy()));
        }
        drop(self);
        link.say(&FromPam::Ended { close_errors }, &[]);
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        self.close();
    }
}
