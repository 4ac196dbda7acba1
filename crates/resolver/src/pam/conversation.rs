//! The PAM process's socket, and the modules' prompts over it. Answers are wiped wherever they were.

use fleetgate_sys::glibc::pam::{Conversation, Message};
use fleetgate_sys::poll::{self, READ, WRITE, Watch};
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::MAX_INLINE;
use fleetgate_wire::pam::{FromPam, MAX_TO_PAM, Prompt, ToPam, wipe};
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::rc::Rc;

/// How long the peer may leave its socket full.
const SEND_TIMEOUT_MS: u32 = 10_000;
/// Bounds of what the peer may ask for as the time to answer a prompt.
const PROMPT_TIMEOUT_MS: std::ops::RangeInclusive<u32> = 100..=600_000;

/// The socket.
pub struct Link {
    socket: Fd,
    prompt_timeout_ms: u32,
    /// The peer has gone, or broke the rules: it is not spoken to again.
    gone: Cell<bool>,
    /// Whether the peer may be asked: not once its helpers have run.
    asking: Cell<bool>,
}

/// The peer has gone, broke the rules, or took too long.
#[derive(Debug)]
pub struct LinkClosed;

impl Link {
    /// Over `socket`.
    pub fn new(socket: Fd, prompt_timeout_ms: u32) -> Result<Rc<Link>, Errno> {
        socket.set_nonblocking(true)?;
        Ok(Rc::new(Link {
            socket,
            prompt_timeout_ms: prompt_timeout_ms.clamp(*PROMPT_TIMEOUT_MS.start(), *PROMPT_TIMEOUT_MS.end()),
            gone: Cell::new(false),
            asking: Cell::new(true),
        }))
    }

    /// Another link for the same session, over `socket`.
    pub fn beside(&self, socket: Fd) -> Result<Rc<Link>, Errno> {
        Link::new(socket, self.prompt_timeout_ms)
    }

    /// Says a last word: nothing is said or heard on this link any more.
    pub fn leave(&self, word: &FromPam) {
        self.say(word, &[]);
        self.gone.set(true);
    }

    /// The socket's number, to wait for; none when nobody is there.
    pub fn raw(&self) -> Option<i32> {
        (!self.gone.get()).then(|| self.socket.raw())
    }

    /// Nothing comes from the peer any more.
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// From now on messages are passed on, and prompts fail.
    pub fn stop_asking(&self) {
        self.asking.set(false);
    }

    /// Says a word. A peer that has gone hears nothing, and that is no reason to stop.
    pub fn say(&self, word: &FromPam, fds: &[i32]) {
        let frame = fleetgate_wire::encode(word);
        while !self.gone.get() {
            match socket::send(&self.socket, &frame, fds) {
                Ok(()) => return,
                Err(Errno::EAGAIN) => {
                    let mut watch = [Watch::new(self.socket.raw(), WRITE)];
                    if poll::poll(&mut watch, Some(SEND_TIMEOUT_MS)) != Ok(1) {
                        self.gone.set(true);
                    }
                }
                Err(_) => self.gone.set(true),
            }
        }
    }

    /// The next word, with its descriptors; waits as long as an answer may take, or for ever.
    pub fn hear(&self, forever: bool) -> Result<(ToPam, Vec<Fd>), LinkClosed> {
        let heard = self.hear_once((!forever).then_some(self.prompt_timeout_ms));
        if heard.is_err() {
            self.gone.set(true);
        }
        heard
    }

    fn hear_once(&self, timeout_ms: Option<u32>) -> Result<(ToPam, Vec<Fd>), LinkClosed> {
        if self.gone.get() {
            return Err(LinkClosed);
        }
        let mut watch = [Watch::new(self.socket.raw(), READ)];
        if poll::poll(&mut watch, timeout_ms) != Ok(1) {
            return Err(LinkClosed);
        }
        let mut buffer = vec![0u8; MAX_TO_PAM];
        let received = socket::receive(&self.socket, &mut buffer, false);
        let heard = match &received {
            Ok(m) if m.len > 0 && !m.truncated => fleetgate_wire::decode::<ToPam>(&buffer[..m.len]),
            _ => Err(fleetgate_wire::Error::Truncated),
        };
        wipe(&mut buffer);
        match (heard, received) {
            (Ok(word), Ok(message)) => Ok((word, message.fds)),
            _ => Err(LinkClosed),
        }
    }
}

/// Puts prompts to the peer.
pub struct OverLink(pub Rc<Link>);

impl Conversation for OverLink {
    fn converse(&mut self, messages: &[Message], answer: &mut dyn FnMut(usize, &CStr)) -> bool {
        let link = &self.0;
        let prompts = fitting(messages);
        let asked: Vec<usize> = (0..prompts.len()).filter(|i| prompts[*i].asks()).collect();
        if link.is_gone() || (!asked.is_empty() && !link.asking.get()) {
            return asked.is_empty();
        }
        link.say(&FromPam::Ask { prompts }, &[]);
        if asked.is_empty() {
            return true;
        }
        match link.hear(false) {
            Ok((ToPam::Answers { answers }, _)) if answers.len() == asked.len() => {
                for (index, secret) in asked.iter().zip(&answers) {
                    answer(*index, secret.expose());
                }
                true
            }
            Ok((ToPam::Abort | ToPam::Close, _)) => false,
            // Answers that do not fit the prompts, or another word instead: whoever that is, he is lost.
            Ok(_) => {
                link.gone.set(true);
                false
            }
            Err(LinkClosed) => false,
        }
    }
}

/// The prompts as frames, cut so that all fit into one: only a message of the day is ever so long.
fn fitting(messages: &[Message]) -> Vec<Prompt> {
    let total: usize = messages.iter().map(|m| m.text.as_bytes().len()).sum();
    let room = MAX_INLINE - 1024;
    let each = if total > room { room / messages.len() } else { room };
    messages
        .iter()
        .map(|m| {
            let text = m.text.as_bytes();
            Prompt {
                style: u8::try_from(m.style).unwrap_or(3),
                text: CString::new(&text[..text.len().min(each)]).unwrap_or_default(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_fit_one_frame() {
        let long = |n| Message {
            style: 4,
            text: CString::new(vec![b'x'; n]).expect("no zero"),
        };
        for messages in [
            vec![long(100_000)],
            vec![long(10), long(70_000)],
            (0..32).map(|_| long(30_000)).collect(),
        ] {
            let frame = fleetgate_wire::encode(&FromPam::Ask {
                prompts: fitting(&messages),
            });
            assert!(frame.len() <= MAX_INLINE, "{}", frame.len());
        }
    }
}
