//! Names, asked of the resolver on a look-up socket. Asking never waits: who asked is woken with the answer. Accounts
//! are kept for a few seconds, and no longer than the files that say who is who stay the same, so that a changed shell
//! counts at the next session over an open connection. That a name is nobody's is kept as long, or the time of an answer
//! would tell a stranger whose it is.

use super::Monitor;
use super::timers::now;
use super::wakes::{Key, Owner, Wakes};
use fleetgate_sys::poll::READ;
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::common::Account;
use fleetgate_wire::names::{About, Answer, Found, Question};
use fleetgate_wire::resolver::ToResolver;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

/// How long an account is believed without asking again. Directories (LDAP) tell nobody of their changes.
const KEEP: Duration = Duration::from_secs(5);
/// The most names that are kept.
const MAX_KEPT_NAMES: usize = 256;
/// How long the slowest look-up counts in [`Names::slowest`], at least.
const WINDOW: Duration = Duration::from_secs(30);
/// Slower look-ups count as one of this.
const SLOWEST: Duration = Duration::from_secs(1);
/// The most questions that wait for their answer.
pub const MAX_QUESTIONS: usize = 4096;

/// The files whose change drops what is kept.
const FILES: [&str; 4] = ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/nsswitch.conf"];

/// Look-up sockets. The resolver answers four questions of each at once, so what hangs on one holds up nobody on
/// another.
const LANES: usize = 4;

/// Which look-up socket a question goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(usize);

impl Lane {
    /// Of those who are logged in.
    pub const IN: Lane = Lane(0);

    /// Of those who are not: by their address (IPv6: its /64), so that one address cannot hold up all others.
    pub fn of(source: IpAddr) -> Lane {
        let bytes = match source.to_canonical() {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets()[..8].to_vec(),
        };
        let sum = bytes.iter().fold(0usize, |sum, b| {
            sum.wrapping_mul(31).wrapping_add(usize::from(*b))
        });
        Lane(1 + sum % (LANES - 1))
    }
}

/// One look-up socket, and the questions for which it had no room.
struct LookupSocket {
    socket: Fd,
    unsent: VecDeque<Vec<u8>>,
}

/// All questions.
pub struct Names {
    /// None, or one per lane.
    asking: Vec<LookupSocket>,
    deadline_ms: u32,
    buffer: Vec<u8>,
    next: u32,
    waiting: HashMap<u32, Waiting>,
    kept: HashMap<CString, (Duration, Option<Account>)>,
    files: [Option<[i64; 6]>; FILES.len()],
    /// Answers that need no resolver.
    ready: Vec<(Key, Found)>,
    slow: Slow,
}

/// The slowest look-ups of an account in this window of time and the one before it.
#[derive(Default)]
struct Slow {
    since: Duration,
    this: Duration,
    last: Duration,
}

struct Waiting {
    key: Key,
    since: Duration,
    /// The account's name, if it is one that is kept.
    account: Option<CString>,
    files: [Option<[i64; 6]>; FILES.len()],
}

/// A fresh look-up socket, for a helper: none where the resolver takes no message.
pub fn fresh_socket(resolver: &Fd) -> Option<Fd> {
    let (ours, theirs) = socket::pair().ok()?;
    let frame = fleetgate_wire::encode(&ToResolver::Names);
    socket::send_now(resolver, &frame, &[theirs.raw()]).ok()?;
    Some(ours)
}

impl Names {
    /// Nobody to ask yet.
    pub fn new() -> Names {
        Names {
            asking: Vec::new(),
            deadline_ms: 0,
            buffer: vec![0; fleetgate_wire::MAX_INLINE],
            next: 0,
            waiting: HashMap::new(),
            kept: HashMap::new(),
            files: stamps(),
            ready: Vec::new(),
            slow: Slow::default(),
        }
    }

    /// Asks this resolver from now on. What an earlier one owed is answered with a failure.
    pub fn attach(&mut self, resolver: &Fd, deadline_ms: u32, wakes: &Wakes) -> Result<(), Errno> {
        let mut asking = Vec::with_capacity(LANES);
        for lane in 0..LANES {
            let (socket, theirs) = socket::pair()?;
            let message = fleetgate_wire::encode(&ToResolver::Names);
            socket::send_now(resolver, &message, &[theirs.raw()])?;
            wakes.watch(&socket, READ, Key::new(Owner::Names, lane as u64))?;
            asking.push(LookupSocket {
                socket,
                unsent: VecDeque::new(),
            });
        }
        self.fail_all("the resolver ended");
        self.asking = asking;
        self.deadline_ms = deadline_ms;
        Ok(())
    }

    /// How long the slowest look-up of an account took a moment ago, or a second if that was longer: whoever waits that long
    /// does not show whether there was one.
    pub fn slowest(&mut self) -> Duration {
        self.slow.turn(now());
        self.slow.this.max(self.slow.last)
    }

    /// An account by name: at once if it is known, or known to be nobody's; else `key`'s owner is woken with the answer.
    pub fn account(&mut self, lane: Lane, name: &CStr, key: Key) -> Option<Option<Account>> {
        let files = stamps();
        if files != self.files {
            self.files = files;
            self.kept.clear();
        }
        if let Some((until, account)) = self.kept.get(name)
            && now() < *until
        {
            return Some(account.clone());
        }
        let about = About::User { name: name.into() };
        self.question(lane, about, Some(name.into()), key);
        None
    }

    /// Any question; `key`'s owner is woken with the answer.
    pub fn ask(&mut self, lane: Lane, about: About, key: Key) {
        self.question(lane, about, None, key);
    }

    /// Answers that came.
    pub fn take(&mut self) -> Vec<(Key, Found)> {
        let mut answers = std::mem::take(&mut self.ready);
        while let Some(answer) = self.receive() {
            let Some(waiting) = self.waiting.remove(&answer.id) else {
                continue;
            };
            if let Some(name) = waiting.account {
                let now = now();
                self.slow.add(now, now.saturating_sub(waiting.since));
                let account = match &answer.found {
                    Found::User { account } => Some(Some(account.clone())),
                    Found::Unknown => Some(None),
                    _ => None,
                };
                // Asked before the files changed: true then, and perhaps not now.
                if let Some(account) = account
                    && waiting.files == self.files
                {
                    self.keep(name, account);
                }
            }
            answers.push((waiting.key, answer.found));
        }
        self.flush();
        answers.append(&mut self.ready);
        answers
    }

    /// Whether answers wait that no descriptor tells of.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn question(&mut self, lane: Lane, about: About, account: Option<CString>, key: Key) {
        if self.asking.is_empty() || self.waiting.len() >= MAX_QUESTIONS {
            let why = CString::from(c"the name service is not there, or has too much to do");
            return self.ready.push((key, Found::Failed { why }));
        }
        self.next = self.next.wrapping_add(1);
        let question = Question {
            id: self.next,
            deadline_ms: self.deadline_ms,
            about,
        };
        let files = self.files;
        let since = now();
        let waiting = Waiting {
            key,
            since,
            account,
            files,
        };
        self.waiting.insert(self.next, waiting);
        self.asking[lane.0]
            .unsent
            .push_back(fleetgate_wire::encode(&question));
        self.flush();
    }

    /// The resolver reads no more while it owes many answers; each answer is a reason to try again.
    fn flush(&mut self) {
        let sent = self.asking.iter_mut().try_for_each(LookupSocket::flush);
        if sent.is_err() {
            self.fail_all("the resolver ended");
        }
    }

    fn receive(&mut self) -> Option<Answer> {
        let mut received = Err(Errno::EAGAIN);
        for asking in &self.asking {
            received = socket::receive(&asking.socket, &mut self.buffer, false);
            if !matches!(received, Err(Errno::EAGAIN)) {
                break;
            }
        }
        match received {
            Ok(got) if got.len > 0 && !got.truncated => match fleetgate_wire::decode(&self.buffer[..got.len])
            {
                Ok(answer) => Some(answer),
                Err(e) => {
                    tracing::error!("the resolver's answer cannot be read: {e}");
                    self.fail_all("the resolver's answer cannot be read");
                    None
                }
            },
            Err(Errno::EAGAIN) => None,
            _ => {
                self.fail_all("the resolver ended");
                None
            }
        }
    }

    fn fail_all(&mut self, why: &str) {
        self.asking.clear();
        let why = CString::new(why).unwrap_or_default();
        for (_, waiting) in self.waiting.drain() {
            self.ready.push((waiting.key, Found::Failed { why: why.clone() }));
        }
    }

    fn keep(&mut self, name: CString, account: Option<Account>) {
        if self.kept.len() >= MAX_KEPT_NAMES {
            self.kept.clear();
        }
        self.kept.insert(name, (now() + KEEP, account));
    }
}

impl Slow {
    fn turn(&mut self, now: Duration) {
        let past = now.saturating_sub(self.since);
        if past >= WINDOW {
            self.last = match past >= WINDOW * 2 {
                true => Duration::ZERO,
                false => self.this,
            };
            self.this = Duration::ZERO;
            self.since = now;
        }
    }

    fn add(&mut self, now: Duration, took: Duration) {
        self.turn(now);
        self.this = self.this.max(took.min(SLOWEST));
    }
}

impl LookupSocket {
    /// Sends what there is room for.
    fn flush(&mut self) -> Result<(), Errno> {
        while let Some(frame) = self.unsent.front() {
            match socket::send_now(&self.socket, frame, &[]) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Default for Names {
    fn default() -> Names {
        Names::new()
    }
}

fn stamps() -> [Option<[i64; 6]>; FILES.len()] {
    FILES.map(|path| {
        let m = std::fs::metadata(path).ok()?;
        let ctime = m.ctime() * 1_000_000_000 + m.ctime_nsec();
        let mtime = m.mtime() * 1_000_000_000 + m.mtime_nsec();
        Some([
            m.dev().cast_signed(),
            m.ino().cast_signed(),
            m.size().cast_signed(),
            mtime,
            ctime,
            m.mode().into(),
        ])
    })
}

impl Monitor {
    /// The resolver ended: the next one.
    pub(crate) fn restart_resolver(&mut self) {
        match self.workers.start_resolver(&self.tools.wakes) {
            Ok((worker, control)) => {
                self.resolver = worker;
                self.tools.resolver = Arc::new(control);
                self.attach_names();
            }
            Err(e) => tracing::error!("the resolver is not started again: {e}"),
        }
    }

    /// Asks the resolver that there is.
    pub(crate) fn attach_names(&mut self) {
        let deadline = self.tools.config.limits.name_service.as_millis();
        let resolver = self.tools.resolver.clone();
        if let Err(e) = self.tools.names.attach(&resolver, deadline, &self.tools.wakes) {
            tracing::error!("the resolver takes no questions: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u64) -> Key {
        Key::new(Owner::Logins, id)
    }

    /// A resolver of the test's: answers come from `answer`.
    struct Resolver(Vec<Fd>);

    impl Resolver {
        fn new(names: &mut Names, wakes: &Wakes) -> Resolver {
            let (ours, theirs) = socket::pair().expect("pair");
            names.attach(&ours, 1000, wakes).expect("attached");
            let mut buffer = [0; 64];
            let mut word = || socket::receive(&theirs, &mut buffer, false).expect("a word");
            Resolver((0..LANES).flat_map(|_| word().fds).collect())
        }

        fn asked(&self) -> Option<Question> {
            let mut buffer = [0; 4096];
            let got = socket::receive(&self.0[0], &mut buffer, false).ok()?;
            fleetgate_wire::decode(&buffer[..got.len]).ok()
        }

        fn answer(&self, id: u32, found: Found) {
            let frame = fleetgate_wire::encode(&Answer { id, found });
            socket::send(&self.0[0], &frame, &[]).expect("answered");
        }
    }

    /// Closing alone would not end them at once: a test beside this one may be starting a process, which has copies of
    /// all descriptors until its exec.
    impl Drop for Resolver {
        fn drop(&mut self) {
            for lane in &self.0 {
                fleetgate_sys::net::shut(lane).expect("shut");
            }
        }
    }

    fn account(name: &CStr) -> Account {
        Account {
            name: name.into(),
            ids: fleetgate_wire::common::Ids {
                uid: 7,
                gid: 7,
                groups: Vec::new(),
            },
            home: c"/".into(),
            shell: c"/bin/sh".into(),
            ageing: None,
        }
    }

    #[test]
    fn an_account_is_asked_about_once_and_kept() {
        let wakes = Wakes::new().expect("epoll");
        let mut names = Names::new();
        let resolver = Resolver::new(&mut names, &wakes);
        assert_eq!(names.account(Lane::IN, c"ann", key(1)), None);
        let question = resolver.asked().expect("a question");
        let found = Found::User {
            account: account(c"ann"),
        };
        resolver.answer(question.id, found.clone());
        // An answer to nothing is passed over.
        resolver.answer(question.id + 9, Found::Unknown);
        assert_eq!(names.take(), [(key(1), found)]);
        assert_eq!(
            names.account(Lane::IN, c"ann", key(2)),
            Some(Some(account(c"ann")))
        );
        assert!(resolver.asked().is_none());
        // Who is not there is not asked about again either; a question without an answer is.
        let failed = Found::Failed { why: c"x".into() };
        for found in [failed, Found::Unknown] {
            assert_eq!(names.account(Lane::IN, c"bob", key(3)), None);
            resolver.answer(resolver.asked().expect("a question").id, found.clone());
            assert_eq!(names.take(), [(key(3), found)]);
        }
        assert_eq!(names.account(Lane::IN, c"bob", key(3)), Some(None));
        assert!(resolver.asked().is_none());
    }

    #[test]
    fn the_slowest_look_up_counts_for_a_while_and_up_to_its_bound() {
        let (second, mut slow) = (Duration::from_secs, Slow::default());
        slow.add(second(100), Duration::from_millis(300));
        slow.add(second(101), Duration::from_millis(5));
        assert_eq!(slow.this, Duration::from_millis(300));
        slow.add(second(131), second(9));
        assert_eq!((slow.this, slow.last), (SLOWEST, Duration::from_millis(300)));
        slow.turn(second(1000));
        assert_eq!((slow.this, slow.last), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn a_resolver_that_ends_owes_nobody_an_answer_and_questions_are_bounded() {
        let wakes = Wakes::new().expect("epoll");
        let mut names = Names::new();
        let failed = |names: &mut Names| {
            let answers = names.take();
            assert!(answers.iter().all(|(_, f)| matches!(f, Found::Failed { .. })));
            answers.len()
        };
        assert_eq!(names.account(Lane::IN, c"ann", key(1)), None);
        assert!(names.has_ready(), "nobody to ask: answered at once");
        assert_eq!(failed(&mut names), 1);
        let resolver = Resolver::new(&mut names, &wakes);
        for n in 0..MAX_QUESTIONS as u64 {
            assert_eq!(names.account(Lane::IN, c"ann", key(n)), None);
        }
        assert!(!names.has_ready());
        assert_eq!(names.account(Lane::IN, c"ann", key(0)), None);
        assert!(names.has_ready(), "one more than may wait");
        drop(resolver);
        assert_eq!(failed(&mut names), MAX_QUESTIONS + 1);
        let again = Resolver::new(&mut names, &wakes);
        assert_eq!(names.account(Lane::IN, c"ann", key(1)), None);
        assert!(again.asked().is_some());
    }
}
