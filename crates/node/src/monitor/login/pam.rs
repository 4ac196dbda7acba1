//! A conversation with PAM on behalf of a login: a socket to a PAM process, and no thread. It keeps no answer.

use crate::config::Config;
use crate::monitor::wakes::{Key, Wakes};
use fleetgate_launch::pam::PamSession;
use fleetgate_policy::Grant;
use fleetgate_sys::poll::READ;
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::pam::{FromPam, Prompt, Secret, Start, ToPam, answers_frame, wipe};
use fleetgate_wire::resolver::ToResolver;
use std::ffi::{CStr, CString};
use std::time::Duration;

/// How a conversation ended.
#[derive(Debug)]
pub enum PamAnswer {
    /// Nothing yet.
    Nothing,
    /// It wants these answered; messages stand among them.
    Ask(Vec<Prompt>),
    /// He may come in, as this user; whether he has to change his password there before anything else.
    Accepted(CString, bool),
    /// He may not.
    Refused {
        /// A sentence for the log.
        why: String,
        /// What refused him.
        at: At,
    },
    /// PAM says nothing that could be understood: a sentence for the log.
    Broken(String),
}

/// What of PAM refused somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The account, after he has shown who he is.
    Account,
    /// The change of a password that has expired, after that.
    Password,
    /// Something else: he has not shown who he is.
    Other,
}

/// The conversation.
pub struct Conversation {
    socket: Fd,
    buffer: Vec<u8>,
}

impl Conversation {
    /// Asks the resolver for one; `key`'s owner is woken by its messages.
    pub fn begin(resolver: &Fd, start: Start, wakes: &Wakes, key: Key) -> Result<Conversation, Errno> {
        let (ours, theirs) = socket::pair()?;
        let frame = fleetgate_wire::encode(&ToResolver::Pam { start });
        socket::send_now(resolver, &frame, &[theirs.raw()])?;
        wakes.watch(&ours, READ, key)?;
        Ok(Conversation {
            socket: ours,
            buffer: vec![0; fleetgate_wire::MAX_INLINE],
        })
    }

    /// The next message.
    pub fn hear(&mut self) -> PamAnswer {
        let died = || {
            PamAnswer::Broken(
                "the PAM process ended without a word: one of the service's modules crashed or hung"
                    .to_owned(),
            )
        };
        let got = match socket::receive(&self.socket, &mut self.buffer, false) {
            Err(Errno::EAGAIN) => return PamAnswer::Nothing,
            Ok(got) if got.len > 0 && !got.truncated => got,
            _ => return died(),
        };
        match fleetgate_wire::decode(&self.buffer[..got.len]) {
            Ok(FromPam::Ask { prompts }) => PamAnswer::Ask(prompts),
            Ok(FromPam::Accepted { user, must_change }) => PamAnswer::Accepted(user, must_change),
            Ok(FromPam::Refused { call, code, message }) => PamAnswer::Refused {
                why: format!(
                    "PAM refused: {}: {} (code {code})",
                    call.to_string_lossy(),
                    message.to_string_lossy()
                ),
                at: match call.to_bytes() {
                    b"pam_acct_mgmt" => At::Account,
                    b"pam_chauthtok" => At::Password,
                    _ => At::Other,
                },
            },
            Ok(_) => PamAnswer::Broken("the PAM process said what does not belong there".to_owned()),
            Err(e) => PamAnswer::Broken(format!("the PAM process said what cannot be read: {e}")),
        }
    }

    /// Answers the prompts that ask, in order. Its end is heard if it is gone.
    pub fn answer(&self, answers: Vec<Secret>) {
        let mut frame = answers_frame(answers);
        let _ = socket::send_now(&self.socket, &frame, &[]);
        wipe(&mut frame);
    }

    /// Gives up.
    pub fn abort(&self) {
        let _ = socket::send_now(&self.socket, &fleetgate_wire::encode(&ToPam::Abort), &[]);
    }

    /// For the session: accepted, not opened. `patience` is for each of its answers.
    pub fn into_session(self, wakes: &Wakes, patience: Duration) -> PamSession {
        wakes.forget(&self.socket);
        PamSession::accepted(self.socket, patience)
    }
}

/// How PAM is asked about somebody. `asked`: the user answers its questions, also for a new password; else that is left to
/// the session.
pub fn start(
    service: &CStr,
    user: &CStr,
    host: &CStr,
    (authenticate, asked): (bool, bool),
    prompt_timeout: Duration,
) -> Start {
    Start {
        service: service.into(),
        user: user.into(),
        remote_host: host.into(),
        remote_user: CString::default(),
        tty: c"ssh".into(),
        authenticate,
        defer_change: !asked,
        environment: Vec::new(),
        prompt_timeout_ms: u32::try_from(prompt_timeout.as_millis()).unwrap_or(u32::MAX),
    }
}

/// How PAM is asked again about somebody who is in, for what runs on his connection: nobody is asked anything.
pub fn start_again(config: &Config, grant: &Grant, user: &CStr, tty: &CStr) -> Start {
    let service = CString::new(config.pam_service.as_str()).unwrap_or_default();
    let host = grant.source.ip().to_canonical().to_string();
    let host = CString::new(host).unwrap_or_default();
    let asked = !grant.must_change_password;
    Start {
        tty: tty.into(),
        ..start(&service, user, &host, (false, asked), Duration::from_millis(1))
    }
}

/// An answer of the user's; none: it holds a zero byte, or is too long.
pub fn secret(answer: &[u8]) -> Option<Secret> {
    if answer.len() > fleetgate_wire::pam::MAX_ANSWER {
        return None;
    }
    CString::new(answer).ok().map(Secret::new)
}

/// What is typed without an echo is the password; nothing else can be answered by it. None: it asks for something else.
pub fn by_password(prompts: &[Prompt], password: &CStr) -> Option<Vec<Secret>> {
    const ECHO_OFF: u8 = 1;
    let asking = prompts.iter().filter(|p| p.asks());
    asking
        .map(|p| (p.style == ECHO_OFF).then(|| Secret::new(password.into())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(style: u8) -> Prompt {
        Prompt {
            style,
            text: c"x".into(),
        }
    }

    #[test]
    fn a_password_answers_what_is_not_echoed_and_nothing_else() {
        for (styles, answers) in [
            (&[1][..], Some(1)),
            (&[1, 3, 4, 1][..], Some(2)),
            (&[3][..], Some(0)),
            (&[2][..], None),
            (&[1, 2][..], None),
        ] {
            let prompts: Vec<Prompt> = styles.iter().map(|s| prompt(*s)).collect();
            assert_eq!(
                by_password(&prompts, c"secret").map(|a| a.len()),
                answers,
                "{styles:?}"
            );
        }
    }
}
