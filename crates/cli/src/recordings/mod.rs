//! `fleetgate sessions ls --recorded`, `play`, `export`, `grep`, `verify` and `rm`: recordings of sessions, read from a directory or
//! from the cluster (`place`). What they hold and how it is read is the crate `playback`'s; here is what is asked, and how the
//! answer is printed.

mod live;
mod place;
mod play;
mod remove;
#[cfg(test)]
mod tests;
mod verify;

pub use live::join;
pub use play::{play, watch};
pub use remove::remove;
pub use verify::verify;

use crate::flags::{Arguments, Outcome, UsageError};
use crate::node::read_about;
use crate::output::{self, counted, json_line};
use fleetgate_base::exit;
use fleetgate_playback::about::Begin;
use fleetgate_playback::clock::{SECOND, short};
use fleetgate_playback::export::{asciicast, json as json_lines, svg, text};
use fleetgate_playback::identity::{self, Keys};
use fleetgate_playback::list::{self, Filter, Listing};
use fleetgate_playback::pattern::Pattern;
use fleetgate_playback::play::{screen, show};
use fleetgate_playback::search::{Budget, Event, Options, search};
use fleetgate_playback::store::Entry;
use fleetgate_policy::text::{at, printable, printable_lines};
use place::{Place, not_there, place};
use serde_json::{Value, json};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How much of an id a table has; enough to name a session.
const ID_SHOWN: usize = 16;
/// How often a progress line is written.
const OFTEN: Duration = Duration::from_millis(200);

/// Why a command could not do its work whose exit code 1 has a meaning of its own.
#[derive(Debug)]
pub struct Unable(Box<dyn std::error::Error>);

impl std::fmt::Display for Unable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Unable {}

/// The exit code of such an error is that of a wrong command line.
fn unable(error: Box<dyn std::error::Error>) -> Box<dyn std::error::Error> {
    match error.is::<UsageError>() {
        true => error,
        false => Box::new(Unable(error)),
    }
}

/// Whether `sessions ls` is asked for recordings, and not for who is in.
pub fn is_asked_for(given: &Arguments) -> bool {
    ["recorded", "running", "directory", "cluster"]
        .iter()
        .any(|flag| given.has(flag))
}

/// Lists recordings.
pub fn list(given: &Arguments) -> Outcome {
    let found = place(given)?.list(given)?;
    for trouble in &found.unreadable {
        complain(&trouble.to_string());
    }
    let recordings = &found.recordings;
    output::either(
        given.has("json"),
        || json!({ "recordings": recordings.iter().map(document).collect::<Vec<_>>() }),
        || match recordings.is_empty() {
            true => "no recordings\n".to_owned(),
            false => output::cut(&table(recordings), output::columns()),
        },
    )
}

fn table(recordings: &[Listing]) -> String {
    let row = |listing: &Listing| {
        let begin = &listing.begin;
        vec![
            listing.entry.id.chars().take(ID_SHOWN).collect(),
            begin.user.clone(),
            begin.login.clone(),
            begin.node.clone(),
            begin.client.clone(),
            output::moment(&begin.started),
            output::size(listing.length),
            listing
                .end
                .as_ref()
                .map_or_else(String::new, |(_, at)| short(*at)),
            listing.state(),
            begin.what().to_owned(),
        ]
    };
    let mut rows: Vec<_> = recordings.iter().map(row).collect();
    let mut headings = vec![
        "session", "user", "login", "node", "from", "since", "size", "length", "ended", "what",
    ];
    let is_encrypted = |listing: &Listing| !listing.begin.recipients.is_empty();
    if recordings.iter().any(is_encrypted) {
        let last = headings.len() - 1;
        headings.insert(last, "encrypted");
        for (row, listing) in rows.iter_mut().zip(recordings) {
            let mark = if is_encrypted(listing) { "yes" } else { "" };
            row.insert(last, mark.to_owned());
        }
    }
    output::table(&headings, &rows)
}

fn document(listing: &Listing) -> Value {
    let begin = &listing.begin;
    let mut document = json!({
        "session": listing.entry.id, "user": begin.user, "login": begin.login, "node": begin.node,
        "client": begin.client, "since": begin.started, "kind": begin.kind, "command": begin.command,
        "recording": begin.recording, "roles": begin.roles, "bytes": listing.length,
        "running": listing.entry.is_made(), "encrypted": !begin.recipients.is_empty(),
    });
    if !begin.recipients.is_empty() {
        document["recipients"] = begin.recipients.as_slice().into();
    }
    if listing.entry.elsewhere.is_none() {
        document["file"] = listing.entry.path.display().to_string().into();
    }
    if let Some((end, at)) = &listing.end {
        document["ended"] = end.ended.as_str().into();
        document["seconds"] = (*at / SECOND).into();
        document["recovered"] = end.recovered.into();
        if let Some(status) = end.status {
            document["status"] = status.into();
        }
        if !end.signal.is_empty() {
            document["signal"] = end.signal.as_str().into();
        }
    }
    document
}

/// Writes a recording in another format.
pub fn export(given: &Arguments) -> Outcome {
    export_to(given, &mut BufWriter::new(io::stdout().lock()))
}

fn export_to(given: &Arguments, out: &mut dyn Write) -> Outcome {
    let formats = ["text", "asciicast", "json", "svg"];
    let wanted: Vec<&str> = formats.into_iter().filter(|f| given.has(f)).collect();
    let format = match wanted[..] {
        [] => "text",
        [one] => one,
        [one, other, ..] => {
            return Err(given
                .wrong(format!("`--{one}` and `--{other}` together: give one format"))
                .into());
        }
    };
    for (flag, of) in [("at", "svg"), ("times", "text")] {
        if given.has(flag) && format != of {
            return Err(given.wrong(format!("`--{flag}` goes with `--{of}`")).into());
        }
    }
    let (entry, _) = place(given)?.one(given)?;
    let mut keys = keys(given)?;
    let mut code = 0;
    if format != "json" {
        is_readable(&entry, &keys)?;
    } else if !identity::opens(&entry, &keys)? {
        let recipients = list::look(entry.clone())?.begin.recipients;
        complain(&format!(
            "the recording {} is encrypted, and the given keys open nothing of it: its blocks are exported as they are{}",
            entry.id,
            match recipients.is_empty() {
                true => String::new(),
                false => format!(
                    "; the private key of one of these opens them: {}",
                    recipients.join(", ")
                ),
            }
        ));
        keys = Keys::default();
        // A key that was named is wanted; the one in the user's own place is a guess.
        if given.has("identity") {
            code = exit::REFUSED;
        }
    }
    let mut source = entry.open_with(&keys)?;
    let written = match format {
        "asciicast" => asciicast(&mut source, out),
        "json" => json_lines(&mut source, out),
        "svg" => (|| {
            let until = given.seconds("at").map(|s| u64::from(s) * SECOND);
            let mut picture = screen(&Begin::default());
            while let Some(frame) = source.next_frame()? {
                if until.is_some_and(|until| frame.at > until) {
                    break;
                }
                match frame.kind.name() {
                    "begin" => picture = screen(&Begin::read(frame.bytes)),
                    _ => show(&mut picture, &frame),
                }
            }
            svg(&picture, out)
        })(),
        _ => text(&mut source, given.has("times"), out),
    };
    written_out(written.and_then(|()| out.flush()))?;
    match source.fault() {
        Some(fault) => {
            // Without a terminal `play` does this too.
            let done = match given.command.words {
                [.., "play"] => "printed",
                _ => "exported",
            };
            complain(&format!("{}: {fault}: {done} up to there", entry.path.display()));
            Ok(exit::REFUSED)
        }
        None => Ok(code),
    }
}

/// Searches.
pub fn grep(given: &Arguments) -> Outcome {
    search_all(given).map_err(unable)
}

fn search_all(given: &Arguments) -> Outcome {
    let pattern = given.word().unwrap_or_default();
    let pattern = Pattern::new(pattern, given.has("ignore-case"), given.has("extended-regexp"))
        .map_err(|why| given.wrong(format!("PATTERN: {}", printable(&why))))?;
    let place = place(given)?;
    let (entries, unreadable) = begun(given, &place)?;
    let mut has_trouble = unreadable > 0;
    let options = Options {
        uses_index: !given.has("no-index"),
        keys: keys(given)?,
        budget: Budget::default(),
    };
    let mut progress = Progress::new();
    let mut failed = None;
    let found = search(&entries, &pattern, &options, &mut |event| {
        let written = match event {
            Event::Done(done) => {
                progress.show(|| {
                    format!(
                        "{} of {}, {}",
                        done.done,
                        counted(done.of as u64, "recording", "recordings"),
                        counted(done.matches, "match", "matches")
                    )
                });
                Ok(())
            }
            Event::Trouble(entry, why) => {
                progress.clear();
                has_trouble = true;
                complain(&at(&entry.path.display().to_string(), &why));
                Ok(())
            }
            Event::Match(entry, begin, found) => {
                progress.clear();
                let text = match given.has("json") {
                    true => json_line(&match_document(entry, begin, found.at, &found.line)),
                    false => match_text(entry, begin, found.at, &found.line, given),
                };
                io::stdout().lock().write_all(text.as_bytes())
            }
        };
        failed = written.err();
        failed.is_none()
    });
    progress.clear();
    if let Place::Cluster(_) = place {
        place::tidy_cache();
    }
    written_out(failed.map_or(Ok(()), Err))?;
    Ok(match (has_trouble, found.matches) {
        (true, _) => exit::USAGE,
        (false, 0) => exit::REFUSED,
        (false, _) => 0,
    })
}

fn match_document(entry: &Entry, begin: &Begin, at: u64, line: &str) -> Value {
    json!({
        "session": entry.id, "time": begin.moment(at), "user": begin.user, "login": begin.login, "node": begin.node,
        "seconds": at / SECOND, "line": line,
    })
}

fn match_text(entry: &Entry, begin: &Begin, at: u64, line: &str, given: &Arguments) -> String {
    let who = [begin.user.as_str(), &begin.login, &begin.node];
    let who: Vec<&str> = who.into_iter().filter(|word| !word.is_empty()).collect();
    let mut jump = format!("fleetgate sessions play {} --from {}s", &entry.id, at / SECOND);
    for flag in ["directory", "config", "state", "home", "identity"] {
        for value in given.values(flag) {
            jump += &format!(" --{flag} {}", quoted(value));
        }
    }
    if given.has("cluster") {
        jump += " --cluster";
    }
    let head = format!("{}  {}  {jump}", output::moment(&begin.moment(at)), who.join(" "));
    format!("{}\n    {}\n", printable(&head), printable_lines(line))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+=:,@".contains(&b);
    match word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The directory of recordings.
fn directory(given: &Arguments) -> Result<PathBuf, Box<dyn std::error::Error>> {
    if let Some(directory) = given.value("directory") {
        return Ok(directory.into());
    }
    Ok(read_about(given)?.0.recording.directory)
}

/// The keys for what is encrypted: those of the files that are given, else of the one in the user's own place, if there is one.
fn keys(given: &Arguments) -> Result<Keys, Box<dyn std::error::Error>> {
    let mut files = Vec::new();
    for path in given.values("identity") {
        files.push((path.into(), identity::read(Path::new(path))?));
    }
    if files.is_empty()
        && let Some(path) = own_identity().filter(|path| path.exists())
    {
        match identity::read(&path) {
            Ok(file) => files.push((path, file)),
            // What is readable is read without.
            Err(why) => complain(&why),
        }
    }
    for (path, file) in &files {
        if file.is_exposed {
            let path = path.display();
            complain(&format!("{path}: others may read these keys: `chmod 600 {path}`"));
        }
    }
    Ok(identity::keys(files.into_iter().map(|(_, file)| file)))
}

/// `~/.config/fleetgate/age.txt`.
fn own_identity() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")))?;
    Some(base.join("fleetgate/age.txt"))
}

/// Whether a recording can be shown: it is not encrypted, or there is a key. Whether it is the right one, its blocks say.
fn is_readable(entry: &Entry, keys: &Keys) -> Result<(), Box<dyn std::error::Error>> {
    let recipients = list::look(entry.clone())?.begin.recipients;
    if recipients.is_empty() || !keys.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the recording {} is encrypted for {}: give the private key of one of them with --identity FILE, a file as `age-keygen` \
         writes it",
        entry.id,
        recipients.join(", ")
    )
    .into())
}

fn filter(given: &Arguments) -> Filter {
    let text = |flag| given.value(flag).unwrap_or_default().to_owned();
    Filter {
        user: text("user"),
        login: text("login"),
        node: text("node"),
        since: given.moment("since"),
        until: given.moment("until"),
        running: given.has("running"),
    }
}

/// The recordings that are wanted, in the order in which they began, and how many cannot be read: each was complained about.
fn begun(given: &Arguments, place: &Place) -> Result<(Vec<Entry>, usize), Box<dyn std::error::Error>> {
    let Place::Directory(directory) = place else {
        let found = place.list(given)?.recordings;
        return Ok((found.into_iter().map(|listing| listing.entry).collect(), 0));
    };
    let (mut entries, mut unreadable) = (Vec::new(), 0);
    for found in list::begun(directory, &filter(given)).map_err(|e| not_there(given, e))? {
        match found {
            Ok((entry, _)) => entries.push(entry),
            Err(trouble) => {
                unreadable += 1;
                complain(&trouble.to_string());
            }
        }
    }
    Ok((entries, unreadable))
}

/// A reader that has gone away is no error.
fn written_out(result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}

fn complain(what: &str) {
    // A reader that has gone away is no reason to end.
    let _ = writeln!(io::stderr(), "fleetgate: {}", printable(what));
}

/// A line on standard error that says how far it is, where that is a terminal.
struct Progress {
    is_terminal: bool,
    last: Instant,
    is_shown: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            is_terminal: io::stderr().is_terminal(),
            last: Instant::now(),
            is_shown: false,
        }
    }

    fn show(&mut self, line: impl FnOnce() -> String) {
        if self.is_terminal && self.last.elapsed() > OFTEN {
            eprint!("\r{}\x1b[K", line());
            (self.last, self.is_shown) = (Instant::now(), true);
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprint!("\r\x1b[K");
        }
    }
}
