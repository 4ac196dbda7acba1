//! `fleetgate sessions watch` and `join`: a session that runs on a node, seen from anywhere. The connection is another
//! `fleetgate ssh`, which finds the node, asks for what the login needs, and carries bytes; here is the terminal around it.
//! What is written to it is the painter's and a line of our own.

use super::place::at_auth;
use super::play::{Stage, size, write};
use super::{Progress, complain};
use crate::admin;
use crate::flags::{Arguments, Outcome, session_id};
use fleetgate_base::exit;
use fleetgate_client::error::ClientError;
use fleetgate_playback::live::{Viewer, request};
use fleetgate_playback::paint::Painter;
use fleetgate_playback::text::MAX_LINE;
use fleetgate_policy::VIEWER;
use fleetgate_policy::text::{printable, printable_lines};
use fleetgate_sys::poll::{self, READ, WRITE, Watch};
use fleetgate_sys::signals::{self, HUP, TERM};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const INPUT: i32 = 0;
/// The terminal's size is looked at so often.
const TICK: Duration = Duration::from_millis(250);
/// One read.
const ROOM: usize = 64 << 10;
/// The most words of the node's that are kept until they can be shown.
const MAX_WORDS: usize = 16 << 10;
/// The most that is typed and waits for the node.
const MAX_TYPED: usize = 64 << 10;
/// What one write takes into a pipe that has room, without waiting.
const PIPE_BUF: usize = 4096;
/// A view that had a gap begins anew, so often at most.
const ANEW: Duration = Duration::from_secs(5);
/// Ctrl-], the first key of those that are not typed in the session.
const ESCAPE: u8 = 0x1d;

/// Where a session is, and how to see it.
pub(super) struct Target {
    session: String,
    node: String,
    login: String,
    home: Option<String>,
    joins: bool,
    keys: fleetgate_playback::identity::Keys,
}

/// Joins a session.
pub fn join(given: &Arguments) -> Outcome {
    if io::stdin().is_terminal() && !io::stdout().is_terminal() {
        return Err(given
            .wrong("sessions join wants to show what it types into: standard output is no terminal")
            .into());
    }
    see(&target(given, true)?)
}

/// The session that is meant, with the node that it runs on.
pub(super) fn target(given: &Arguments, joins: bool) -> Result<Target, Box<dyn std::error::Error>> {
    let Some(word) = given.word() else {
        return Err(given
            .wrong("SESSION is missing: `fleetgate sessions ls` lists those that run")
            .into());
    };
    let session = session_id(word)?;
    let text = |flag| given.value(flag).map(str::to_owned);
    let node = match text("node") {
        Some(node) => node,
        None => node_of(given, &session)?,
    };
    Ok(Target {
        session,
        node,
        login: text("login").unwrap_or_else(|| VIEWER.to_owned()),
        home: text("home"),
        joins,
        keys: super::keys(given)?,
    })
}

/// The node of the session whose id begins so: of one that is recorded its recording at auth says it, to those who may list that.
fn node_of(given: &Arguments, id: &str) -> Result<String, Box<dyn std::error::Error>> {
    let found = match at_auth(given, id) {
        // Who may list nothing may be an administrator whose second factor is too old: the other question says so.
        Err(ClientError::Refused(_) | ClientError::Stale(_)) => Vec::new(),
        found => found?,
    };
    let running: Vec<_> = found.iter().filter(|one| one.entry.runs).collect();
    match (&running[..], found.first()) {
        ([one], _) if !one.begin.node.is_empty() => Ok(one.begin.node.clone()),
        ([], Some(ended)) => Err(format!(
            "the session {id} has ended: see it with `fleetgate sessions play {} --cluster`",
            ended.entry.id
        )
        .into()),
        ([one, another, ..], _) if one.entry.id == another.entry.id => Err(format!(
            "several machines say that the session {id} is theirs ({}, {}): give --node NAME",
            one.begin.node, another.begin.node
        )
        .into()),
        ([_, _, ..], _) => Err(format!("{id} begins the ids of several sessions: give more of it").into()),
        // Administrators may ask about any session; others hear what they lack.
        _ => admin::sessions::node_of(given, id),
    }
}

/// Shows it until it ends or the user leaves. Without a terminal what it showed in the end is printed.
pub(super) fn see(target: &Target) -> Outcome {
    let is_shown = io::stdout().is_terminal();
    loop {
        let began = Instant::now();
        let mut view = View::begin(target, is_shown)?;
        let left = view
            .run(target)
            .map_err(|e| format!("watching {}: {e}", target.session))?;
        let code = view.end(target, left)?;
        match code {
            Some(code) => return Ok(code),
            None => std::thread::sleep(ANEW.saturating_sub(began.elapsed())),
        }
    }
}

/// Why it was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// The other side ended it.
    Ended,
    /// The user wants no more.
    ByUser,
    /// Something was left out, and another view begins with the whole screen.
    Gap,
}

/// One connection to the session.
struct View {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    words: ChildStderr,
    viewer: Viewer,
    /// What the other `fleetgate` said since something is shown.
    said: Vec<u8>,
    fault: Option<String>,
    typed: Vec<u8>,
    keys: Keys,
    is_shown: bool,
}

impl View {
    fn begin(target: &Target, is_shown: bool) -> Result<View, String> {
        let program = std::env::current_exe().map_err(|e| format!("/proc/self/exe: {e}"))?;
        let mut command = Command::new(program);
        command.arg("ssh");
        if let Some(home) = &target.home {
            command.args(["--home", home]);
        }
        command.args(["-l", &target.login, "-s", "--", &target.node]);
        command.arg(request(target.joins, &target.session));
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = piped
            .spawn()
            .map_err(|e| format!("starting fleetgate ssh: {e}"))?;
        let missing = || "fleetgate ssh has no pipes".to_owned();
        Ok(View {
            input: child.stdin.take(),
            output: child.stdout.take().ok_or_else(missing)?,
            words: child.stderr.take().ok_or_else(missing)?,
            child,
            viewer: Viewer::with_keys(target.keys.clone()),
            said: Vec::new(),
            fault: None,
            typed: Vec::new(),
            keys: Keys::new(target.joins),
            is_shown,
        })
    }

    fn run(&mut self, target: &Target) -> io::Result<Left> {
        let signals = signals::descriptor(&[TERM, HUP]).map_err(io::Error::from)?;
        let mut drawing: Option<Drawing> = None;
        let mut progress = Progress::new();
        let mut is_silent = false;
        let mut reads = target.joins || io::stdin().is_terminal();
        loop {
            if let Some((done, of)) = self.viewer.progress() {
                progress.show(|| format!("reading the recording: {} of {} KB", done >> 10, of >> 10));
            }
            if self.viewer.is_live() && self.is_shown {
                progress.clear();
                if drawing.is_none() {
                    drawing = Some(Drawing::begin()?);
                }
                if let Some(drawing) = &mut drawing {
                    drawing.draw(&self.viewer, target)?;
                }
            }
            // What is typed before anything is shown waits.
            let takes_keys = reads && self.viewer.is_live() && self.typed.len() < MAX_TYPED;
            let room = match &self.input {
                Some(input) if !self.typed.is_empty() => input.as_raw_fd(),
                _ => -1,
            };
            let mut watches = [
                Watch::new(self.output.as_raw_fd(), READ),
                Watch::new(if is_silent { -1 } else { self.words.as_raw_fd() }, READ),
                Watch::new(signals.raw(), READ),
                Watch::new(if takes_keys { INPUT } else { -1 }, READ),
                Watch::new(room, WRITE),
            ];
            let nanos = i64::try_from(TICK.as_nanos()).unwrap_or(i64::MAX);
            poll::wait(&mut watches, Some(nanos)).map_err(io::Error::from)?;
            let [output, words, signal, keys, room] = watches.map(|watch| watch.happened() != 0);
            if signal {
                return Ok(Left::ByUser);
            }
            let mut bytes = vec![0; ROOM];
            if words {
                let read = self.words.read(&mut bytes)?;
                is_silent = read == 0;
                self.hear(&bytes[..read]);
            }
            if output {
                match self.output.read(&mut bytes)? {
                    0 => return Ok(Left::Ended),
                    read => {
                        if let Err(why) = self.viewer.take(&bytes[..read]) {
                            self.fault = Some(why);
                            return Ok(Left::ByUser);
                        }
                        if self.viewer.has_gap() && self.viewer.is_recorded() {
                            return Ok(Left::Gap);
                        }
                    }
                }
            }
            if keys {
                let read = io::stdin().lock().read(&mut bytes)?;
                match read {
                    0 if io::stdin().is_terminal() => return Ok(Left::ByUser),
                    // A file that was typed to its end: what comes of it is still to be seen.
                    0 => reads = false,
                    read => {
                        if self.keys.take(&bytes[..read], &mut self.typed) {
                            return Ok(Left::ByUser);
                        }
                    }
                }
            }
            if room && let Some(input) = &mut self.input {
                match input.write(&self.typed[..self.typed.len().min(PIPE_BUF)]) {
                    Ok(written) => drop(self.typed.drain(..written)),
                    Err(_) => self.input = None,
                }
            }
        }
    }

    /// Words of the other `fleetgate`: shown at once until there is a screen, kept then.
    fn hear(&mut self, bytes: &[u8]) {
        match self.viewer.has_begun() {
            false => {
                let _ = io::stderr().lock().write_all(bytes);
            }
            true => {
                let room = MAX_WORDS.saturating_sub(self.said.len());
                self.said.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        }
    }

    /// The exit code; none: it is to be seen anew.
    fn end(mut self, target: &Target, left: Left) -> Result<Option<i32>, Box<dyn std::error::Error>> {
        // The other one leaves when nobody types and nobody reads.
        self.input = None;
        if left != Left::Ended {
            let _ = self.child.kill();
        }
        let mut rest = Vec::new();
        if left == Left::Ended {
            let _ = (&mut self.words).take(MAX_WORDS as u64).read_to_end(&mut rest);
        }
        self.hear(&rest);
        let status = self.child.wait()?;
        if left == Left::Gap {
            return Ok(None);
        }
        if let Some(fault) = &self.fault {
            return Err(format!("{}: {fault}", target.session).into());
        }
        if self.viewer.is_live() && !self.is_shown {
            let mut out = io::stdout().lock();
            out.write_all(self.viewer.screen().text().as_bytes())?;
            out.flush()?;
        }
        let said = printable_lines(&String::from_utf8_lossy(&self.said));
        for line in said.lines().map(|line| line.trim_matches('\u{fffd}').trim()) {
            if !line.is_empty() {
                complain(line);
            }
        }
        Ok(Some(match (left, self.viewer.has_begun()) {
            (Left::ByUser, _) | (Left::Ended, true) => 0,
            // It was refused, or there was no way to it: the other one has said why.
            _ => status.code().filter(|code| *code != 0).unwrap_or(exit::REFUSED),
        }))
    }
}

/// The terminal while a session is shown on it.
struct Drawing {
    _stage: Stage,
    painter: Painter,
    size: (usize, usize),
    foot: String,
}

impl Drawing {
    fn begin() -> io::Result<Drawing> {
        Ok(Drawing {
            _stage: Stage::begin()?,
            painter: Painter::default(),
            size: (0, 0),
            foot: String::new(),
        })
    }

    fn draw(&mut self, viewer: &Viewer, target: &Target) -> io::Result<()> {
        let (columns, rows) = size();
        if (columns, rows) != self.size {
            self.size = (columns, rows);
            self.painter = Painter::new(columns, rows.saturating_sub(1).max(1));
            self.foot.clear();
        }
        let drawn = self.painter.draw(viewer.screen());
        let line = foot(viewer, target, columns);
        let mut out = String::new();
        if rows > 1 && (line != self.foot || drawn.starts_with("\x1b[0m\x1b[2J")) {
            out = format!("\x1b7\x1b[{rows};1H\x1b[0;7m{line}\x1b[0m\x1b[K\x1b8");
            self.foot = line;
        }
        match drawn.is_empty() && out.is_empty() {
            true => Ok(()),
            false => write(format!("{drawn}{out}").as_bytes()),
        }
    }
}

/// The line at the foot: what leaves, who is there, and what is wrong.
fn foot(viewer: &Viewer, target: &Target, columns: usize) -> String {
    let leave = match target.joins {
        true => "Ctrl-] q leaves",
        false => "q leaves",
    };
    let mut line = format!(" {}  {leave}", &target.session[..target.session.len().min(8)]);
    // Who is there comes first: the line is cut where the terminal is narrow.
    if !viewer.who().is_empty() {
        line += &format!("  seen by {}", viewer.who());
    }
    let (wide, high) = viewer.screen().size();
    if wide > columns {
        line += &format!("  {wide}x{high}");
    }
    if let Some(why) = viewer.incomplete() {
        line += &format!("  {why}");
    }
    line.push(' ');
    printable(&line).chars().take(columns.min(MAX_LINE)).collect()
}

/// What is typed: for the session, or for this program.
struct Keys {
    joins: bool,
    is_escaped: bool,
}

impl Keys {
    fn new(joins: bool) -> Keys {
        Keys {
            joins,
            is_escaped: false,
        }
    }

    /// Adds what the session is to get to `typed`; whether the user leaves.
    fn take(&mut self, bytes: &[u8], typed: &mut Vec<u8>) -> bool {
        for &byte in bytes {
            match (self.joins, std::mem::take(&mut self.is_escaped), byte) {
                // q, Ctrl-C, Ctrl-D.
                (false, _, b'q' | 3 | 4) => return true,
                (false, ..) => {}
                (true, true, b'q' | b'.') => return true,
                (true, true, ESCAPE) => typed.push(ESCAPE),
                // Any other key behind it is as if neither was pressed.
                (true, true, _) => {}
                (true, false, ESCAPE) => self.is_escaped = true,
                (true, false, byte) => typed.push(byte),
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_for_the_session_or_leave_it() {
        for (joins, keys, typed, leaves) in [
            (false, &b"abc\r"[..], &b""[..], false),
            (false, b"aq", b"", true),
            (false, b"\x03", b"", true),
            (true, b"ls -l\rq\x03", b"ls -l\rq\x03", false),
            (true, b"a\x1dqb", b"a", true),
            (true, b"a\x1d.b", b"a", true),
            (true, b"a\x1d\x1db", b"a\x1db", false),
            (true, b"a\x1dxb", b"ab", false),
        ] {
            // However the keys come.
            for piece in [1, keys.len()] {
                let (mut taken, mut all) = (Keys::new(joins), Vec::new());
                let left = keys.chunks(piece).any(|part| taken.take(part, &mut all));
                assert_eq!((&all[..], left), (typed, leaves), "{keys:?}");
            }
        }
    }
}
