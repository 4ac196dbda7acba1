//! `fleetgate sessions play`: the terminal around a player. What is written to it is the painter's and a line of our own.

use super::place::{Place, place};
use super::{complain, directory, export, is_readable, live, written_out};
use crate::flags::{Arguments, Outcome, session_id};
use fleetgate_base::exit;
use fleetgate_playback::clock::SECOND;
use fleetgate_playback::identity::Keys;
use fleetgate_playback::list::look;
use fleetgate_playback::paint::Painter;
use fleetgate_playback::play::{Key, Next, Options, Player, keys, status};
use fleetgate_playback::source::Source;
use fleetgate_playback::store::{self, Entry};
use fleetgate_sys::poll::{self, READ, Watch};
use fleetgate_sys::signals::{self, HUP, TERM};
use fleetgate_sys::terminal::{self, Modes};
use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

const INPUT: i32 = 0;
const OUTPUT: i32 = 1;
/// The clock in the last row goes on so often, and the terminal's size is looked at.
const TICK: Duration = Duration::from_millis(250);
/// The slowest and the fastest, in percent.
const SPEEDS: std::ops::RangeInclusive<f64> = 1.0..=100_000.0;

/// Plays a recording, or prints its text where there is no terminal.
pub fn play(given: &Arguments) -> Outcome {
    let micros = |flag| given.seconds(flag).map(|seconds| u64::from(seconds) * SECOND);
    let mut options = Options {
        speed: speed(given)?,
        from: micros("from").unwrap_or(0),
        max_idle: micros("max-idle"),
        ..Options::default()
    };
    if !io::stdout().is_terminal() {
        // They say how it is shown as time goes by. Text is printed at once.
        if let Some(flag) = ["speed", "from", "max-idle"]
            .into_iter()
            .find(|flag| given.has(flag))
        {
            return Err(given
                .wrong(format!(
                    "`--{flag}` is for a terminal, and standard output is none: leave it out and the whole text is printed, or \
                     give `fleetgate sessions export --text --times`, which has the time before each line"
                ))
                .into());
        }
        return export(given);
    }
    let (entry, _) = place(given)?.one(given)?;
    options.length = look(entry.clone()).ok().and_then(|listing| Some(listing.end?.1));
    let keys = keys_for(given, &entry)?;
    let open = || entry.open_with(&keys).map_err(io::Error::other);
    let mut player = Player::new(open, options).map_err(|e| e.to_string())?;
    let played = on_terminal(&mut player);
    written_out(played)?;
    said_at_end(&entry, player.fault())
}

/// Shows what a session shows that still runs: of this node from its files, a second later at most, else from its node.
pub fn watch(given: &Arguments) -> Outcome {
    if is_elsewhere(given)? {
        return live::see(&live::target(given, false)?);
    }
    if !io::stdout().is_terminal() {
        return Err(given
            .wrong(
                "sessions watch wants a terminal: `fleetgate sessions play` prints what was shown until now",
            )
            .into());
    }
    let (entry, _) = Place::Directory(directory(given)?).one(given)?;
    if !entry.is_made() {
        return Err(format!(
            "the session {} has ended: see it with `fleetgate sessions play {}`",
            entry.id, entry.id
        )
        .into());
    }
    let options = Options {
        from: u64::MAX,
        follow: true,
        ..Options::default()
    };
    let keys = keys_for(given, &entry)?;
    // When the session ends, the recording is what it was while it ran, and has its end.
    let open = || entry.again().open_with(&keys).map_err(io::Error::other);
    let mut player = Player::new(open, options).map_err(|e| e.to_string())?;
    let watched = on_terminal(&mut player);
    written_out(watched)?;
    said_at_end(&entry, player.fault())
}

/// Whether the session is to be seen by way of the cluster: it is asked for, or nothing here is being recorded by that name.
fn is_elsewhere(given: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    if ["directory", "config", "last"].iter().any(|flag| given.has(flag)) {
        return Ok(false);
    }
    let Some(word) = given.word().filter(|_| !given.has("node") && !given.has("home")) else {
        return Ok(given.word().is_some());
    };
    let word = session_id(word)?;
    let found = directory(given).and_then(|directory| Ok(store::find(&directory, &word)?));
    Ok(!found.is_ok_and(|entry| entry.is_made()))
}

/// The keys that open it, if it is encrypted.
fn keys_for(given: &Arguments, entry: &Entry) -> Result<Keys, Box<dyn std::error::Error>> {
    let keys = super::keys(given)?;
    is_readable(entry, &keys)?;
    Ok(keys)
}

fn said_at_end(entry: &Entry, fault: Option<String>) -> Outcome {
    match fault {
        Some(fault) => {
            complain(&format!("{}: {fault}: played up to there", entry.path.display()));
            Ok(exit::REFUSED)
        }
        None => Ok(0),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is within SPEEDS"
)]
fn speed(given: &Arguments) -> Result<u32, Box<dyn std::error::Error>> {
    let Some(word) = given.value("speed") else {
        return Ok(100);
    };
    let percent = word.parse::<f64>().ok().map(|factor| factor * 100.0);
    match percent.filter(|percent| SPEEDS.contains(percent)) {
        Some(percent) => Ok(percent as u32),
        None => Err(given
            .wrong(format!("--speed wants a factor from 0.01 to 1000, not {word:?}"))
            .into()),
    }
}

/// The terminal while something is played on it. Dropped: it is as it was.
pub(super) struct Stage(Option<Modes>);

impl Stage {
    pub(super) fn begin() -> io::Result<Stage> {
        let modes = terminal::modes(INPUT).ok();
        if let Some(modes) = &modes {
            let _ = terminal::set_modes(INPUT, &modes.raw());
        }
        let stage = Stage(modes);
        // The alternate screen: what stood there before is there again afterwards.
        write(b"\x1b[?1049h\x1b[0m\x1b[2J")?;
        Ok(stage)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = write(b"\x1b[0m\x1b[?25h\x1b[?1049l");
        if let Some(modes) = &self.0 {
            let _ = terminal::set_modes(INPUT, modes);
        }
    }
}

pub(super) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

pub(super) fn size() -> (usize, usize) {
    match terminal::size(OUTPUT) {
        Ok((columns, rows)) if columns > 0 && rows > 0 => (columns.into(), rows.into()),
        _ => (80, 24),
    }
}

fn on_terminal<R: Read, O: FnMut() -> io::Result<Source<R>>>(player: &mut Player<R, O>) -> io::Result<()> {
    let signals = signals::descriptor(&[TERM, HUP]).map_err(io::Error::from)?;
    let stage = Stage::begin()?;
    let has_keys = stage.0.is_some();
    let start = Instant::now();
    let mut shown = (0, 0);
    let mut painter = Painter::default();
    let mut foot = String::new();
    loop {
        let next = player.advance(start.elapsed())?;
        if next == Next::Quit {
            return Ok(());
        }
        let (columns, rows) = size();
        if (columns, rows) != shown {
            shown = (columns, rows);
            painter = Painter::new(columns, rows.saturating_sub(1).max(1));
            foot.clear();
        }
        let drawn = painter.draw(player.screen());
        let line = status(player, columns);
        let mut out = String::new();
        if rows > 1 && (line != foot || drawn.starts_with("\x1b[0m\x1b[2J")) {
            // The cursor is put back where the session has it.
            out = format!("\x1b7\x1b[{rows};1H\x1b[0;7m{line}\x1b[0m\x1b[K\x1b8");
            foot = line;
        }
        if !drawn.is_empty() || !out.is_empty() {
            write(format!("{drawn}{out}").as_bytes())?;
        }
        let wait = match next {
            Next::Now => Duration::ZERO,
            Next::Wait(wait) => wait.min(TICK),
            // Without keys nobody could say more.
            _ if !has_keys => return Ok(()),
            _ => TICK,
        };
        let mut watches = [
            Watch::new(if has_keys { INPUT } else { -1 }, READ),
            Watch::new(signals.raw(), READ),
        ];
        let nanos = i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX);
        poll::wait(&mut watches, Some(nanos)).map_err(io::Error::from)?;
        if watches[1].happened() != 0 {
            return Ok(());
        }
        if watches[0].happened() != 0 {
            let mut bytes = [0; 64];
            let read = io::stdin().lock().read(&mut bytes)?;
            let pressed = match read {
                0 => vec![Key::Quit],
                read => keys(&bytes[..read]),
            };
            for key in pressed {
                player.key(key, start.elapsed())?;
            }
        }
    }
}
