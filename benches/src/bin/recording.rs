//! `bench-recording DIRECTORY SEED`: an hour of a shell, without waiting for it. Somebody types commands key by key, at times that
//! the seed decides, and reads what they print; what they print is what they print here. It writes the recording that a node would
//! make of that, `hour.rec`, and `hour.cast`, which asciinema would make of the same.
#![forbid(unsafe_code)]

use fleetgate_record::block::file_head;
use fleetgate_record::compress::Compressor;
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::signature::{NAMESPACE, Statement, encode};
use fleetgate_record::writer::{Position, Writer};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const HOUR: u64 = 3_600_000_000;
const MS: u64 = 1000;
/// As a node closes a block that is not full.
const CLOSE: u64 = 300_000_000;
/// The same of one that holds much, when nothing came for a while: not often.
const QUIET: u64 = 10_000_000;
const MUCH: usize = 16 << 10;
const SELDOM: u64 = 30_000_000;
/// One read of a terminal.
const READ: usize = 4095;
const PROMPT: &str = "\x1b[?2004h\x1b]0;ada@web1: ~\x07\x1b[01;32mada@web1\x1b[00m:\x1b[01;34m~\x1b[00m$ ";
const SESSION: [u8; 16] = [0x7e; 16];
const BEGIN: &[u8] = br#"{"version":1,"session":"7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e7e","node":"web1","started":"2026-11-29T10:00:00.000000Z","user":"ada","login":"root","client":"192.0.2.1:51514","kind":"shell","terminal":{"term":"xterm-256color","columns":120,"rows":40},"recording":"output","roles":["dba"]}"#;

/// What is typed; each is on every machine.
const COMMANDS: [&str; 32] = [
    "top -b -n 1 | head -n 40",
    "ls -la /usr/bin | head -n 60",
    "ls -la /usr/lib | head -n 60",
    "ls -la /var/log",
    "cat /etc/ssh/ssh_config",
    "cat /proc/cpuinfo | head -n 60",
    "ls",
    "ls -la",
    "ls -l --color=always /etc | head -n 40",
    "cd /etc",
    "cat /etc/os-release",
    "df -h",
    "uptime",
    "ps aux | head -n 20",
    "cat /etc/passwd",
    "id",
    "env | sort | head -n 12",
    "date",
    "uname -a",
    "cat /proc/meminfo | head -n 20",
    "mount | head -n 12",
    "grep -rn root /etc/group /etc/passwd",
    "head -n 40 /etc/services",
    "ls /usr/share/doc | head -n 60",
    "du -sh /etc 2>/dev/null",
    "cat /etc/hosts",
    "tail -n 30 /etc/login.defs",
    "find /etc -maxdepth 1 -name '*.conf' | sort",
    "wc -l /etc/*.conf 2>/dev/null",
    "sed -n 1,60p /etc/login.defs",
    "stat /etc/passwd",
    "for n in 1 2 3 4 5; do echo round $n of 5; done",
];
const TYPED: usize = 60;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, seed] = &arguments[..] else {
        panic!("bench-recording DIRECTORY SEED");
    };
    let shown = hour(seed.parse().expect("a number"));
    let directory = Path::new(directory);
    std::fs::write(directory.join("hour.rec"), recording(&shown)).expect("a file");
    std::fs::write(directory.join("hour.cast"), cast(&shown)).expect("a file");
}

/// What the terminal got, and when.
fn hour(seed: u64) -> Vec<(u64, String)> {
    let mut random = Random(seed);
    let mut shown = vec![(0, PROMPT.to_owned())];
    let mut at = 0;
    for _ in 0..TYPED {
        let command = COMMANDS[random.below(COMMANDS.len() as u64) as usize];
        // Reading what the last one printed.
        at += random.below(2 * HOUR / TYPED as u64 * 9 / 10);
        for key in command.chars() {
            at += (60 + random.below(200)) * MS + random.below(MS);
            shown.push((at, key.to_string()));
            if random.below(25) == 0 {
                // Mistyped, and typed again.
                shown.push((at + 180 * MS, "\x08\x1b[K".to_owned()));
                at += 340 * MS;
                shown.push((at, key.to_string()));
            }
        }
        at += 120 * MS;
        shown.push((at, "\r\n\x1b[?2004l\r".to_owned()));
        let printed = printed(command);
        for piece in printed.as_bytes().chunks(READ) {
            at += 400 + random.below(MS);
            shown.push((at, String::from_utf8_lossy(piece).into_owned()));
        }
        at += 300 + random.below(MS);
        shown.push((at, PROMPT.to_owned()));
    }
    shown
}

/// What a command prints, as a terminal gets it.
fn printed(command: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    String::from_utf8_lossy(&output.stdout).replace('\n', "\r\n")
}

fn recording(shown: &[(u64, String)]) -> Vec<u8> {
    let mut file = file_head(&SESSION).to_vec();
    let mut compressor = Compressor::new().expect("memory");
    let mut writer = Writer::at(Position::start(&SESSION));
    writer.push(&Frame {
        kind: Kind::Begin,
        at: 0,
        bytes: BEGIN,
    });
    file.extend(writer.close(None).expect("a frame"));
    // The recorder goes on where the monitor was.
    let mut writer = Writer::at(*writer.position());
    let (mut open_since, mut last, mut closed) = (None, 0, None);
    for (at, text) in shown {
        let is_old = open_since.is_some_and(|since| at - since > CLOSE);
        let quiet = (last + QUIET).max(closed.map_or(0, |closed| closed + SELDOM));
        let is_quiet = *at > quiet && writer.open_frames().len() >= MUCH;
        last = *at;
        if is_old || is_quiet {
            closed = Some(*at);
        }
        if (is_old || is_quiet)
            && let Some(block) = writer.close(Some(&mut compressor))
        {
            file.extend(block);
            file.extend(sign(&mut writer));
            open_since = None;
        }
        open_since.get_or_insert(*at);
        let frame = Frame {
            kind: Kind::Output,
            at: *at,
            bytes: text.as_bytes(),
        };
        if writer.push(&frame) {
            file.extend(writer.close(Some(&mut compressor)).expect("a frame"));
            file.extend(sign(&mut writer));
            open_since = None;
        }
    }
    let end = br#"{"ended":"2026-11-29T11:00:00.000000Z","status":0}"#;
    file.extend(writer.end(Some(&mut compressor), HOUR, end));
    file.extend(sign(&mut writer));
    file
}

/// A signature as long as one by an Ed25519 key.
fn sign(writer: &mut Writer) -> Vec<u8> {
    let at = writer.position();
    let statement = Statement {
        session: SESSION,
        blocks: at.blocks,
        chain: at.chain,
        signed: "2026-11-29T10:12:31Z".to_owned(),
    };
    let mut blob = b"SSHSIG\0\0\0\x01".to_vec();
    for part in [&[1; 51][..], NAMESPACE.as_bytes(), b"", b"sha512", &[2; 83]] {
        blob.extend_from_slice(&(part.len() as u32).to_be_bytes());
        blob.extend_from_slice(part);
    }
    writer.sign(&encode(&statement, &blob))
}

/// As asciinema 2 writes it.
fn cast(shown: &[(u64, String)]) -> String {
    let mut cast = "{\"version\": 2, \"width\": 120, \"height\": 40, \"timestamp\": 1795946400, \"env\": {\"SHELL\": \"/bin/bash\", \
                    \"TERM\": \"xterm-256color\"}}\n"
        .to_owned();
    for (at, text) in shown {
        let _ = writeln!(cast, "[{}, \"o\", {}]", *at as f64 / 1e6, quoted(text));
    }
    cast
}

/// A text in JSON.
fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for letter in text.chars() {
        match letter {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            '\x08' => out += "\\b",
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}
