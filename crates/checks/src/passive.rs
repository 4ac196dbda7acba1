//! Results for Nagios' and Icinga's external command file, a FIFO: a line for each result. A node's output is in it, and can
//! neither end the line nor begin another one. A FIFO that nobody reads is not waited for.

use super::probe::Status;
use super::results::CheckResult;
use fleetgate_client::stderr;
use fleetgate_policy::text::is_unseen;
use fleetgate_sys::file::{self, flags};
use fleetgate_sys::{Errno, Fd};
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The longest line, its end included: what a FIFO takes whole or not at all (PIPE_BUF, pipe(7)).
pub const MAX_LINE: usize = 4096;
/// Lines that wait for room in the FIFO; of more the oldest are dropped.
const MAX_UNWRITTEN_LINES: usize = 4096;
/// What stands behind an output that was cut. It is a line of its own, so that no performance data ends with it.
const CUT: &str = "\\n(cut: the rest does not fit into a line of the command file)";

/// The line for a result: `[time] PROCESS_SERVICE_CHECK_RESULT;HOST;SERVICE;CODE;OUTPUT`. The output is the last field, so
/// semicolons in it are its own, and so are bars. The ends of its lines are written as `\n`, as both programs read it. The code
/// is that of the state that is given away; where the output is of another one, it stands before it. None: there is no state yet.
#[must_use]
pub fn line(result: &CheckResult, status: &Status) -> Option<Vec<u8>> {
    let state = status.state?;
    let mut head = format!(
        "[{}] PROCESS_SERVICE_CHECK_RESULT;{};{};{};",
        result.ended / 1000,
        result.target.node,
        result.target.service,
        state.code()
    );
    if state != result.raw_state {
        head += &format!(
            "{} {} of {}, {} until then: ",
            result.raw_state.name(),
            status.attempt,
            status.attempts,
            state.name()
        );
    }
    let room = (MAX_LINE - 1).saturating_sub(head.len());
    let mut text = escaped(&result.output);
    if result.is_cut || text.len() > room {
        cut(&mut text, room.saturating_sub(CUT.len()));
        text.push_str(CUT);
    }
    Some(format!("{head}{text}\n").into_bytes())
}

/// The output on one line, without what acts on anything.
fn escaped(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let mut line = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\t' => line.push(' '),
            c if is_unseen(c) => {}
            c => line.push(c),
        }
    }
    line
}

/// Cuts between two words where it can: half of a number would be another number. A backslash begins the end of a line.
fn cut(text: &mut String, most: usize) {
    if text.len() <= most {
        return;
    }
    let end = text.floor_char_boundary(most);
    let gap = match text[end..].starts_with([' ', '\\']) {
        true => end,
        false => text[..end].rfind([' ', '\\']).unwrap_or(end),
    };
    text.truncate(gap);
}

/// The command file.
pub struct CommandFile {
    path: PathBuf,
    fifo: Option<Fd>,
    waiting: VecDeque<Vec<u8>>,
    /// So many results were dropped.
    dropped: u64,
    /// It was said that they are.
    has_complained: bool,
}

impl CommandFile {
    /// The one at this path. What is there must be a FIFO; where nothing is, the monitoring system may make it later.
    pub fn new(path: &Path) -> io::Result<CommandFile> {
        match std::fs::metadata(path) {
            Ok(meta) if !meta.file_type().is_fifo() => return Err(not_a_fifo()),
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        Ok(CommandFile {
            path: path.to_owned(),
            fifo: None,
            waiting: VecDeque::new(),
            dropped: 0,
            has_complained: false,
        })
    }

    /// Takes a line, and writes what there is room for.
    pub fn put(&mut self, line: Vec<u8>) {
        self.waiting.push_back(line);
        self.write();
        while self.waiting.len() > MAX_UNWRITTEN_LINES {
            self.waiting.pop_front();
            self.dropped += 1;
            self.complain("it is full, and nobody reads it");
        }
    }

    /// Whether lines wait for room.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many results were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Writes what there is room for. Without a reader the lines are dropped.
    pub fn write(&mut self) {
        // A reader that went away may have left another one behind: the file is opened a second time.
        let mut is_new = false;
        while let Some(line) = self.waiting.front() {
            let fifo = match &self.fifo {
                Some(fifo) => fifo,
                None => match open(&self.path) {
                    Ok(fifo) => {
                        is_new = true;
                        self.fifo.insert(fifo)
                    }
                    Err(e) => return self.drop_all(&e),
                },
            };
            match file::write(fifo.raw(), line) {
                Ok(_) => {
                    self.waiting.pop_front();
                    self.has_complained = false;
                }
                Err(Errno::EAGAIN) => return,
                Err(e) => {
                    self.fifo = None;
                    if is_new {
                        return self.drop_all(&io::Error::from_raw_os_error(e.0));
                    }
                }
            }
        }
    }

    fn drop_all(&mut self, why: &io::Error) {
        self.dropped += self.waiting.len() as u64;
        self.waiting.clear();
        match why.raw_os_error() {
            Some(code) if code == Errno::ENXIO.0 => self.complain("nobody reads it"),
            _ => self.complain(&why.to_string()),
        }
    }

    /// Says it once, until a result gets through again.
    fn complain(&mut self, why: &str) {
        if !self.has_complained {
            self.has_complained = true;
            stderr::line(format_args!(
                "{}: {why}; results are dropped until that has changed: does the monitoring system run, and take external \
                 commands?",
                self.path.display()
            ));
        }
    }
}

/// Opens the FIFO for writing, without waiting for a reader.
fn open(path: &Path) -> io::Result<Fd> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let how = flags::O_WRONLY | flags::O_NONBLOCK | flags::O_NOCTTY;
    let fifo = file::openat(file::CWD, &name, how, 0).map_err(|e| io::Error::from_raw_os_error(e.0))?;
    let kind = std::fs::File::from(fifo.as_fd().try_clone_to_owned()?).metadata()?;
    match kind.file_type().is_fifo() {
        true => Ok(fifo),
        false => Err(not_a_fifo()),
    }
}

fn not_a_fifo() -> io::Error {
    io::Error::other("it is no FIFO: give the external command file of Nagios or Icinga")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Probe, Thresholds};
    use crate::results::tests::result;
    use std::io::Read;

    /// The line of a result that counts at once.
    fn line_of(result: &CheckResult) -> Vec<u8> {
        let status = Probe::default().take(result.raw_state, Thresholds::ONE);
        line(result, &status).expect("a state")
    }

    fn written(output: &[u8]) -> String {
        let line = line_of(&result("web1", "load", 2, output));
        assert!(line.len() <= MAX_LINE, "{}", line.len());
        let text = String::from_utf8(line).expect("text");
        let text = text.strip_suffix('\n').expect("a line");
        assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
        text.to_owned()
    }

    const HEAD: &str = "[1800000000] PROCESS_SERVICE_CHECK_RESULT;web1;load;2;";

    #[test]
    fn hostile_output_submits_no_second_command() {
        for (output, text) in [
            (&b"OK - all well|a=1;2;3\n"[..], "OK - all well|a=1;2;3"),
            (b"first\nsecond\n\nthird|b=2\n\n", "first\\nsecond\\n\\nthird|b=2"),
            (
                b"OK\n[1] SHUTDOWN_PROGRAM\r\n\x00[2] RESTART\x1b[2J",
                "OK\\n[1] SHUTDOWN_PROGRAM\\n[2] RESTART[2J",
            ),
            (b"a\tb\xff;c\xc2\x85d", "a b\u{fffd};cd"),
            (b"", ""),
        ] {
            assert_eq!(written(output), format!("{HEAD}{text}"));
        }
    }

    #[test]
    fn a_state_that_does_not_count_yet_is_told_before_the_output() {
        let thresholds = Thresholds {
            failure: 3,
            success: 2,
        };
        let mut probe = Probe::default();
        for (code, line_wanted) in [
            (2, None),
            (0, Some("0;all is well|a=1")),
            (2, Some("0;CRITICAL 1 of 3, OK until then: all is well|a=1")),
            (3, Some("0;UNKNOWN 2 of 3, OK until then: all is well|a=1")),
            (2, Some("2;all is well|a=1")),
            (0, Some("2;OK 1 of 2, CRITICAL until then: all is well|a=1")),
            (0, Some("0;all is well|a=1")),
        ] {
            let result = result("web1", "load", code, b"all is well|a=1");
            let line = line(&result, &probe.take(result.raw_state, thresholds));
            let wanted =
                line_wanted.map(|end| format!("[1800000000] PROCESS_SERVICE_CHECK_RESULT;web1;load;{end}\n"));
            assert_eq!(line.map(|line| String::from_utf8(line).expect("text")), wanted);
        }
    }

    #[test]
    fn a_long_output_is_cut_between_words_and_says_so() {
        let long = format!("OK|{}", "item=12345 ".repeat(1000));
        let text = written(long.as_bytes());
        let body = text.strip_suffix(CUT).expect("it says so");
        assert!(body.ends_with(" item=12345"), "{}", &body[body.len() - 30..]);
        assert!(text.len() > MAX_LINE - 100, "{}", text.len());
        for output in ["ä".repeat(9000), "\n".repeat(9000) + "x", "a ".repeat(4000)] {
            let text = written(output.as_bytes());
            let body = text.strip_suffix(CUT).expect("it says so");
            assert!(!body.ends_with('\\'), "half of an end of a line");
        }
        // What just fits is whole.
        let room = MAX_LINE - 1 - HEAD.len();
        assert_eq!(written("x".repeat(room).as_bytes()).len(), MAX_LINE - 1);
        assert!(written("x".repeat(room + 1).as_bytes()).ends_with(CUT));
        // What was cut before says so too.
        let mut cut = result("web1", "load", 0, b"OK");
        cut.is_cut = true;
        assert!(line_of(&cut).ends_with(format!(";OK{CUT}\n").as_bytes()));
    }

    #[test]
    fn a_fifo_without_a_reader_is_not_waited_for() {
        let place = std::env::temp_dir().join(format!("fleetgate-passive-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("made");
        let path = place.join("commands");
        let mut none = CommandFile::new(&path).expect("it may come later");
        none.put(b"a\n".to_vec());
        assert_eq!((none.dropped(), none.is_waiting()), (1, false));
        let status = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(status.expect("mkfifo").success());
        let mut fifo = CommandFile::new(&path).expect("a FIFO");
        fifo.put(b"b\n".to_vec());
        assert_eq!((fifo.dropped(), fifo.is_waiting()), (1, false));
        // Open for both, it is a reader that no open waits for.
        let mut reader = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("opened");
        fifo.put(b"c\n".to_vec());
        let mut room = [0; 4096];
        let got = reader.read(&mut room).expect("read");
        assert_eq!(&room[..got], b"c\n");
        // It is full: lines wait, whole ones, and come when there is room.
        for _ in 0..40 {
            fifo.put(vec![b'x'; MAX_LINE]);
        }
        assert!(fifo.is_waiting());
        let mut taken = 0;
        while taken < 40 * MAX_LINE {
            taken += reader.read(&mut room).expect("read");
            fifo.write();
        }
        assert_eq!((fifo.dropped(), fifo.is_waiting()), (1, false));
        // The reader goes, and another one comes.
        drop(reader);
        fifo.put(b"d\n".to_vec());
        assert_eq!(fifo.dropped(), 2);
        let _reader = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("opened");
        fifo.put(b"e\n".to_vec());
        assert_eq!((fifo.dropped(), fifo.is_waiting()), (2, false));
        for _ in 0..MAX_UNWRITTEN_LINES + 100 {
            fifo.put(vec![b'x'; MAX_LINE]);
        }
        assert!(fifo.dropped() > 2 && fifo.waiting.len() <= MAX_UNWRITTEN_LINES);
        std::fs::write(place.join("file"), "").expect("written");
        assert!(CommandFile::new(&place.join("file")).is_err());
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
