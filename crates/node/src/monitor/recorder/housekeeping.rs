//! What is done about recordings beside sessions, on a thread of its own: those that a killed monitor left get their end and a
//! signature, old ones are removed, and the tunnel gets those that the cluster has not got. Which, and when, is decided in
//! `fleetgate_recorder::upload`.

use super::{GREW_KEY, hex};
use crate::config::cluster::ReceiptKeys;
use crate::config::offer::Offer;
use crate::config::recording::Settings;
use crate::monitor::audit::{Audit, Event};
use crate::monitor::timers::now;
use crate::monitor::tools::Tools;
use fleetgate_recorder::directory::begun::Begun;
use fleetgate_recorder::directory::{self, Bounds, Finished, Kept, MAX_RECORDINGS, delivered};
use fleetgate_recorder::shares::SCARCE;
use fleetgate_recorder::upload::{Doubt, Extent, Outcome, Uploads};
use fleetgate_sys::{Fd, clock, epoll, poll};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::tunnel::{ToTunnel, UploadAnswer};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// So often the directory is looked at.
const EVERY: Duration = Duration::from_secs(60);
/// Where there is more to be sent than is known, it is looked at again after so long, and after so many times what it took.
const SOON: (Duration, u32) = (Duration::from_secs(1), 10);
/// So many words about recordings that grew wait for the thread. Of one that is lost the next signature tells, or the next look.
const MAX_GROWN: usize = 4096;
/// Of `max_size`, so many hundredths may wait for the cluster before the log says so.
const MUCH: u64 = 75;
/// So often it is said at most that the cluster takes nothing now.
const TELL: Duration = Duration::from_secs(60);

/// The thread; it ends with this. A node that records nothing, and has recorded nothing, has none.
#[derive(Default)]
pub struct Housekeeping {
    thread: Option<Thread>,
    /// How many tunnels there were.
    tunnels: u64,
    /// The tunnel that sends recordings; none: there is none.
    tunnel: Option<u64>,
    /// So many recordings it has not answered about.
    offered: usize,
}

struct Thread {
    post: Post,
    offers: Receiver<Offered>,
    bell: Arc<Fd>,
}

/// For one tunnel: what it is told, with the file.
type Offered = (u64, ToTunnel, Fd);

#[derive(Clone)]
struct Post {
    news: Sender<News>,
    /// Words about growth that the thread has not read.
    grown: Arc<AtomicUsize>,
}

enum News {
    Settings(Place),
    Tunnel(Option<u64>),
    Grew(SessionId, PathBuf, Extent),
    Answered(SessionId, Answer),
}

/// What the tunnel says of a recording.
pub struct Answer {
    /// By which proxy.
    pub proxy: String,
    /// What.
    pub answer: UploadAnswer,
    /// Whose receipts count now.
    pub keys: Option<ReceiptKeys>,
}

/// What the thread looks after.
struct Place {
    settings: Settings,
    offer: Arc<Offer>,
    begun: Begun,
    full: Arc<AtomicBool>,
    scarce: Arc<AtomicBool>,
    /// The node is in a cluster.
    is_sending: bool,
}

impl Housekeeping {
    /// Starts it where this node has recordings already.
    pub fn of(tools: &mut Tools, offer: &Arc<Offer>) -> Housekeeping {
        let mut housekeeping = Housekeeping::default();
        if tools.config.recording.directory.is_dir() {
            housekeeping.run(tools, offer);
        }
        housekeeping
    }

    /// Has it done now, and from time to time.
    pub fn run(&mut self, tools: &mut Tools, offer: &Arc<Offer>) {
        let place = Place {
            settings: tools.config.recording.clone(),
            offer: offer.clone(),
            begun: Begun::of(&tools.config.state_directory),
            full: tools.recordings.fullness().clone(),
            scarce: tools.recordings.scarcity().clone(),
            is_sending: tools.cluster.is_some(),
        };
        let is_sending = place.is_sending;
        match &self.thread {
            Some(_) => self.tell(News::Settings(place)),
            None => match start(place, tools) {
                Ok(thread) => {
                    self.thread = Some(thread);
                    self.tell(News::Tunnel(self.tunnel));
                }
                Err(e) => tracing::error!("old recordings are not looked after: {e}"),
            },
        }
        if let Some(thread) = self.thread.as_ref().filter(|_| is_sending) {
            let post = thread.post.clone();
            let grew = move |session, path, extent| post.grew(session, path, extent);
            tools.recordings.tell_growth(Box::new(grew));
        }
    }

    /// Whether somebody looks after recordings.
    pub fn runs(&self) -> bool {
        self.thread.is_some()
    }

    /// A tunnel begins, or the one that was there ends.
    pub fn tunnel(&mut self, is_there: bool) {
        self.tunnels += 1;
        self.tunnel = is_there.then_some(self.tunnels);
        self.offered = 0;
        self.tell(News::Tunnel(self.tunnel));
    }

    /// What the tunnel is to send.
    pub fn offers(&mut self) -> Vec<(ToTunnel, Fd)> {
        let Some(thread) = &self.thread else {
            return Vec::new();
        };
        epoll::quiet(&thread.bell);
        let of_this = thread
            .offers
            .try_iter()
            .filter(|offered| Some(offered.0) == self.tunnel);
        let offers: Vec<_> = of_this.map(|(_, message, file)| (message, file)).collect();
        self.offered += offers.len();
        offers
    }

    /// The tunnel's answer about one. False: it was asked about none.
    pub fn answered(&mut self, session: SessionId, answer: Answer) -> bool {
        let is_one = self.offered > 0;
        if is_one {
            self.offered -= 1;
            self.tell(News::Answered(session, answer));
        }
        is_one
    }

    fn tell(&self, news: News) {
        if let Some(thread) = &self.thread {
            // The thread ends with this only.
            let _ = thread.post.news.send(news);
        }
    }
}

impl Post {
    fn grew(&self, session: SessionId, path: PathBuf, extent: Extent) {
        if self.grown.load(Ordering::Relaxed) < MAX_GROWN {
            self.grown.fetch_add(1, Ordering::Relaxed);
            let _ = self.news.send(News::Grew(session, path, extent));
        }
    }
}

fn start(place: Place, tools: &Tools) -> Result<Thread, String> {
    let (news, from) = channel();
    let (to, offers) = channel();
    let grown = Arc::<AtomicUsize>::default();
    let bell = Arc::new(epoll::bell().map_err(|e| format!("making an eventfd: {e}"))?);
    let watched = tools.wakes.watch(&bell, poll::READ, GREW_KEY);
    watched.map_err(|e| format!("watching an eventfd: {e}"))?;
    let mut keeper = Keeper {
        place,
        audit: tools.audit.clone(),
        uploads: Uploads::default(),
        tunnel: None,
        to,
        bell: bell.clone(),
        grown: grown.clone(),
        look: Duration::ZERO,
        again: Duration::ZERO,
        has_more: false,
        much_waits: false,
        told: None,
    };
    std::thread::Builder::new()
        .name("recordings".to_owned())
        .stack_size(128 << 10)
        .spawn(move || keeper.run(&from))
        .map_err(|e| format!("starting a thread: {e}"))?;
    let post = Post { news, grown };
    Ok(Thread { post, offers, bell })
}

/// The thread's state.
struct Keeper {
    place: Place,
    audit: Audit,
    uploads: Uploads,
    tunnel: Option<u64>,
    to: Sender<Offered>,
    bell: Arc<Fd>,
    grown: Arc<AtomicUsize>,
    /// When it looks next.
    look: Duration,
    /// It does not look before.
    again: Duration,
    /// There is more to be sent than is known.
    has_more: bool,
    /// The log says that much waits.
    much_waits: bool,
    /// When the log said that the cluster takes nothing.
    told: Option<Duration>,
}

impl Keeper {
    fn run(&mut self, news: &Receiver<News>) {
        loop {
            if self.has_more && self.uploads.is_idle() {
                self.look = self.look.min(self.again);
            }
            if self.look <= now() {
                self.look();
            }
            self.offer();
            let due = self.uploads.due().map_or(self.look, |due| due.min(self.look));
            match news.recv_timeout(due.saturating_sub(now())) {
                Ok(news) => self.hear(news),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Settings(place) => {
                self.place = place;
                self.look = Duration::ZERO;
            }
            News::Tunnel(tunnel) => {
                self.tunnel = tunnel;
                self.uploads.begin(tunnel.is_some());
                self.look = self.look.min(self.again);
            }
            News::Grew(session, path, extent) => {
                self.grown.fetch_sub(1, Ordering::Relaxed);
                self.uploads.grew(session, path, extent);
            }
            News::Answered(session, answer) => self.answered(session, answer),
        }
    }

    fn answered(&mut self, session: SessionId, Answer { proxy, answer, keys }: Answer) {
        if let UploadAnswer::Wait { why, .. } = &answer
            && self.told.is_none_or(|told| told + TELL <= now())
        {
            self.told = Some(now());
            let (session, why) = (directory::name(&session), why.to_string_lossy());
            tracing::warn!(
                session,
                proxy,
                "a recording waits for the cluster, which does not take it now: {why}"
            );
        }
        let check = |session: &_, path: &_, receipt: &_| {
            let ends = directory::ends(path).map_err(|e| match e.kind() {
                ErrorKind::NotFound => Doubt::Gone,
                _ => Doubt::Unreadable(e.to_string()),
            })?;
            let none = || Doubt::Receipt("this machine is in no cluster".to_owned());
            let keys = keys.as_ref().ok_or_else(none)?;
            let checked = keys.check(session, &ends, receipt);
            checked.map_err(|why| Doubt::Receipt(why.to_string()))
        };
        let name = directory::name(&session);
        let (path, refused) = match self.uploads.answered(&session, answer, now(), &check) {
            None => return,
            Some(Outcome::Unproven(_, Doubt::Receipt(why))) => {
                return tracing::error!(
                    session = name,
                    proxy,
                    "a proxy says that the cluster has a recording, and does not prove it: {why}. The recording counts as not \
                     delivered and is sent again; if the log goes on with others, see whether somebody has taken that proxy over"
                );
            }
            Some(Outcome::Unproven(_, Doubt::Unreadable(why))) => {
                return tracing::error!(
                    session = name,
                    "whether the cluster has a recording cannot be seen, as it cannot be read: {why}. The recording counts as not \
                     delivered and is sent again"
                );
            }
            Some(Outcome::Unproven(_, Doubt::Gone)) => return,
            Some(Outcome::Kept(_, path)) => (path, None),
            Some(Outcome::Refused(_, path, why)) => (path, Some(why)),
        };
        if let Some(why) = &refused {
            tracing::error!(
                session = name,
                proxy,
                "the cluster refuses a recording, which stays on this machine: {why}"
            );
        }
        if let Err(e) = delivered::note(&path, &session, refused.as_deref()) {
            tracing::error!("the cluster is asked about a recording again: {e}");
        }
    }

    /// Gives the tunnel what it is to have.
    fn offer(&mut self) {
        let Some(tunnel) = self.tunnel else { return };
        while let Some(offer) = self.uploads.next(now()) {
            let file = match offer.extent {
                Extent::Whole => directory::for_sending(&offer.path),
                Extent::Signed { .. } => directory::for_sending_made(&offer.path).map(Some),
            };
            let (file, size) = match file {
                Ok(Some(file)) => file,
                // Another monitor makes it.
                Ok(None) => {
                    self.uploads.unreadable(&offer.session, false, now());
                    continue;
                }
                Err(e) => {
                    let is_gone = e.kind() == std::io::ErrorKind::NotFound;
                    self.uploads.unreadable(&offer.session, is_gone, now());
                    if !is_gone {
                        tracing::error!("a recording is not sent now: {}: {e}", offer.path.display());
                    }
                    continue;
                }
            };
            let (signed, length) = match offer.extent {
                Extent::Signed { signed, length } => (signed, length),
                Extent::Whole => (size, size),
            };
            let message = ToTunnel::Upload {
                session: offer.session,
                signed,
                length,
                whole: offer.extent == Extent::Whole,
            };
            let _ = self.to.send((tunnel, message, file));
            epoll::ring(&self.bell);
        }
    }

    fn look(&mut self) {
        let since = now();
        let Place {
            settings,
            offer,
            begun,
            full,
            ..
        } = &self.place;
        let sign = |statement: &_| {
            let statement: &fleetgate_record::signature::Statement = statement;
            offer.keys.sign_recording(&statement.text())
        };
        let audit = &self.audit;
        let is_ours = |session: &_| begun.has(session);
        directory::finish_all(&settings.directory, &is_ours, &sign, &mut |one| match one {
            Ok(Finished { session, position }) => {
                begun.forget(&session);
                audit.tell(Event::Recorded {
                    connection: None,
                    login: None,
                    session,
                    blocks: position.blocks,
                    bytes: position.length,
                    chain: hex(&position.chain),
                    recovered: true,
                });
            }
            Err(why) => tracing::warn!("a recording that was not finished stays so: {why}"),
        });
        begun.tidy(&settings.directory);
        let bounds = Bounds {
            keep_days: settings.keep_days,
            max_size: settings.max_size.0,
            max_count: MAX_RECORDINGS,
            is_sending: self.place.is_sending,
        };
        let (want, uploads) = (self.uploads.room(), &self.uploads);
        let kept = directory::keep_within(&settings.directory, &bounds, want, &|session| {
            uploads.knows(session)
        });
        if kept.is_full && !full.swap(true, Ordering::Relaxed) {
            tracing::error!(
                bytes = kept.bytes,
                "the directory of recordings holds more than recording.max_size, and none of it is old enough to go: nothing \
                 more is recorded"
            );
        }
        full.store(kept.is_full, Ordering::Relaxed);
        let is_scarce = bounds.max_size > 0 && kept.bytes > bounds.max_size / 100 * SCARCE;
        self.place.scarce.store(is_scarce, Ordering::Relaxed);
        self.tell(&kept);
        self.has_more = want > 0 && kept.next.len() >= want;
        for (session, path) in kept.next {
            self.uploads.grew(session, path, Extent::Whole);
        }
        self.look = now() + EVERY;
        self.again = now() + (now().saturating_sub(since) * SOON.1).max(SOON.0);
    }

    fn tell(&mut self, kept: &Kept) {
        if kept.removed > 0 {
            tracing::info!(
                count = kept.removed,
                bytes = kept.removed_bytes,
                "old recordings were removed"
            );
            if kept.undelivered > 0 {
                tracing::error!(
                    count = kept.undelivered,
                    "recordings were removed that the cluster had not got"
                );
            }
            self.audit.tell(Event::RecordingsRemoved {
                count: kept.removed,
                bytes: kept.removed_bytes,
                undelivered: Some(kept.undelivered).filter(|count| *count > 0),
            });
        }
        let (most, waiting) = (self.place.settings.max_size.0, kept.waiting);
        let is_much = most > 0 && waiting.bytes > most / 100 * MUCH;
        if is_much && !self.much_waits {
            tracing::warn!(
                count = waiting.count,
                bytes = waiting.bytes,
                since = waiting
                    .since
                    .map(|at| clock::rfc3339(clock::Time { sec: at, nsec: 0 }, 0)),
                "recordings wait for the cluster, and have nearly come to recording.max_size: is auth reached, and has it room?"
            );
        }
        self.much_waits = is_much;
    }
}
