//! A message that is to reach auth by whichever proxy takes it: which proxy has it now, and when it is given to one again. It
//! has no timer and no clock of its own.

use fleetgate_net::backoff::Backoff;
use fleetgate_proto::v1::{FromNode, from_node};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// A proxy that has not answered by then is not waited for. Proxies wait for auth for 20 s.
pub(crate) const ANSWER: Duration = Duration::from_secs(45);

/// Waits before something is sent again that a proxy could not have kept.
pub(crate) const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// The control streams, by the proxy's name.
pub(crate) type Controls = Vec<(Arc<str>, mpsc::Sender<FromNode>)>;

/// A message on its way.
pub(crate) struct Pending {
    pub post: FromNode,
    with: Option<Recipient>,
    /// Whom it was given without success: others come first.
    failed: Option<mpsc::Sender<FromNode>>,
    /// Before that nobody gets it.
    pause: Option<Instant>,
    again: Backoff,
}

/// Who has it.
struct Recipient {
    proxy: Arc<str>,
    control: mpsc::Sender<FromNode>,
    until: Instant,
}

impl Pending {
    pub(crate) fn new(kind: from_node::Kind) -> Pending {
        Pending {
            post: FromNode { kind: Some(kind) },
            with: None,
            failed: None,
            pause: None,
            again: AGAIN,
        }
    }

    /// Gives it to a proxy that takes it, if nobody has it and no pause is on. Answers the proxy that had it for too long.
    pub(crate) fn give(&mut self, controls: &Controls, now: Instant, random: u64) -> Option<Arc<str>> {
        let mut silent = None;
        if let Some(with) = self
            .with
            .take_if(|with| with.control.is_closed() || with.until <= now)
            && !with.control.is_closed()
        {
            self.failed = Some(with.control);
            silent = Some(with.proxy);
        }
        self.pause.take_if(|pause| *pause <= now);
        if self.with.is_some() || self.pause.is_some() {
            return silent;
        }
        let failed = |control: &mpsc::Sender<FromNode>| {
            let failed = self.failed.as_ref();
            failed.is_some_and(|failed| failed.same_channel(control))
        };
        let others = controls.iter().filter(|(_, control)| !failed(control));
        let last = controls.iter().filter(|(_, control)| failed(control));
        let taker = others
            .chain(last)
            .find(|(_, control)| control.try_send(self.post.clone()).is_ok());
        self.with = taker.map(|(proxy, control)| Recipient {
            proxy: proxy.clone(),
            control: control.clone(),
            until: now + ANSWER,
        });
        // None of them reads. Where there is none, the next one gets it at once.
        let are_there = controls.iter().any(|(_, control)| !control.is_closed());
        if self.with.is_none() && are_there {
            self.pause = Some(now + self.again.failed(random));
        }
        silent
    }

    /// The proxy says that it is not kept: another gets it after a pause, or the same. Answers which proxy.
    pub(crate) fn failed(&mut self, now: Instant, random: u64) -> Option<Arc<str>> {
        let with = self.with.take()?;
        self.failed = Some(with.control);
        self.pause = Some(now + self.again.failed(random));
        Some(with.proxy)
    }

    /// The proxy leaves: another gets it.
    pub(crate) fn take_from(&mut self, control: &mpsc::Sender<FromNode>) {
        self.with.take_if(|with| with.control.same_channel(control));
    }

    /// When it is to be given again, if nothing happens.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.pause.or(self.with.as_ref().map(|with| with.until))
    }
}

#[cfg(test)]
mod tests {
    //! Proxies that do not answer, do not read, or say no.

    use super::*;
    use fleetgate_proto::v1::AuditBatch;

    fn proxy(name: &str, room: usize) -> ((Arc<str>, mpsc::Sender<FromNode>), mpsc::Receiver<FromNode>) {
        let (to, from) = mpsc::channel(room);
        ((name.into(), to), from)
    }

    fn got(from: &mut mpsc::Receiver<FromNode>) -> usize {
        std::iter::from_fn(|| from.try_recv().ok()).count()
    }

    fn batch() -> Pending {
        Pending::new(from_node::Kind::Audit(AuditBatch::default()))
    }

    #[test]
    fn what_nobody_answers_is_given_to_another_proxy_and_never_to_two_at_once() {
        let ((one, mut first), (two, mut second)) = (proxy("p1", 4), proxy("p2", 4));
        let controls = vec![one, two];
        let (mut pending, now) = (batch(), Instant::now());
        for elapsed in [0, 1, 44] {
            let silent = pending.give(&controls, now + Duration::from_secs(elapsed), 0);
            assert_eq!(silent, None);
        }
        assert_eq!((got(&mut first), got(&mut second)), (1, 0));
        assert_eq!(pending.due(), Some(now + ANSWER));
        assert_eq!(pending.give(&controls, now + ANSWER, 0).as_deref(), Some("p1"));
        assert_eq!((got(&mut first), got(&mut second)), (0, 1));
        assert_eq!(
            pending.give(&controls, now + 2 * ANSWER, 0).as_deref(),
            Some("p2")
        );
        assert_eq!((got(&mut first), got(&mut second)), (1, 0));
    }

    #[test]
    fn what_is_not_kept_is_sent_again_after_a_pause_that_grows() {
        let (one, mut first) = proxy("p1", 4);
        let controls = vec![one];
        let (mut pending, mut now) = (batch(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..20 {
            pending.give(&controls, now, u64::MAX);
            assert_eq!(got(&mut first), 1);
            assert_eq!(pending.failed(now, u64::MAX).as_deref(), Some("p1"));
            assert_eq!(pending.failed(now, u64::MAX), None, "nobody has it");
            pending.give(&controls, now, u64::MAX);
            assert_eq!(got(&mut first), 0, "not yet");
            let due = pending.due().expect("a pause");
            pauses.push((due - now).as_secs());
            now = due;
        }
        assert_eq!((pauses[0], pauses[19]), (1, 60));
        assert!(pauses.is_sorted(), "{pauses:?}");
    }

    #[test]
    fn proxies_that_do_not_read_are_asked_again_and_one_that_is_gone_is_not_waited_for() {
        let (mut pending, now) = (batch(), Instant::now());
        pending.give(&Vec::new(), now, 0);
        assert_eq!(pending.due(), None, "there is none");
        let (one, mut first) = proxy("p1", 1);
        one.1.try_send(FromNode::default()).expect("room");
        let mut controls = vec![one];
        pending.give(&controls, now, 0);
        let due = pending.due().expect("a pause");
        assert_eq!(got(&mut first), 1);
        pending.give(&controls, due, 0);
        assert_eq!(got(&mut first), 1, "it reads again");
        drop(first);
        let (two, mut second) = proxy("p2", 1);
        controls.push(two);
        assert_eq!(pending.give(&controls, due, 0), None);
        assert_eq!(got(&mut second), 1);
        pending.take_from(&controls[1].1);
        controls.remove(0);
        pending.give(&controls, due, 0);
        assert_eq!(got(&mut second), 1, "there is no other");
    }
}
