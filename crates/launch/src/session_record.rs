//! A session as the session reaper notes it down, in memory and in `/run/fleetgate/sessions`, and the file's form.
//!
//! A file holds one JSON object, because people look at it when something went wrong and because the next build
//! must be able to read it. Strings of the kernel's kind (any bytes) are percent-escaped outside printable ASCII.

use fleetgate_logins::Entry;
use fleetgate_sys::clock::Time;
use fleetgate_wire::common::SessionId;
use fleetgate_wire::exec::Exec;
use serde_json::{Value, json};
use std::ffi::{CStr, CString};
use std::io::Read;
use std::path::PathBuf;

/// The form of the file; a file of another form is left alone.
const FORM: i64 = 1;
/// The longest file that is read.
pub(crate) const MAX_FILE: u64 = 64 << 10;

/// What has to be closed when a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionToClose {
    /// Its name.
    pub id: SessionId,
    /// The number of the connection that it belongs to, for the log; 0: unknown.
    pub connection: u64,
    /// Its login record, as the helper wrote it.
    pub entry: Entry,
    /// It stands in utmp and wtmp.
    pub utmp: bool,
    /// The kernel's audit was told of it.
    pub audit: bool,
    /// Its cgroup's directory, removed when it is empty.
    pub cgroup: Option<PathBuf>,
    /// Kill what the session left running in its cgroup.
    pub kill_remaining: bool,
}

impl SessionToClose {
    /// The session that `order` makes as process `pid`.
    pub fn of(order: &Exec, pid: i32) -> SessionToClose {
        let login = order.login.as_ref();
        SessionToClose {
            id: order.session,
            connection: 0,
            entry: Entry {
                user: order.account.name.clone(),
                uid: order.account.ids.uid,
                line: order.terminal.clone().unwrap_or_else(|| c"ssh".into()),
                host: login.map(|l| l.host.clone()).unwrap_or_default(),
                address: login.map_or([0; 16], |l| l.address),
                pid,
                at: login.map_or_else(fleetgate_sys::clock::wall, |l| Time {
                    sec: l.at.sec,
                    nsec: l.at.nsec,
                }),
            },
            utmp: login.is_some_and(|l| l.utmp),
            audit: login.is_some_and(|l| l.audit),
            cgroup: None,
            kill_remaining: false,
        }
    }

    /// The file's name in the state directory.
    pub(crate) fn file_name(&self) -> String {
        format!("{}.json", hex(&self.id))
    }
}

/// A session's file: the session, and which process of which boot it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionRecord {
    pub session: SessionToClose,
    /// The kernel's boot id: a process id means nothing after a boot.
    pub boot: String,
    /// When the process started, in clock ticks since boot: a process id is used again.
    pub start: u64,
    /// Who closes it.
    pub reaper: Owner,
}

/// A session reaper's process. While a server that was told to end goes on with its sessions, the next one lets it close them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub pid: i32,
    pub start: u64,
}

impl Owner {
    /// This process.
    pub fn own() -> Owner {
        let pid = fleetgate_sys::process::id();
        Owner {
            pid,
            start: start_time(pid).unwrap_or(0),
        }
    }

    /// Whether it is another process that still lives.
    pub fn is_another(&self) -> bool {
        self.pid > 0 && self.pid != fleetgate_sys::process::id() && start_time(self.pid) == Some(self.start)
    }
}

impl SessionRecord {
    pub fn to_text(&self) -> String {
        let SessionToClose {
            id,
            connection,
            entry,
            utmp,
            audit,
            cgroup,
            kill_remaining,
        } = &self.session;
        use std::os::unix::ffi::OsStrExt;
        let cgroup = cgroup.as_ref().map(|path| escape(path.as_os_str().as_bytes()));
        let value = json!({
            "form": FORM,
            "session": hex(id),
            "connection": connection,
            "pid": entry.pid,
            "start": self.start,
            "boot": self.boot,
            "user": escape(entry.user.to_bytes()),
            "uid": entry.uid,
            "line": escape(entry.line.to_bytes()),
            "host": escape(entry.host.to_bytes()),
            "address": hex(&entry.address),
            "since": entry.at.sec,
            "since_nsec": entry.at.nsec,
            "utmp": utmp,
            "audit": audit,
            "cgroup": cgroup,
            "kill_remaining": kill_remaining,
            "keeper": self.reaper.pid,
            "keeper_start": self.reaper.start,
        });
        format!("{value:#}\n")
    }

    /// Reads a file back; the error is a sentence.
    pub fn from_text(text: &[u8]) -> Result<SessionRecord, String> {
        let value: Value = serde_json::from_slice(text).map_err(|e| format!("it is no JSON: {e}"))?;
        let missing = |name: &str| format!("`{name}` is missing or of the wrong kind");
        let number = |name: &str| value[name].as_i64().ok_or_else(|| missing(name));
        let truth = |name: &str| value[name].as_bool().ok_or_else(|| missing(name));
        let text = |name: &str| value[name].as_str().ok_or_else(|| missing(name));
        let string = |name: &str| unescape(text(name)?).ok_or_else(|| missing(name));
        let bytes = |name: &str| unhex(text(name)?).ok_or_else(|| missing(name));
        let small = |name: &str| u32::try_from(number(name)?).map_err(|_| missing(name));
        if number("form")? != FORM {
            return Err(format!("it has form {}, this build reads {FORM}", value["form"]));
        }
        let cgroup = match &value["cgroup"] {
            Value::Null => None,
            _ => {
                use std::os::unix::ffi::OsStringExt;
                let path = string("cgroup")?.into_bytes();
                Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
            }
        };
        Ok(SessionRecord {
            session: SessionToClose {
                id: bytes("session")?,
                // Earlier builds did not write it.
                connection: value["connection"].as_u64().unwrap_or(0),
                entry: Entry {
                    user: string("user")?,
                    uid: small("uid")?,
                    line: string("line")?,
                    host: string("host")?,
                    address: bytes("address")?,
                    pid: i32::try_from(number("pid")?)
                        .ok()
                        .filter(|pid| *pid > 0)
                        .ok_or_else(|| missing("pid"))?,
                    at: Time {
                        sec: number("since")?,
                        nsec: small("since_nsec")?,
                    },
                },
                utmp: truth("utmp")?,
                audit: truth("audit")?,
                cgroup,
                kill_remaining: truth("kill_remaining")?,
            },
            boot: text("boot")?.to_owned(),
            start: u64::try_from(number("start")?).unwrap_or(0),
            // Earlier builds did not write it.
            reaper: Owner {
                pid: small("keeper")
                    .ok()
                    .and_then(|pid| pid.try_into().ok())
                    .unwrap_or(0),
                start: value["keeper_start"].as_u64().unwrap_or(0),
            },
        })
    }
}

/// This boot's id.
pub(crate) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// When process `pid` started, in clock ticks since boot; none when it is gone, or has ended and nobody waited for it: a
/// first process that reaps nothing (in a container, say) leaves such ones for good.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    // One read: it is at most 52 numbers and a name of 64 bytes, and of its length the kernel says 0.
    let mut stat = [0; 1536];
    let file = std::fs::File::open(format!("/proc/{pid}/stat"));
    let len = file.and_then(|mut file| file.read(&mut stat)).ok()?;
    let stat = &stat[..len];
    // The name in parentheses may hold anything; field 22 counts from the process id as 1.
    let after_name = &stat[stat.iter().rposition(|byte| *byte == b')')? + 1..];
    let fields = std::str::from_utf8(after_name).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// In hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut out = [0; N];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(out)
}

fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        match b {
            b' '..=b'~' if b != b'%' => out.push(b.into()),
            _ => out += &format!("%{b:02x}"),
        }
    }
    out
}

fn unescape(text: &str) -> Option<CString> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b => b,
        });
    }
    CString::new(out).ok()
}

/// For messages: a session's user and terminal.
pub(crate) fn describe(session: &SessionToClose) -> String {
    let text = |s: &CStr| escape(s.to_bytes());
    format!("{} on {}", text(&session.entry.user), text(&session.entry.line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn note() -> SessionRecord {
        SessionRecord {
            session: SessionToClose {
                id: *b"0123456789abcdef",
                connection: 12,
                entry: Entry {
                    user: c"j\xf6rg%".into(),
                    uid: 1000,
                    line: c"/dev/pts/3".into(),
                    host: c"".into(),
                    address: [7; 16],
                    pid: 4711,
                    at: Time {
                        sec: 1_700_000_000,
                        nsec: 5,
                    },
                },
                utmp: true,
                audit: false,
                cgroup: Some("/sys/fs/cgroup/fleetgate/a b".into()),
                kill_remaining: true,
            },
            boot: "a-b-c".to_owned(),
            start: 99,
            reaper: Owner { pid: 4700, start: 98 },
        }
    }

    #[test]
    fn a_note_reads_back() {
        let text = note().to_text();
        assert!(text.contains("\"user\": \"j%f6rg%25\""), "{text}");
        assert_eq!(SessionRecord::from_text(text.as_bytes()), Ok(note()));
    }

    #[test]
    fn a_note_cut_anywhere_is_refused() {
        let text = note().to_text();
        for at in 0..text.len() - 2 {
            assert!(
                SessionRecord::from_text(&text.as_bytes()[..at]).is_err(),
                "cut at {at}"
            );
        }
    }

    #[test]
    fn wrong_values_are_named() {
        let text = note().to_text();
        let table = [
            (
                "\"pid\": 4711",
                "\"pid\": 0",
                "`pid` is missing or of the wrong kind",
            ),
            ("\"form\": 1", "\"form\": 2", "it has form 2, this build reads 1"),
            (
                "\"uid\": 1000",
                "\"uid\": -1",
                "`uid` is missing or of the wrong kind",
            ),
            (
                "\"user\": \"j%f6",
                "\"user\": \"j%0g",
                "`user` is missing or of the wrong kind",
            ),
        ];
        for (old, new, sentence) in table {
            let broken = text.replace(old, new);
            assert_ne!(broken, text, "{old}");
            assert_eq!(
                SessionRecord::from_text(broken.as_bytes()),
                Err(sentence.to_owned())
            );
        }
    }

    #[test]
    fn this_process_has_a_start_time() {
        assert!(start_time(std::process::id() as i32).is_some());
        assert_eq!(start_time(i32::MAX), None);
        assert_eq!(boot_id().len(), 36);
    }

    #[test]
    fn a_process_of_any_name_has_its_start_time() {
        // The kernel names a process after the file by which it was executed.
        let name = std::ffi::OsStr::from_bytes(b") \xff 1 (2) 3");
        let own = std::env::temp_dir().join(format!("fleetgate-kept-{}", std::process::id()));
        std::fs::create_dir(&own).expect("a directory");
        std::os::unix::fs::symlink("/bin/sleep", own.join(name)).expect("a name");
        let mut child = std::process::Command::new(own.join(name))
            .arg("60")
            .spawn()
            .expect("sleep");
        let pid = child.id() as i32;
        // A spawn returns when the old memory is gone, a moment before the kernel gives the name.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let named = loop {
            let comm = std::fs::read(format!("/proc/{pid}/comm")).expect("its name");
            if comm.trim_ascii_end() == name.as_bytes() {
                break true;
            }
            if std::time::Instant::now() > until {
                break false;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        let start = start_time(pid);
        child.kill().expect("its end");
        child.wait().expect("its status");
        std::fs::remove_dir_all(&own).expect("nothing left");
        assert!(named, "the process did not get its name in ten seconds");
        let own = start_time(std::process::id() as i32).expect("ours");
        assert!(start.is_some_and(|start| start >= own), "{start:?} {own}");
    }
}
