//! Memory for password hashing: a fixed number of buffers that are lent one after the other. A request that finds none free
//! waits in the line of its source, and the lines take turns, so a source that asks often does not hold up the others. It
//! hashes nothing.

use crate::limits::Source;
use argon2::Block;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use zeroize::Zeroize;

/// The buffers, and so the passwords that are worked on at once.
pub const BUFFERS: usize = 2;
/// The most requests that wait.
pub const MAX_STRANGERS_WAITING: usize = 64;
/// Further requests that may wait when they come from where their user has logged in before.
pub const MAX_KNOWN_WAITING: usize = 32;
/// A buffer that nobody needed for so long gives its memory back.
pub const REST_AFTER: Duration = Duration::from_secs(5);

/// The line that a request waits in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// Of a source that the user has not logged in from.
    Source(Source),
    /// Of a user's source or device that has succeeded before.
    Known(String),
}

/// There is no room to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// The buffers of one service.
pub struct Buffers {
    blocks: usize,
    state: Mutex<State>,
}

struct State {
    free: Vec<Buffer>,
    lines: HashMap<Line, VecDeque<Waiting>>,
    /// The lines that somebody waits in, each once; the first is served next.
    turns: VecDeque<Line>,
    waiting: usize,
    last: u64,
}

struct Buffer {
    memory: Vec<Block>,
    used: Instant,
}

struct Waiting {
    number: u64,
    give: oneshot::Sender<Lent>,
}

/// A buffer that is lent; it goes back when this is dropped.
pub struct Lent {
    buffers: Arc<Buffers>,
    buffer: Option<Buffer>,
}

/// A request that waits; it leaves its line when this is dropped.
struct Place<'a> {
    buffers: &'a Buffers,
    line: Line,
    number: u64,
}

impl Buffers {
    /// Buffers of `blocks` KB. They have no memory before they are needed.
    pub fn new(blocks: usize) -> Arc<Buffers> {
        let buffer = || Buffer {
            memory: Vec::new(),
            used: Instant::now(),
        };
        Arc::new(Buffers {
            blocks,
            state: Mutex::new(State {
                free: (0..BUFFERS).map(|_| buffer()).collect(),
                lines: HashMap::new(),
                turns: VecDeque::new(),
                waiting: 0,
                last: 0,
            }),
        })
    }

    /// Lends a buffer, when it is this line's turn.
    pub async fn lend(self: &Arc<Buffers>, line: Line) -> Result<Lent, NoRoom> {
        let (place, given) = {
            let mut state = self.state();
            if state.waiting == 0
                && let Some(buffer) = state.free.pop()
            {
                drop(state);
                return Ok(self.lent(buffer));
            }
            state.make_room(&line)?;
            let (give, given) = oneshot::channel();
            state.last += 1;
            let number = state.last;
            state.append(&line, Waiting { number, give });
            let place = Place {
                buffers: self,
                line,
                number,
            };
            (place, given)
        };
        let lent = given.await.map_err(|_| NoRoom);
        drop(place);
        lent
    }

    /// Gives back the memory of buffers that nobody needed for a while.
    pub fn rest(&self, now: Instant) {
        for buffer in &mut self.state().free {
            if now.saturating_duration_since(buffer.used) >= REST_AFTER {
                buffer.give_back();
            }
        }
    }

    fn lent(self: &Arc<Buffers>, buffer: Buffer) -> Lent {
        Lent {
            buffers: self.clone(),
            buffer: Some(buffer),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer {
    /// Wipes the memory first: what a password was stretched to would lie in the free pages.
    fn give_back(&mut self) {
        wipe(&mut self.memory);
        self.memory = Vec::new();
    }
}

fn wipe(memory: &mut [Block]) {
    memory.iter_mut().for_each(Zeroize::zeroize);
}

impl Drop for Buffer {
    fn drop(&mut self) {
        wipe(&mut self.memory);
    }
}

impl State {
    /// Sees that one more may wait in `line`. When all places are taken, the longest line gives one up, if it stays longer
    /// than this one is then: its last request is refused.
    fn make_room(&mut self, line: &Line) -> Result<(), NoRoom> {
        let most = match line {
            Line::Source(_) => MAX_STRANGERS_WAITING,
            Line::Known(_) => MAX_STRANGERS_WAITING + MAX_KNOWN_WAITING,
        };
        if self.waiting < most {
            return Ok(());
        }
        let own = self.lines.get(line).map_or(0, VecDeque::len);
        let longest = self.lines.iter().max_by_key(|(_, waiting)| waiting.len());
        let (longest, last) = longest
            .filter(|(_, waiting)| waiting.len() > own + 1)
            .and_then(|(line, waiting)| Some((line.clone(), waiting.back()?.number)))
            .ok_or(NoRoom)?;
        self.remove(&longest, last);
        Ok(())
    }

    fn append(&mut self, line: &Line, waiting: Waiting) {
        let all = self.lines.entry(line.clone()).or_default();
        if all.is_empty() {
            self.turns.push_back(line.clone());
        }
        all.push_back(waiting);
        self.waiting += 1;
    }

    /// The next request, of the line whose turn it is; that line is the last one then.
    fn next(&mut self) -> Option<Waiting> {
        let line = self.turns.pop_front()?;
        let all = self.lines.get_mut(&line)?;
        let next = all.pop_front()?;
        self.waiting -= 1;
        match all.is_empty() {
            true => drop(self.lines.remove(&line)),
            false => self.turns.push_back(line),
        }
        Some(next)
    }

    fn remove(&mut self, line: &Line, number: u64) {
        let Some(all) = self.lines.get_mut(line) else {
            return;
        };
        let Some(at) = all.iter().position(|waiting| waiting.number == number) else {
            return;
        };
        all.remove(at);
        self.waiting -= 1;
        if all.is_empty() {
            self.lines.remove(line);
            self.turns.retain(|other| other != line);
        }
    }
}

impl Lent {
    /// The buffer's memory; none when the machine has none left.
    pub fn memory(&mut self) -> Option<&mut [Block]> {
        let blocks = self.buffers.blocks;
        let memory = &mut self.buffer.as_mut()?.memory;
        if memory.is_empty() {
            memory.try_reserve_exact(blocks).ok()?;
            memory.resize(blocks, Block::new());
        }
        Some(memory)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(mut buffer) = self.buffer.take() else {
            return;
        };
        buffer.used = Instant::now();
        let mut state = self.buffers.state();
        let mut lent = self.buffers.lent(buffer);
        while let Some(next) = state.next() {
            match next.give.send(lent) {
                Ok(()) => return,
                // That request was given up just now.
                Err(back) => lent = back,
            }
        }
        state.free.extend(lent.buffer.take());
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.buffers.state().remove(&self.line, self.number);
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Buffers(…)")
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    type Waits = Pin<Box<dyn Future<Output = Result<Lent, NoRoom>>>>;

    fn source(n: u8) -> Line {
        Line::Source(Source::of([192, 0, 2, n].into()))
    }

    fn known(n: usize) -> Line {
        Line::Known(format!("ada {n}"))
    }

    fn ask(buffers: &Arc<Buffers>, line: Line) -> Waits {
        let buffers = buffers.clone();
        let mut waits: Waits = Box::pin(async move { buffers.lend(line).await });
        assert!(look(&mut waits).is_none(), "it waits");
        waits
    }

    fn look(waits: &mut Waits) -> Option<Result<Lent, NoRoom>> {
        let mut context = Context::from_waker(Waker::noop());
        match waits.as_mut().poll(&mut context) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    fn now(buffers: &Arc<Buffers>, line: Line) -> Result<Lent, NoRoom> {
        let buffers = buffers.clone();
        let mut asked: Waits = Box::pin(async move { buffers.lend(line).await });
        look(&mut asked).expect("no waiting")
    }

    fn all_lent(buffers: &Arc<Buffers>) -> Vec<Lent> {
        (0..BUFFERS).map(|_| now(buffers, source(0)).unwrap()).collect()
    }

    #[test]
    fn sources_take_turns() {
        let buffers = Buffers::new(1);
        let mut lent = all_lent(&buffers);
        let mut waits: Vec<(u8, Waits)> = Vec::new();
        for n in [1, 1, 1, 1, 2, 2, 3] {
            waits.push((n, ask(&buffers, source(n))));
        }
        let mut served = Vec::new();
        lent.truncate(1);
        while !waits.is_empty() {
            let (at, next) = (0..waits.len())
                .find_map(|at| look(&mut waits[at].1).map(|done| (at, done.unwrap())))
                .expect("somebody is served");
            served.push(waits.remove(at).0);
            drop(next);
        }
        assert_eq!(served, [1, 2, 3, 1, 2, 1, 1]);
    }

    #[test]
    fn what_waits_is_bounded_and_the_longest_line_gives_way() {
        let buffers = Buffers::new(1);
        let lent = all_lent(&buffers);
        let mut flood: Vec<Waits> = (0..MAX_STRANGERS_WAITING)
            .map(|_| ask(&buffers, source(1)))
            .collect();
        assert_eq!(
            now(&buffers, source(1)).err(),
            Some(NoRoom),
            "the line that is full"
        );
        let other = ask(&buffers, source(2));
        let displaced = flood.iter_mut().filter_map(look).filter(Result::is_err);
        assert_eq!(displaced.count(), 1);
        assert_eq!(buffers.state().waiting, MAX_STRANGERS_WAITING);
        // Known places have room of their own.
        let mut more: Vec<Waits> = (0..MAX_KNOWN_WAITING).map(|n| ask(&buffers, known(n))).collect();
        assert_eq!(buffers.state().waiting, MAX_STRANGERS_WAITING + MAX_KNOWN_WAITING);
        // A request that was given up leaves its place.
        drop((flood, other));
        more.truncate(1);
        assert_eq!(buffers.state().waiting, 1);
        drop(lent);
        assert!(look(&mut more[0]).is_some_and(|done| done.is_ok()));
        drop(more);
        let state = buffers.state();
        assert_eq!((state.free.len(), state.waiting), (BUFFERS, 0));
        assert!(state.lines.is_empty() && state.turns.is_empty());
    }

    #[test]
    fn memory_is_wiped_before_it_is_given_back() {
        let buffers = Buffers::new(3);
        let mut lent = now(&buffers, source(1)).unwrap();
        let memory = lent.memory().unwrap();
        memory.iter_mut().for_each(|block| block.as_mut().fill(7));
        wipe(memory);
        assert!(
            memory
                .iter()
                .all(|block| block.as_ref().iter().all(|word| *word == 0))
        );
    }

    #[test]
    fn memory_is_there_while_it_is_needed() {
        let buffers = Buffers::new(3);
        let mut lent = now(&buffers, source(1)).unwrap();
        assert_eq!(lent.memory().unwrap().len(), 3);
        buffers.rest(Instant::now() + REST_AFTER);
        assert_eq!(lent.buffer.as_ref().unwrap().memory.len(), 3, "it is lent");
        drop(lent);
        buffers.rest(Instant::now());
        assert_eq!(buffers.state().free.last().unwrap().memory.len(), 3, "not yet");
        buffers.rest(Instant::now() + REST_AFTER);
        assert!(buffers.state().free.iter().all(|b| b.memory.capacity() == 0));
    }
}
