//! Where a report is written: standard error, a file, a command's input, or a file for each task. Lines gather in memory,
//! so that one costs no system call while much happens. It never waits for anything but the write itself, and what cannot
//! be written is no reason to disturb the traced program: it is said once, and the rest of the report is dropped.
//!
//! When what has gathered is written: on a terminal or a pipe, where somebody reads along, before the tracer waits for the
//! next event; in a file by a thread of its own, a quarter of a second after the first of it at the latest, whatever the
//! tracer does meanwhile; and everywhere when much has gathered.

use crate::TraceError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What gathers before it is written, at most.
const MUCH: usize = 64 << 10;
/// How far a file may be behind.
const BEHIND: Duration = Duration::from_millis(250);
/// Files that are open at once where each task has its own; the one that was written longest ago is opened anew later.
pub const MAX_OPEN: usize = 256;

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard error.
    Stderr,
    /// A file, made anew or written on at its end.
    File(PathBuf, bool),
    /// The standard input of a command of the shell.
    Command(String),
    /// A file for each task: this name, a dot and its number.
    Each(PathBuf),
}

impl Target {
    /// What `-o` says: a file, or `|command`, as strace has it.
    #[must_use]
    pub fn parse(text: &str, each: bool, append: bool) -> Target {
        match text.strip_prefix(['|', '!']) {
            Some(command) => Target::Command(command.to_owned()),
            None if each => Target::Each(text.into()),
            None => Target::File(text.into(), append),
        }
    }
}

/// The way out.
pub struct Output {
    shared: Arc<Shared>,
    child: Option<Child>,
    /// Somebody reads along.
    live: bool,
    each: bool,
}

/// What the tracer and the thread that writes behind it share.
struct Shared {
    gathered: Mutex<Buffer>,
    /// Something has gathered, or it is over.
    news: Condvar,
}

struct Buffer {
    sinks: Sinks,
    /// Something waits to be written.
    some: bool,
    over: bool,
    /// A thread writes what gathers.
    behind: bool,
}

enum Sinks {
    One(Sink),
    Each(Each),
}

struct Sink {
    /// None: it was closed, or nothing can be written.
    file: Option<File>,
    name: String,
    bytes: Vec<u8>,
}

/// Files by task.
struct Each {
    stem: PathBuf,
    /// Beside each when it was written last.
    open: BTreeMap<i32, (Sink, u64)>,
    /// Those that had to be closed, and are written on.
    closed: BTreeSet<i32>,
    clock: u64,
    failed: bool,
}

impl Output {
    /// Opens it.
    ///
    /// # Errors
    /// It cannot be: which, why, in words.
    pub fn open(target: &Target) -> Result<Output, TraceError> {
        let (file, name, child) = match target {
            Target::Stderr => {
                let fd = std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned();
                let file = fd.map_err(|e| format!("standard error: {e}"))?;
                (File::from(file), "standard error".to_owned(), None)
            }
            Target::File(path, append) => (create(path, *append)?, path.display().to_string(), None),
            Target::Command(line) => {
                let child = Command::new("/bin/sh")
                    .args(["-c", line])
                    .stdin(Stdio::piped())
                    .spawn();
                let mut child = child.map_err(|e| format!("`{line}`: {e}"))?;
                let input = child.stdin.take().expect("it was asked for");
                let file = File::from(std::os::fd::OwnedFd::from(input));
                (file, format!("`{line}`"), Some(child))
            }
            Target::Each(stem) => {
                let each = Each {
                    stem: stem.clone(),
                    open: BTreeMap::new(),
                    closed: BTreeSet::new(),
                    clock: 0,
                    failed: false,
                };
                return Ok(Output::of(Sinks::Each(each), None, false));
            }
        };
        let kind = file.metadata().map(|m| m.file_type());
        let live =
            file.is_terminal() || kind.is_ok_and(|k| k.is_fifo() || k.is_socket() || k.is_char_device());
        let sink = Sink {
            file: Some(file),
            name,
            bytes: Vec::with_capacity(MUCH + 4096),
        };
        Ok(Output::of(Sinks::One(sink), child, live))
    }

    fn of(sinks: Sinks, child: Option<Child>, live: bool) -> Output {
        let each = matches!(sinks, Sinks::Each(_));
        let gathered = Buffer {
            sinks,
            some: false,
            over: false,
            behind: false,
        };
        let shared = Shared {
            gathered: Mutex::new(gathered),
            news: Condvar::new(),
        };
        Output {
            shared: Arc::new(shared),
            child,
            live,
            each,
        }
    }

    /// Starts the thread that writes behind the tracer, where one is needed. Call it when no process is to be made any more
    /// and signals are blocked as they shall be.
    pub fn begin(&mut self) {
        if self.live {
            return;
        }
        let theirs = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("fleetgate-report".to_owned());
        let started = thread.spawn(move || theirs.write_behind());
        self.lock().behind = started.is_ok();
    }

    /// Whether each task has a file of its own.
    #[must_use]
    pub fn is_each(&self) -> bool {
        self.each
    }

    /// Adds to what is to be written, of this task.
    pub fn put(&mut self, tid: i32, bytes: &[u8]) {
        let mut gathered = self.lock();
        if !gathered.some && gathered.behind {
            self.shared.news.notify_one();
        }
        gathered.some = true;
        match &mut gathered.sinks {
            Sinks::One(sink) => sink.put(bytes),
            Sinks::Each(each) => each.put(tid, bytes),
        }
    }

    /// Whether something waits that is to be written before the tracer waits.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let gathered = self.lock();
        gathered.some && !gathered.behind
    }

    /// Writes all of it.
    pub fn flush(&mut self) {
        self.lock().write();
    }

    /// A task is gone: what it alone had is closed.
    pub fn ended(&mut self, tid: i32) {
        if let Sinks::Each(each) = &mut self.lock().sinks {
            each.closed.remove(&tid);
            if let Some((mut sink, _)) = each.open.remove(&tid) {
                sink.write();
            }
        }
    }

    /// Writes all of it, closes, and waits for a command to end.
    pub fn close(mut self) {
        let mut gathered = self.lock();
        gathered.write();
        gathered.over = true;
        if let Sinks::One(sink) = &mut gathered.sinks {
            sink.file = None;
        }
        drop(gathered);
        self.shared.news.notify_one();
        if let Some(mut child) = self.child.take() {
            // Whoever waits for any child may have had it already.
            let _ = child.wait();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.shared.lock()
    }
}

fn create(path: &Path, append: bool) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(append).truncate(!append);
    options
        .open(path)
        .map_err(|e| format!("{}: {e}; -o names a file that can be made", path.display()))
}

impl Shared {
    /// A thread that panicked while it held the lock has left nothing half done that matters here.
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_behind(&self) {
        let mut gathered = self.lock();
        while !gathered.over {
            if !gathered.some {
                gathered = self.news.wait(gathered).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.news.wait_timeout_while(gathered, BEHIND, |g| !g.over);
            gathered = waited.unwrap_or_else(PoisonError::into_inner).0;
            gathered.write();
        }
    }
}

impl Buffer {
    fn write(&mut self) {
        self.some = false;
        match &mut self.sinks {
            Sinks::One(sink) => sink.write(),
            Sinks::Each(each) => each.open.values_mut().for_each(|(sink, _)| sink.write()),
        }
    }
}

impl Sink {
    fn put(&mut self, bytes: &[u8]) {
        if self.file.is_none() {
            return;
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= MUCH {
            self.write();
        }
    }

    fn write(&mut self) {
        if let Some(file) = &mut self.file
            && let Err(e) = file.write_all(&self.bytes)
        {
            self.file = None;
            // Standard error may be what failed; then nobody is left to be told.
            let _ = writeln!(
                std::io::stderr(),
                "fleetgate: {}: {e}; the report ends here, the program goes on",
                self.name
            );
        }
        self.bytes.clear();
    }
}

impl Each {
    fn put(&mut self, tid: i32, bytes: &[u8]) {
        self.clock += 1;
        if let Some((sink, used)) = self.open.get_mut(&tid) {
            *used = self.clock;
            return sink.put(bytes);
        }
        if self.open.len() >= MAX_OPEN {
            let oldest = self.open.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(tid) = oldest.map(|(tid, _)| *tid)
                && let Some((mut sink, _)) = self.open.remove(&tid)
            {
                sink.write();
                self.closed.insert(tid);
            }
        }
        let mut name = self.stem.clone().into_os_string();
        name.push(format!(".{tid}"));
        let path = PathBuf::from(name);
        match create(&path, self.closed.contains(&tid)) {
            Ok(file) => {
                let mut sink = Sink {
                    file: Some(file),
                    name: path.display().to_string(),
                    bytes: Vec::new(),
                };
                sink.put(bytes);
                self.open.insert(tid, (sink, self.clock));
            }
            Err(e) if !self.failed => {
                self.failed = true;
                let _ = writeln!(std::io::stderr(), "fleetgate: {e}; the program goes on");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A name in the folder for such things that is nobody else's.
    fn place() -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        std::env::temp_dir().join(format!("fleetgate-report-{}-{number}", std::process::id()))
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).expect("it was written")
    }

    #[test]
    fn what_o_says() {
        for (text, each, target) in [
            ("out", false, Target::File("out".into(), false)),
            ("out", true, Target::Each("out".into())),
            ("|gzip", false, Target::Command("gzip".into())),
            ("!gzip", true, Target::Command("gzip".into())),
        ] {
            assert_eq!(Target::parse(text, each, false), target);
        }
    }

    #[test]
    fn a_file_is_written_behind_the_tracer_and_at_the_end() {
        let path = place();
        let mut output = Output::open(&Target::File(path.clone(), false)).expect("a file");
        output.begin();
        output.put(1, b"first\n");
        // Nobody flushes it.
        while read(&path).is_empty() {
            std::thread::yield_now();
        }
        assert!(!output.is_due());
        output.put(1, b"last\n");
        output.close();
        assert_eq!(read(&path), "first\nlast\n");
        let again = Output::open(&Target::File(path.clone(), true)).expect("the same");
        again.close();
        assert_eq!(read(&path), "first\nlast\n", "appended to");
        std::fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn a_command_reads_all_of_it() {
        let path = place();
        let line = format!("tr a-z A-Z > {}", path.display());
        let mut output = Output::open(&Target::Command(line)).expect("a shell");
        output.put(1, b"shout\n");
        assert!(output.is_due());
        output.close();
        assert_eq!(read(&path), "SHOUT\n");
        std::fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn each_task_has_its_file_and_not_all_are_open() {
        let stem = place();
        let mut output = Output::open(&Target::Each(stem.clone())).expect("names");
        let tasks = MAX_OPEN as i32 + 10;
        for round in ["a", "b"] {
            for tid in 1..=tasks {
                output.put(tid, round.as_bytes());
            }
        }
        match &output.lock().sinks {
            Sinks::Each(each) => assert_eq!(each.open.len(), MAX_OPEN),
            Sinks::One(_) => panic!("one each"),
        }
        output.ended(tasks);
        output.close();
        for tid in 1..=tasks {
            let path = PathBuf::from(format!("{}.{tid}", stem.display()));
            assert_eq!(read(&path), "ab");
            std::fs::remove_file(path).expect("it is there");
        }
    }

    #[test]
    fn what_cannot_be_written_is_dropped() {
        let target = Target::File("/dev/full".into(), false);
        let mut output = Output::open(&target).expect("it opens");
        output.put(1, b"x");
        output.flush();
        output.put(1, b"y");
        match &output.lock().sinks {
            Sinks::One(sink) => assert!(sink.file.is_none() && sink.bytes.is_empty()),
            Sinks::Each(_) => panic!("one for all"),
        }
        output.close();
        let nowhere = Output::open(&Target::File("/nowhere/x".into(), false));
        let why = nowhere.err().expect("no such folder").to_string();
        assert!(why.starts_with("/nowhere/x: No such file"), "{why}");
    }
}
