//! The streams of one tunnel, counted by user. A stream that the proxy gives up before the node has ended it is remembered for
//! a time by HTTP/2 on both sides, and only so many are (h2's `FORGOTTEN`, `MEMBER_PENDING_RESETS`); what comes for another
//! counts towards the end of the tunnel for everybody. So a session that its user leaves is ended by both sides, and what one
//! user has open or given up stays below those bounds.

use crate::denial::{Why, denied};
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1::{Denied, Frame};
use std::collections::{HashMap, VecDeque};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::codegen::tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};

/// Of one user: open, and given up within [`GIVEN_UP_FOR`]. Half of what HTTP/2 remembers, so that all of them can be given up
/// at once; twice the `sessions_per_user` of a proxy that was not told otherwise.
pub const OF_ONE: usize = 2_048;
/// Of one user: those that the node has not answered, and that were given up before it did. Half of what a node takes that
/// stands still. It answers within milliseconds.
pub const UNANSWERED_OF_ONE: usize = 512;
/// The same of all users. A node that leaves so many unanswered serves nobody.
pub const UNANSWERED: usize = 960;
/// When so many were given up by all users, those who gave up one of them wait.
pub const GIVEN_UP: usize = 3_072;
/// A tunnel ends when its node is silent for so long, and HTTP/2 has forgotten a stream by then.
pub const GIVEN_UP_FOR: Duration = Duration::from_secs(30);
/// How long a dial waits until the node has room for it.
pub const ROOM_WAIT: Duration = Duration::from_secs(10);
/// How long a node has to end a session that its user has left; then it is given up.
pub const LINGER: Duration = Duration::from_secs(2);

/// Those of a tunnel.
#[derive(Default)]
pub(crate) struct Streams {
    counts: Mutex<Counts>,
    /// Told when there is more room.
    freed: Notify,
}

#[derive(Default)]
struct Counts {
    of: HashMap<Name, Count>,
    all: Count,
    given_up: VecDeque<GivenUp>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    open: usize,
    unanswered: usize,
    given_up: usize,
}

struct GivenUp {
    forgotten: Instant,
    user: Name,
    is_answered: bool,
}

/// One stream's, until the node has ended it. Dropped before, it is given up.
pub(crate) struct StreamPlace {
    streams: Arc<Streams>,
    user: Name,
    is_answered: bool,
    is_over: bool,
}

/// What a node sends. Dropped before its end, it is read on for a while.
pub(crate) struct NodeFrames {
    /// None: the node has ended it.
    open: Option<(Streaming<Frame>, StreamPlace)>,
}

impl Streams {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more stream of this user's; None: there is none, perhaps until then.
    fn take(self: &Arc<Streams>, user: &Name, now: Instant) -> Result<StreamPlace, Option<Instant>> {
        let mut counts = self.counts();
        counts.forget(now);
        let one = counts.of.get(user).copied().unwrap_or_default();
        if one.open + one.given_up >= OF_ONE
            || one.unanswered >= UNANSWERED_OF_ONE
            || counts.all.unanswered >= UNANSWERED
            || (one.given_up > 0 && counts.all.given_up >= GIVEN_UP)
        {
            return Err(counts.given_up.front().map(|first| first.forgotten));
        }
        counts.change(user, |count| {
            count.open += 1;
            count.unanswered += 1;
        });
        Ok(StreamPlace {
            streams: self.clone(),
            user: user.clone(),
            is_answered: false,
            is_over: false,
        })
    }

    /// Waits for a place.
    pub(crate) async fn wait(self: &Arc<Streams>, user: &Name, node: &str) -> Result<StreamPlace, Denied> {
        let waiting = async {
            loop {
                let mut freed = pin!(self.freed.notified());
                freed.as_mut().enable();
                match self.take(user, Instant::now()) {
                    Ok(place) => return place,
                    Err(Some(until)) => tokio::select! {
                        () = freed => {}
                        () = sleep_until(until) => {}
                    },
                    Err(None) => freed.await,
                }
            }
        };
        timeout(ROOM_WAIT, waiting).await.map_err(|_| {
            denied(
                Why::Busy,
                &format!(
                    "{node} has no room for another connection of {user}: {OF_ONE} of one user may be open or given up \
                     within {} s, and {UNANSWERED_OF_ONE} unanswered: begin fewer, and end them",
                    GIVEN_UP_FOR.as_secs()
                ),
            )
        })
    }
}

impl Counts {
    fn change(&mut self, user: &Name, change: impl Fn(&mut Count)) {
        change(&mut self.all);
        let count = self.of.entry(user.clone()).or_default();
        change(count);
        if *count == Count::default() {
            self.of.remove(user);
        }
    }

    /// Those that HTTP/2 has forgotten by now.
    fn forget(&mut self, now: Instant) {
        while let Some(old) = self.given_up.pop_front_if(|first| first.forgotten <= now) {
            self.change(&old.user, |count| {
                count.given_up -= 1;
                count.unanswered -= usize::from(!old.is_answered);
            });
        }
    }
}

impl StreamPlace {
    /// The node has answered.
    pub(crate) fn answered(&mut self) {
        if !std::mem::replace(&mut self.is_answered, true) {
            self.streams
                .counts()
                .change(&self.user, |count| count.unanswered -= 1);
            self.streams.freed.notify_waiters();
        }
    }

    /// Nothing more can come for it.
    pub(crate) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let (is_answered, is_over) = (self.is_answered, self.is_over);
        let mut counts = self.streams.counts();
        counts.forget(Instant::now());
        counts.change(&self.user, |count| {
            count.open -= 1;
            match is_over {
                true => count.unanswered -= usize::from(!is_answered),
                false => count.given_up += 1,
            }
        });
        if !is_over {
            counts.given_up.push_back(GivenUp {
                forgotten: Instant::now() + GIVEN_UP_FOR,
                user: self.user.clone(),
                is_answered,
            });
        }
        drop(counts);
        self.streams.freed.notify_waiters();
    }
}

impl NodeFrames {
    pub(crate) fn new(frames: Streaming<Frame>, mut place: StreamPlace) -> NodeFrames {
        place.answered();
        NodeFrames {
            open: Some((frames, place)),
        }
    }
}

impl Stream for NodeFrames {
    type Item = Result<Frame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some((frames, _)) = &mut self.open else {
            return Poll::Ready(None);
        };
        let next = ready!(Pin::new(frames).poll_next(cx));
        if !matches!(next, Some(Ok(_)))
            && let Some((_, place)) = self.open.take()
        {
            place.over();
        }
        Poll::Ready(next)
    }
}

impl Drop for NodeFrames {
    /// The other direction ends at the same time, and the node's behind it.
    fn drop(&mut self) {
        let (Some((mut frames, place)), Ok(runtime)) = (self.open.take(), Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            let rest = timeout(LINGER, async { while let Some(Ok(_)) = frames.next().await {} });
            if rest.await.is_ok() {
                place.over();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn take(streams: &Arc<Streams>, user: &str) -> Option<StreamPlace> {
        streams.take(&name(user), Instant::now()).ok()
    }

    /// One that was begun, answered, and given up or ended.
    fn used(streams: &Arc<Streams>, user: &str, is_ended: bool) -> bool {
        let Some(mut place) = take(streams, user) else {
            return false;
        };
        place.answered();
        if is_ended {
            place.over();
        }
        true
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_user_gives_up_on_a_tunnel_is_bounded_and_harms_no_other() {
        let streams = Arc::new(Streams::default());
        // Control: those that the node ends are as many as one likes.
        assert!((0..2 * OF_ONE).all(|_| used(&streams, "alice", true)));
        let given_up = (0..2 * OF_ONE).filter(|_| used(&streams, "alice", false));
        assert_eq!(given_up.count(), OF_ONE);
        const { assert!(OF_ONE <= fleetgate_net::h2::FORGOTTEN / 2) };
        assert!(used(&streams, "bob", false));
        // They are forgotten in time, and nothing is kept of them.
        let denied = streams.wait(&name("alice"), "web1").await.err().unwrap();
        assert!(
            denied
                .words
                .contains("web1 has no room for another connection of alice")
        );
        tokio::time::advance(GIVEN_UP_FOR).await;
        let place = streams.wait(&name("alice"), "web1").await.unwrap();
        place.over();
        let counts = streams.counts();
        assert!(counts.of.is_empty() && counts.given_up.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn dials_that_a_node_does_not_answer_are_bounded() {
        let streams = Arc::new(Streams::default());
        let mut waiting: Vec<_> = (0..100).map_while(|_| take(&streams, "alice")).collect();
        let given_up = (0..UNANSWERED).map_while(|_| take(&streams, "alice")).count();
        assert_eq!(waiting.len() + given_up, UNANSWERED_OF_ONE);
        let of_others = (0..UNANSWERED).map_while(|_| take(&streams, "bob")).count();
        assert_eq!(of_others, UNANSWERED - UNANSWERED_OF_ONE);
        const { assert!(UNANSWERED < fleetgate_net::h2::MEMBER_PENDING_RESETS) };
        // Control: an answer makes room.
        waiting[0].answered();
        assert!(take(&streams, "carol").is_some());
        assert!(take(&streams, "carol").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn several_users_who_give_up_wait_and_others_do_not() {
        let streams = Arc::new(Streams::default());
        for user in ["alice", "bob"] {
            assert!((0..GIVEN_UP / 2).all(|_| used(&streams, user, false)));
        }
        assert!(take(&streams, "alice").is_none() && take(&streams, "bob").is_none());
        assert!(used(&streams, "carol", true), "who gave up none");
    }
}
