//! What PAM says in a conversation: questions, messages, and its verdict. Messages are for users who have shown who they
//! are: before the session, or with the refusal.

use super::account::allowed;
use super::pam::{self, At, Conversation};
use super::{LoginAttempt, LoginContext, Step};
use crate::config::publickey;
use crate::config::trust::LoginMethod;
use crate::monitor::names::Lane;
use crate::monitor::wakes::{Key, Owner};
use fleetgate_policy::grant::How;
use fleetgate_policy::pam_turns::{Kind, Turn};
use fleetgate_sys::Errno;
use fleetgate_wire::node::{Prompt, Verdict};
use fleetgate_wire::pam::Prompt as PamPrompt;
use std::ffi::{CStr, CString};
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// The most bytes of PAM's messages that a user reads at once.
const MAX_NOTES: usize = 4096;

/// How long a login waits before it asks a resolver again whose socket was full.
const RESOLVER_FULL: Duration = Duration::from_millis(20);

/// A conversation with PAM.
pub(super) struct LoginConversation {
    pub(super) conversation: Conversation,
    pub(super) purpose: Purpose,
    /// So many answers are awaited of the user.
    pub(super) asked: Option<usize>,
    /// PAM's messages, to be shown with the next question, or with the verdict.
    pub(super) notes: Vec<u8>,
    /// It asked what has no answer here: what the log says of it.
    pub(super) unanswered: Option<&'static str>,
}

/// What it is for.
pub(super) enum Purpose {
    /// Answer with this, once.
    Password(Option<Zeroizing<Vec<u8>>>),
    /// Hand questions on.
    Interactive,
    /// Nobody is asked: may the account come in?
    Account,
}

impl Purpose {
    /// The method, for log and audit.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Purpose::Password(_) => LoginMethod::Password.name(),
            Purpose::Interactive => LoginMethod::KeyboardInteractive.name(),
            Purpose::Account => "account",
        }
    }
}

impl LoginConversation {
    /// PAM asks what has no answer here. Its verdict is awaited all the same: it says whether the user has shown who he is.
    fn give_up(&mut self, why: &'static str) {
        self.conversation.abort();
        self.unanswered = Some(why);
    }
}

impl LoginAttempt {
    /// Begins a conversation.
    pub(super) fn talk(&mut self, purpose: Purpose, context: &mut LoginContext<'_>) -> Step {
        let config = context.tools.config.clone();
        let method = purpose.method();
        if let Some(why) = self.why_no_password(&purpose, context) {
            return self.refuse(method, &why, context);
        }
        // libpam would go by the service `other` instead, which lets in whom nobody wrote a rule for.
        if !config.has_pam_service() {
            let why = format!("pam is on and /etc/pam.d/{} is not there", config.pam_service);
            return self.refuse(method, &why, context);
        }
        let turn = Turn {
            kind: match &purpose {
                Purpose::Interactive => Kind::Conversation,
                Purpose::Password(_) | Purpose::Account => Kind::Decision,
            },
            proven: self.has_key(),
            tunnelled: context.tunnelled,
        };
        let turns = &mut context.tools.pam_turns;
        if !turns.begin(
            context.connection,
            turn,
            config.strangers.source(context.source),
            config.limits.pam_places(),
        ) {
            tracing::debug!(
                connection = context.connection,
                method,
                "a login waits for its turn at PAM"
            );
            self.queued = Some(purpose);
            return Step::Wait;
        }
        let string = |bytes: Vec<u8>| CString::new(bytes).unwrap_or_default();
        let start = pam::start(
            &string(config.pam_service.clone().into_bytes()),
            &string(self.account().to_vec()),
            &string(context.source.to_canonical().to_string().into_bytes()),
            (
                !matches!(purpose, Purpose::Account),
                matches!(purpose, Purpose::Interactive),
            ),
            config.limits.login_grace.0,
        );
        let key = Key::new(Owner::Logins, context.connection);
        match Conversation::begin(&context.tools.resolver, start, &context.tools.wakes, key) {
            Ok(conversation) => {
                self.talk = Some(LoginConversation {
                    conversation,
                    purpose,
                    asked: None,
                    notes: Vec::new(),
                    unanswered: None,
                });
                Step::Wait
            }
            // Many begin at once: the resolver has read none of the last ones yet.
            Err(Errno::EAGAIN) => {
                self.queued = Some(purpose);
                context.tools.timers.after(RESOLVER_FULL, key);
                Step::Wait
            }
            Err(e) => self.fail(&format!("the resolver takes no conversation: {e}"), context),
        }
    }

    /// PAM asks; none: that was answered here.
    pub(super) fn prompted(&mut self, prompts: Vec<PamPrompt>) -> Option<Step> {
        let talk = self.talk.as_mut()?;
        let asks = prompts.iter().filter(|p| p.asks()).count();
        for message in prompts.iter().filter(|p| !p.asks()) {
            let text = message.text.to_bytes();
            if talk.notes.len() + text.len() < MAX_NOTES {
                talk.notes.extend_from_slice(text);
                talk.notes.push(b'\n');
            }
        }
        if asks == 0 {
            return None;
        }
        match &mut talk.purpose {
            Purpose::Password(password) => {
                let password = password.take().and_then(|p| CString::new(p.as_slice()).ok());
                let answers = password.and_then(|password| {
                    let answers = pam::by_password(&prompts, &password);
                    password.into_bytes_with_nul().zeroize();
                    answers
                });
                match answers {
                    Some(answers) => talk.conversation.answer(answers),
                    None => talk.give_up("PAM asks for more than a password: use keyboard-interactive"),
                }
                None
            }
            Purpose::Interactive => {
                talk.asked = Some(asks);
                let notes = std::mem::take(&mut talk.notes);
                let prompts = prompts.into_iter().filter(|p| p.asks());
                Some(Step::Say(Verdict::Ask {
                    name: Vec::new(),
                    instruction: notes,
                    prompts: prompts
                        .map(|p| Prompt {
                            echo: p.style == 2,
                            text: p.text.into_bytes(),
                        })
                        .collect(),
                }))
            }
            Purpose::Account => {
                talk.give_up(
                    "PAM's account modules have a question, for which a key has no answer: log in with \
                     keyboard-interactive",
                );
                None
            }
        }
    }

    /// PAM lets him in.
    pub(super) fn accepted(&mut self, user: &CStr, context: &mut LoginContext<'_>) -> Step {
        let Some(talk) = self.talk.take() else {
            return Step::Wait;
        };
        if user.to_bytes() != self.account() {
            return self.fail("PAM says that he is somebody else", context);
        }
        self.notes.extend_from_slice(&talk.notes);
        let how = match talk.purpose {
            Purpose::Account => {
                self.accepted = Some(talk.conversation);
                return self.conclude(context);
            }
            Purpose::Password(_) => (LoginMethod::Password, How::Password),
            Purpose::Interactive => (LoginMethod::KeyboardInteractive, How::KeyboardInteractive),
        };
        if let Err(why) = self.allowed_still(context) {
            return self.refuse(how.0.name(), &why, context);
        }
        self.accepted = Some(talk.conversation);
        self.proven(how.0, how.1, publickey::unrestricted(), None, context)
    }

    /// PAM does not let him in. Only a user who has shown who he is reads why.
    pub(super) fn turned_away(&mut self, why: &str, at: At, context: &mut LoginContext<'_>) -> Step {
        let Some(LoginConversation {
            purpose, unanswered, ..
        }) = &self.talk
        else {
            return Step::Wait;
        };
        let by_key = matches!(purpose, Purpose::Account);
        let unanswered = *unanswered;
        if unanswered.is_none() {
            self.charge_wrong_password(context);
        }
        let why = unanswered.unwrap_or(why);
        let is_known = by_key || at != At::Other && self.allowed_still(context).is_ok();
        let name = String::from_utf8_lossy(self.account());
        let words = match at {
            _ if !is_known => return self.fail(why, context),
            At::Password => format!("the password of {name} has expired and was not changed"),
            At::Account | At::Other => unanswered.unwrap_or_default().to_owned(),
        };
        self.refuse_with_notes(why, &words, context)
    }

    /// Asked again: what the modules say to somebody who may not come in counts for nothing.
    fn allowed_still(&mut self, context: &mut LoginContext<'_>) -> Result<(), String> {
        let (account, login) = (self.account().to_vec(), self.login());
        let key = Key::new(Owner::Logins, context.connection);
        let trust = self.trust.clone();
        let known = self.facts.gather(
            &account,
            false,
            &trust,
            context.tools,
            (Lane::of(context.source), key),
        );
        match (known.as_ref().and_then(|k| Some((k.account?, k.groups))), login) {
            (Some((account, groups)), Some(name)) => allowed(account, &name, groups, &trust, context),
            _ => Err("there is no such account".to_owned()),
        }
    }

    /// A refusal with what PAM said before it, and then `words`.
    fn refuse_with_notes(&mut self, why: &str, words: &str, context: &mut LoginContext<'_>) -> Step {
        let Some(talk) = self.talk.take() else {
            return self.fail(why, context);
        };
        let mut said = talk.notes;
        said.extend_from_slice(words.as_bytes());
        let text = String::from_utf8_lossy(&lines(&said)).trim_end().to_owned();
        if text.is_empty() {
            return self.refuse(talk.purpose.method(), why, context);
        }
        self.note(talk.purpose.method(), why, (None, None), context);
        self.rejected_for(text, context)
    }
}

/// As a banner has it: lines end with CR LF (RFC 4252 §5.4), and the last one does.
pub(super) fn lines(notes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(notes.len());
    for line in notes.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.is_empty() {
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_lines_of_a_banner() {
        for (notes, banner) in [("", ""), ("\n\n", ""), ("a\nb\r\n\nc", "a\r\nb\r\nc\r\n")] {
            assert_eq!(lines(notes.as_bytes()), banner.as_bytes(), "{notes:?}");
        }
    }
}
