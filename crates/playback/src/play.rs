//! Plays a recording: which of its frames are on the screen at which moment, with speed, pause, jumps and idle time cut
//! short. It reads no clock and writes to no terminal: the caller says what time it is, and draws the screen.

use crate::about::{Begin, End};
use crate::clock::short;
use crate::screen::Screen;
use crate::source::Source;
use crate::text::MAX_LINE;
use fleetgate_record::frame::{Frame, Kind};
use std::io::{self, Read};
use std::time::Duration;

/// Speeds in percent.
const SPEEDS: [u32; 11] = [10, 25, 50, 75, 100, 150, 200, 400, 800, 1600, 6400];
/// How far an arrow jumps, in microseconds.
const JUMP: u64 = 10_000_000;
/// So much output in one step is enough; the rest is in the next one.
const MAX_STEP: usize = 1 << 20;
/// So often the files of a session that still runs are looked at.
const FOLLOW: Duration = Duration::from_millis(500);
/// The longest time that is waited for anything: a day. What a file says may be centuries.
const MAX_WAIT: u64 = 86_400_000_000;

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Stands still, or goes on.
    Pause,
    /// Ten seconds back.
    Back,
    /// Ten seconds on.
    On,
    /// To the start.
    Start,
    /// Faster.
    Faster,
    /// Slower.
    Slower,
    /// Ends.
    Quit,
}

/// The keys that these bytes of a terminal are.
pub fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, behind)) = rest.split_first() {
        let arrow = rest.get(..3).and_then(|three| match three {
            b"\x1b[C" | b"\x1bOC" => Some(Key::On),
            b"\x1b[D" | b"\x1bOD" => Some(Key::Back),
            b"\x1b[A" | b"\x1bOA" => Some(Key::Faster),
            b"\x1b[B" | b"\x1bOB" => Some(Key::Slower),
            b"\x1b[H" | b"\x1bOH" => Some(Key::Start),
            _ => None,
        });
        if arrow.is_some() {
            keys.extend(arrow);
            rest = &rest[3..];
            continue;
        }
        keys.extend(match first {
            b' ' | b'p' => Some(Key::Pause),
            b'+' | b'=' => Some(Key::Faster),
            b'-' | b'_' => Some(Key::Slower),
            b'g' | b'0' => Some(Key::Start),
            // Ctrl-C and Ctrl-D as well.
            b'q' | 3 | 4 => Some(Key::Quit),
            _ => None,
        });
        rest = behind;
    }
    keys
}

/// How to play.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The speed in percent.
    pub speed: u32,
    /// Where to begin, in microseconds.
    pub from: u64,
    /// The longest time in which nothing happens, in microseconds; none: as long as it was.
    pub max_idle: Option<u64>,
    /// It still runs: what comes is shown as it comes.
    pub follow: bool,
    /// How long the whole is, in microseconds, where that is known.
    pub length: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            speed: 100,
            from: 0,
            max_idle: None,
            follow: false,
            length: None,
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is something to draw, and more of it at once.
    Now,
    /// Nothing happens for so long.
    Wait(Duration),
    /// Nothing happens until a key comes: it is paused, or at its end.
    Key,
    /// It is over.
    Quit,
}

/// A frame that is not due yet.
struct Due {
    kind: Kind,
    at: u64,
    bytes: Vec<u8>,
}

/// Plays. `open` gives the recording from its beginning, for jumps back.
pub struct Player<R, O> {
    open: O,
    source: Source<R>,
    due: Option<Due>,
    is_over: bool,
    screen: Screen,
    begin: Begin,
    end: Option<End>,
    /// What is on the screen: all frames up to this moment of the recording.
    position: u64,
    /// The moment of the caller's clock at which `position` was right.
    anchor: Duration,
    speed: u32,
    max_idle: Option<u64>,
    is_paused: bool,
    quits: bool,
    /// Frames up to there are shown without waiting.
    until: Option<u64>,
    /// It still runs, and was looked at then.
    follow: Option<Duration>,
    /// So many frames were read.
    taken: u64,
    length: Option<u64>,
}

impl<R: Read, O: FnMut() -> io::Result<Source<R>>> Player<R, O> {
    /// At its beginning.
    pub fn new(mut open: O, options: Options) -> io::Result<Player<R, O>> {
        let source = open()?;
        let mut player = Player {
            open,
            source,
            due: None,
            is_over: false,
            screen: Screen::new(80, 24),
            begin: Begin::default(),
            end: None,
            position: 0,
            anchor: Duration::ZERO,
            speed: options.speed.clamp(1, 100_000),
            max_idle: options.max_idle,
            is_paused: false,
            quits: false,
            until: (options.from > 0).then_some(options.from),
            follow: options.follow.then_some(Duration::ZERO),
            taken: 0,
            length: options.length,
        };
        player.read()?;
        // Who it is, and how large the screen was.
        while player.due.as_ref().is_some_and(|due| due.kind == Kind::Begin) {
            player.show()?;
        }
        Ok(player)
    }

    /// What the recording shows now.
    pub fn screen(&self) -> &Screen {
        &self.screen
    }

    /// What the recording says about itself.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// How it ended, once that was reached.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Where it is, in microseconds.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What is wrong with the recording, once that was reached.
    pub fn fault(&self) -> Option<String> {
        self.source.fault().map(ToString::to_string)
    }

    /// In percent.
    pub fn speed(&self) -> u32 {
        self.speed
    }

    /// Whether it stands still.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether it still runs, as far as is known.
    pub fn is_live(&self) -> bool {
        self.follow.is_some() && self.end.is_none() && self.source.fault().is_none()
    }

    /// Whether everything was shown.
    pub fn is_over(&self) -> bool {
        self.is_over && self.due.is_none()
    }

    /// Does what a key says.
    pub fn key(&mut self, key: Key, now: Duration) -> io::Result<()> {
        self.settle(now);
        match key {
            Key::Pause => self.is_paused = !self.is_paused,
            Key::On => self.until = Some(self.position.saturating_add(JUMP)),
            Key::Back => self.jump_back(self.position.saturating_sub(JUMP))?,
            Key::Start => self.jump_back(0)?,
            Key::Faster => {
                let faster = SPEEDS.into_iter().find(|speed| *speed > self.speed);
                self.speed = faster.unwrap_or(self.speed);
            }
            Key::Slower => {
                let slower = SPEEDS.into_iter().rev().find(|speed| *speed < self.speed);
                self.speed = slower.unwrap_or(self.speed);
            }
            Key::Quit => self.quits = true,
        }
        Ok(())
    }

    /// Puts on the screen what is due at `now`, and says what to do next.
    pub fn advance(&mut self, now: Duration) -> io::Result<Next> {
        if self.quits {
            return Ok(Next::Quit);
        }
        let mut taken = 0;
        if let Some(until) = self.until {
            while let Some(due) = self.due.as_ref().filter(|due| due.at <= until) {
                taken += due.bytes.len() + 1;
                self.show()?;
                if taken > MAX_STEP {
                    return Ok(Next::Now);
                }
            }
            self.until = None;
            if self.due.is_some() {
                self.position = self.position.max(until);
            }
            self.anchor = now;
        }
        if self.is_paused {
            self.anchor = now;
            return Ok(Next::Key);
        }
        loop {
            let Some(due) = &self.due else {
                return match self.is_live() {
                    true => self.look_again(now),
                    false => Ok(Next::Key),
                };
            };
            let gap = due.at.saturating_sub(self.position);
            let gap = gap.min(self.max_idle.unwrap_or(u64::MAX)).min(MAX_WAIT);
            // Times of the caller's clock, in microseconds.
            let wait = gap * 100 / u64::from(self.speed);
            let passed = u64::try_from(now.saturating_sub(self.anchor).as_micros()).unwrap_or(u64::MAX);
            if passed < wait {
                return Ok(Next::Wait(Duration::from_micros(wait - passed)));
            }
            taken += due.bytes.len() + 1;
            // What is late does not make the rest late.
            self.anchor += Duration::from_micros(wait);
            self.show()?;
            if taken > MAX_STEP {
                return Ok(Next::Now);
            }
        }
    }

    /// Reads what was written since the last look. All of it is shown at once.
    fn look_again(&mut self, now: Duration) -> io::Result<Next> {
        let looked = self.follow.unwrap_or_default();
        if now.saturating_sub(looked) < FOLLOW {
            return Ok(Next::Wait(FOLLOW.saturating_sub(now.saturating_sub(looked))));
        }
        self.follow = Some(now);
        let mut now = (self.open)()?;
        if !self.source.go_on(&mut now) {
            // It ended within a block that was being written.
            self.source = now;
            for _ in 0..self.taken {
                if self.source.next_frame()?.is_none() {
                    break;
                }
            }
        }
        self.read()?;
        self.until = Some(u64::MAX);
        Ok(match self.due {
            Some(_) => Next::Now,
            None => Next::Wait(FOLLOW),
        })
    }

    /// Makes `position` what it is at `now`, before the speed changes.
    fn settle(&mut self, now: Duration) {
        if let (Some(due), false) = (&self.due, self.is_paused) {
            let passed = u64::try_from(now.saturating_sub(self.anchor).as_micros()).unwrap_or(u64::MAX);
            let passed = passed.saturating_mul(u64::from(self.speed)) / 100;
            self.position = self.position.saturating_add(passed).min(due.at);
        }
        self.anchor = now;
    }

    fn jump_back(&mut self, to: u64) -> io::Result<()> {
        self.source = (self.open)()?;
        self.screen = Screen::new(80, 24);
        (self.position, self.end, self.is_over, self.due) = (0, None, false, None);
        self.taken = 0;
        self.until = Some(to);
        self.read()
    }

    fn read(&mut self) -> io::Result<()> {
        self.due = self.source.next_frame()?.map(|frame| Due {
            kind: frame.kind,
            at: frame.at,
            bytes: frame.bytes.to_vec(),
        });
        self.taken += u64::from(self.due.is_some());
        self.is_over = self.due.is_none();
        Ok(())
    }

    /// Puts the frame that is due on the screen, and reads the next one.
    fn show(&mut self) -> io::Result<()> {
        if let Some(due) = self.due.take() {
            self.position = self.position.max(due.at);
            let frame = Frame {
                kind: due.kind,
                at: due.at,
                bytes: &due.bytes,
            };
            match due.kind {
                Kind::Begin => {
                    self.begin = Begin::read(&due.bytes);
                    self.screen = screen(&self.begin);
                }
                Kind::End => self.end = Some(End::read(&due.bytes)),
                _ => show(&mut self.screen, &frame),
            }
        }
        self.read()
    }
}

/// The screen that a recording begins with.
pub fn screen(begin: &Begin) -> Screen {
    let (columns, rows) = begin.size();
    match begin.terminal {
        Some(_) => Screen::new(columns, rows),
        None => Screen::of_pipes(columns, rows),
    }
}

/// Puts a frame on a screen, if it is one that shows something.
pub fn show(screen: &mut Screen, frame: &Frame<'_>) {
    match frame.kind {
        Kind::Output | Kind::Stdout | Kind::Stderr => screen.feed(frame.bytes),
        Kind::Resize => {
            if let Some((columns, rows)) = frame.size() {
                screen.resize(columns, rows);
            }
        }
        _ => {}
    }
}

/// The line at the foot of a player's terminal.
pub fn status<R: Read, O: FnMut() -> io::Result<Source<R>>>(player: &Player<R, O>, columns: usize) -> String {
    let of = player
        .length
        .map_or_else(String::new, |length| format!(" of {}", short(length)));
    let mut line = format!(
        " {}{of}  {}.{:02}x",
        short(player.position()),
        player.speed() / 100,
        player.speed() % 100
    );
    match (player.is_over(), player.fault(), player.end()) {
        (_, None, None) if player.is_live() && player.is_paused() => line += "  paused",
        (true, None, None) if player.is_live() => line += "  live",
        (true, Some(fault), _) => line += &format!("  fault: {fault}"),
        (true, None, Some(end)) => line += &format!("  {}", end.summary()),
        (true, None, None) => line += "  no end",
        (false, ..) if player.is_paused() => line += "  paused",
        _ => {}
    }
    line += "  space pause, arrows jump and speed, q quit ";
    let line = fleetgate_policy::text::printable(&line);
    line.chars().take(columns.min(MAX_LINE)).collect()
}
