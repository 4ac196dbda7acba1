//! Events of calls that nobody makes: memory is a table here.

use super::table::PASS;
use super::*;
use crate::abi::{Abi, Call};
use crate::select::When;
use std::collections::BTreeMap;

/// Memory at addresses, descriptors by number.
#[derive(Default)]
struct Made {
    memory: BTreeMap<u64, Vec<u8>>,
    gone: bool,
}

impl Made {
    fn with(mut self, at: u64, bytes: &[u8]) -> Made {
        self.memory.insert(at, bytes.to_vec());
        self
    }
}

impl Memory for Made {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let Some((start, bytes)) = self.memory.range(..=at).next_back() else {
            return 0;
        };
        let from = usize::try_from(at - start).unwrap_or(usize::MAX);
        let left = bytes.get(from..).unwrap_or_default();
        let count = left.len().min(into.len());
        into[..count].copy_from_slice(&left[..count]);
        count
    }
    fn descriptor(&self, fd: i32) -> Option<Vec<u8>> {
        (fd == 5).then(|| b"/srv".to_vec())
    }
    fn directory(&self) -> Option<Vec<u8>> {
        Some(b"/home/ada".to_vec())
    }
}

impl Caller for Made {
    fn who(&self) -> Option<Who> {
        (!self.gone).then_some(Who {
            pid: 7,
            parent: 1,
            uid: 1000,
        })
    }
    fn image(&self) -> Option<Image> {
        (!self.gone).then(|| Image {
            path: b"/usr/bin/dash".to_vec(),
            device: 3,
            inode: 4,
        })
    }
}

/// `kernel name=value`, one per line.
fn shown(told: &AuditEvent) -> String {
    let mut text = told.event.to_owned();
    for Fact { name, source, value } in &told.facts {
        let value = match value {
            Value::Number(number) => number.to_string(),
            Value::Text(bytes, cut) => {
                let more = if *cut { "…" } else { "" };
                format!("{}{more}", String::from_utf8_lossy(bytes))
            }
            Value::Words(words, cut) => {
                let words: Vec<_> = words.iter().map(|w| String::from_utf8_lossy(w)).collect();
                format!("[{}{}]", words.join(","), if *cut { ",…" } else { "" })
            }
        };
        let mark = match source {
            Source::Kernel => "k",
            Source::Register => "r",
            Source::Claimed => "c",
        };
        text.push_str(&format!(" {mark}:{name}={value}"));
    }
    text
}

fn event(abi: Abi, name: &str, arguments: [u64; 6], level: Level, made: &Made) -> Option<String> {
    let call = Call::named(abi, name).unwrap_or_else(|| panic!("{name}"));
    let calls = Calls::new();
    if calls.is_socketcall(call) {
        return tell_socketcall(&arguments, level, made).as_ref().map(shown);
    }
    let row = calls.row(call, &arguments)?;
    tell(row, abi, &arguments, level, made).as_ref().map(shown)
}

const WHO: &str = "k:pid=7 k:parent=1 k:uid=1000 k:program=/usr/bin/dash";

#[test]
fn what_calls_say() {
    use Level::{Commands, Files, Full};
    let pointers = [0x300u64, 0x310, 0].map(u64::to_ne_bytes).concat();
    let narrow = [0x300u32, 0x310, 0].map(u32::to_ne_bytes).concat();
    let inet = [&2u16.to_ne_bytes()[..], &443u16.to_be_bytes(), &[192, 0, 2, 1]].concat();
    let inet6 = [
        &10u16.to_ne_bytes()[..],
        &53u16.to_be_bytes(),
        &[0; 4],
        &[0; 15],
        &[1],
        &[0; 4],
    ]
    .concat();
    let unix = [&1u16.to_ne_bytes()[..], b"/run/a.sock\0rest"].concat();
    let abstracted = [&1u16.to_ne_bytes()[..], b"\0a\xffb"].concat();
    let netlink = 16u16.to_ne_bytes();
    let how = 0o101u64.to_ne_bytes();
    let reading = 0u64.to_ne_bytes();
    let inner = [3u32, 0x500, 8].map(u32::to_ne_bytes).concat();
    let made = Made::default()
        .with(0x100, b"/bin/ls\0")
        .with(0x180, b"x\0")
        .with(0x200, &pointers)
        .with(0x280, &narrow)
        .with(0x300, b"ls\0")
        .with(0x310, b"-l\0")
        .with(0x400, b"\0")
        .with(0x500, &inet)
        .with(0x600, &inet6)
        .with(0x700, &unix)
        .with(0x800, &abstracted)
        .with(0x900, &netlink)
        .with(0xa00, &how)
        .with(0xb00, &reading)
        .with(0xc00, &inner)
        .with(0xd00, &[0x500u64, 8].map(u64::to_ne_bytes).concat())
        .with(
            0xf00,
            &[[0u64; 8].as_slice(), &[0x500, 8]]
                .concat()
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect::<Vec<_>>(),
        )
        .with(0xd40, &[0u64, 0].map(u64::to_ne_bytes).concat())
        .with(0xd80, &[3u32, 0xe00, 0x2000_0000].map(u32::to_ne_bytes).concat())
        .with(0xdc0, &[3u32, 0xe00, 0].map(u32::to_ne_bytes).concat())
        .with(0xe00, &[0x500u32, 8].map(u32::to_ne_bytes).concat())
        .with(0xe40, &0x1000_0000u64.to_ne_bytes())
        .with(0xe80, &0x11u64.to_ne_bytes())
        .with(0x1000, &[b'a'; 5000])
        // More messages than the kernel sends, and then one with an address.
        .with(0x10_0000, &[0; 64 * 1024])
        .with(
            0x10_0000 + 64 * 1024,
            &[0x500u64, 8].map(u64::to_ne_bytes).concat(),
        )
        .with(0xffff_0000, b"cut off");
    let cwd = -100i64 as u64;
    for (name, arguments, level, want) in [
        (
            "execve",
            [0x100, 0x200, 0, 0, 0, 0],
            Commands,
            Some("exec WHO c:path=/bin/ls c:argv=[ls,-l]"),
        ),
        (
            "execve",
            [0x180, 0, 0, 0, 0, 0],
            Commands,
            Some("exec WHO c:path=x k:directory=/home/ada c:argv=[]"),
        ),
        (
            "execve",
            [0, 1, 0, 0, 0, 0],
            Commands,
            Some("exec WHO c:argv=[,…]"),
        ),
        (
            "execve",
            [0xffff_0000, 0x200, 0, 0, 0, 0],
            Commands,
            Some("exec WHO c:path=cut off… k:directory=/home/ada c:argv=[ls,-l]"),
        ),
        (
            "execveat",
            [5, 0x400, 0x200, 0, 0x1000, 0],
            Commands,
            Some("exec WHO k:path=/srv c:argv=[ls,-l]"),
        ),
        (
            "execveat",
            [5, 0x180, 0x200, 0, 0, 0],
            Commands,
            Some("exec WHO c:path=x k:directory=/srv c:argv=[ls,-l]"),
        ),
        (
            "connect",
            [3, 0x500, 8, 0, 0, 0],
            Commands,
            Some("connect WHO c:address=192.0.2.1:443"),
        ),
        (
            "bind",
            [3, 0x600, 28, 0, 0, 0],
            Commands,
            Some("bind WHO c:address=[::1]:53"),
        ),
        (
            "connect",
            [3, 0x700, 17, 0, 0, 0],
            Commands,
            Some("connect WHO c:address=unix:/run/a.sock"),
        ),
        (
            "connect",
            [3, 0x800, 6, 0, 0, 0],
            Commands,
            Some("connect WHO c:address=unix:@a\\xffb"),
        ),
        (
            "connect",
            [3, 0x900, 2, 0, 0, 0],
            Commands,
            Some("connect WHO c:address=family 16"),
        ),
        ("connect", [3, 0x500, 3, 0, 0, 0], Commands, Some("connect WHO")),
        // MSG_FASTOPEN connects.
        (
            "sendto",
            [3, 0x100, 1, 0x2000_0000, 0x500, 8],
            Commands,
            Some("connect WHO c:address=192.0.2.1:443"),
        ),
        ("sendto", [3, 0x100, 1, 0, 0x500, 8], Commands, None),
        (
            "sendto",
            [3, 0x100, 1, 0, 0x500, 8],
            Full,
            Some("send WHO c:address=192.0.2.1:443 r:bytes=1"),
        ),
        (
            "sendmsg",
            [3, 0xd00, 0x2000_4000, 0, 0, 0],
            Commands,
            Some("connect WHO c:address=192.0.2.1:443"),
        ),
        (
            "sendmsg",
            [3, 0xd40, 0x2000_0000, 0, 0, 0],
            Commands,
            Some("connect WHO"),
        ),
        ("sendmsg", [3, 0xd00, 0x4000, 0, 0, 0], Commands, None),
        (
            "sendmsg",
            [3, 0xd00, 0x4000, 0, 0, 0],
            Full,
            Some("send WHO c:address=192.0.2.1:443"),
        ),
        ("sendmsg", [3, 0xd40, 0x4000, 0, 0, 0], Full, None),
        (
            "sendmmsg",
            [3, 0xd00, 1, 0x2000_0000, 0, 0],
            Commands,
            Some("connect WHO c:address=192.0.2.1:443"),
        ),
        // The second of two has an address.
        (
            "sendmmsg",
            [3, 0xf00, 2, 0, 0, 0],
            Full,
            Some("send WHO c:address=192.0.2.1:443 r:messages=2"),
        ),
        ("sendmmsg", [3, 0xf00, 1, 0, 0, 0], Full, None),
        (
            "sendmmsg",
            [3, 0x10_0040, 1024, 0, 0, 0],
            Full,
            Some("send WHO c:address=192.0.2.1:443 r:messages=1024"),
        ),
        ("sendmmsg", [3, 0x10_0000, 0xffff_ffff, 0, 0, 0], Full, None),
        // CLONE_NEWUSER; of clone3 it lies in memory.
        (
            "clone",
            [0x1000_0011, 0, 0, 0, 0, 0],
            Commands,
            Some("namespace r:operation=clone WHO r:flags=268435473"),
        ),
        ("clone", [0x11, 0, 0, 0, 0, 0], Commands, None),
        (
            "clone3",
            [0xe40, 88, 0, 0, 0, 0],
            Commands,
            Some("namespace r:operation=clone WHO c:flags=268435456"),
        ),
        ("clone3", [0xe80, 88, 0, 0, 0, 0], Commands, None),
        ("clone3", [8, 88, 0, 0, 0, 0], Commands, None),
        (
            "setresuid",
            [u64::from(u32::MAX), 0, 0, 0, 0, 0],
            Commands,
            Some("identity r:operation=setresuid WHO r:real=-1 r:effective=0 r:saved=0"),
        ),
        (
            "ptrace",
            [16, 99, 0, 0, 0, 0],
            Commands,
            Some("ptrace r:operation=ptrace WHO r:request=16 r:target=99"),
        ),
        (
            "io_uring_setup",
            [8, 0, 0, 0, 0, 0],
            Commands,
            Some("io_uring WHO r:entries=8"),
        ),
        (
            "openat",
            [cwd, 0x180, 0o1101, 0o644, 0, 0],
            Files,
            Some(
                "file r:operation=open WHO c:path=x k:directory=/home/ada r:flags=[write,create,truncate] r:mode=644",
            ),
        ),
        (
            "openat",
            [5, 0x100, 2, 0, 0, 0],
            Files,
            Some("file r:operation=open WHO c:path=/bin/ls r:flags=[read-write] r:mode=0"),
        ),
        (
            "openat2",
            [cwd, 0x100, 0xa00, 24, 0, 0],
            Files,
            Some("file r:operation=open WHO c:path=/bin/ls c:flags=[write,create]"),
        ),
        (
            "openat2",
            [cwd, 0x100, 0xb00, 24, 0, 0],
            Files,
            Some("file r:operation=open WHO c:path=/bin/ls c:flags=[read]"),
        ),
        (
            "renameat2",
            [5, 0x180, cwd, 0x180, 0, 0],
            Files,
            Some("file r:operation=rename WHO c:path=x k:directory=/srv c:to=x k:to_directory=/home/ada"),
        ),
        ("unlink", [0x1000, 0, 0, 0, 0, 0], Files, None),
        ("unlink", [0x100, 0, 0, 0, 0, 0], Commands, None),
        (
            "socket",
            [2, 1, 0, 0, 0, 0],
            Full,
            Some("socket WHO r:family=2 r:type=1 r:protocol=0"),
        ),
    ] {
        let event = event(Abi::X86_64, name, arguments, level, &made);
        if name == "unlink" && level == Files {
            let event = event.expect("an event");
            assert!(
                event.contains("aaaa…") && event.len() < MAX_PATH + 200,
                "it is cut: {event}"
            );
            continue;
        }
        assert_eq!(
            event,
            want.map(|want| want.replace("WHO", WHO)),
            "{name} {arguments:x?}"
        );
    }
    for (name, arguments, level, want) in [
        (
            "execve",
            [0xdead_0000_0000_0100, 0x280, 0, 0, 0, 0],
            Commands,
            Some("exec WHO c:path=/bin/ls c:argv=[ls,-l]"),
        ),
        (
            "socketcall",
            [3, 0xc00, 0, 0, 0, 0],
            Commands,
            Some("connect WHO c:address=192.0.2.1:443"),
        ),
        ("socketcall", [1, 0xc00, 0, 0, 0, 0], Commands, None),
        (
            "socketcall",
            [16, 0xd80, 0, 0, 0, 0],
            Commands,
            Some("connect WHO c:address=192.0.2.1:443"),
        ),
        ("socketcall", [16, 0xdc0, 0, 0, 0, 0], Commands, None),
        (
            "socketcall",
            [16, 0xdc0, 0, 0, 0, 0],
            Full,
            Some("send WHO c:address=192.0.2.1:443"),
        ),
        (
            "socketcall",
            [1, 0xc00, 0, 0, 0, 0],
            Full,
            Some("socket WHO c:family=3 c:type=1280 c:protocol=8"),
        ),
        ("socketcall", [9, 0xc00, 0, 0, 0, 0], Full, None),
    ] {
        let event = event(Abi::I386, name, arguments, level, &made);
        assert_eq!(
            event,
            want.map(|want| want.replace("WHO", WHO)),
            "{name} {arguments:x?}"
        );
    }
}

#[test]
fn a_caller_that_is_gone_is_told_of_by_its_registers() {
    let made = Made {
        gone: true,
        ..Made::default()
    };
    let told = event(Abi::X86_64, "setuid", [0; 6], Level::Commands, &made);
    assert_eq!(told.as_deref(), Some("identity r:operation=setuid r:to_uid=0"));
    assert_eq!(shown(&AuditEvent::executed(&made)), "executed");
    let there = "executed k:pid=7 k:parent=1 k:uid=1000 k:program=/usr/bin/dash k:device=3 k:inode=4";
    assert_eq!(shown(&AuditEvent::executed(&Made::default())), there);
}

#[test]
fn arguments_are_bounded_in_number_and_length() {
    let many = vec![0x300u64; MAX_WORDS + 1]
        .into_iter()
        .flat_map(u64::to_ne_bytes)
        .collect::<Vec<_>>();
    let few = [0x1000u64, 0x1000, 0].map(u64::to_ne_bytes).concat();
    for (pointers, words, bytes) in [(many, MAX_WORDS, 2 * MAX_WORDS), (few, 1, MAX_ARGV)] {
        let made = Made::default()
            .with(0x200, &pointers)
            .with(0x300, b"ls\0")
            .with(0x1000, &[b'a'; 100_000])
            .with(0x100_000, b"/x\0");
        // The pointers take more room than lies before the string.
        let made = Made {
            memory: made
                .memory
                .into_iter()
                .map(|(at, b)| (if at == 0x200 { 0x80_0000 } else { at }, b))
                .collect(),
            ..Made::default()
        };
        let call = Call::named(Abi::X86_64, "execve").expect("a call");
        let arguments = [0x100_000, 0x80_0000, 0, 0, 0, 0];
        let row = Calls::new().row(call, &arguments).expect("it is told");
        let told = tell(row, Abi::X86_64, &arguments, Level::Commands, &made);
        let argv = told.expect("an event").facts.pop().expect("argv");
        let Value::Words(list, true) = argv.value else {
            panic!("it is cut: {:?}", argv.value)
        };
        assert_eq!((list.len(), list.concat().len()), (words, bytes));
    }
}

#[test]
fn each_level_stops_what_the_one_before_it_stops() {
    let of = |level| {
        Abi::SERVED
            .iter()
            .flat_map(|abi| {
                selection(level)
                    .of(*abi)
                    .map(|(n, w)| ((*abi, n), w.clone()))
                    .collect::<Vec<_>>()
            })
            .collect::<BTreeMap<_, _>>()
    };
    let (commands, files, full) = (of(Level::Commands), of(Level::Files), of(Level::Full));
    assert!(commands.len() < files.len() && files.len() < full.len());
    assert!(commands.keys().all(|call| files.contains_key(call)));
    assert!(files.keys().all(|call| full.contains_key(call)));
    let read = |level| {
        let call = Call::named(Abi::NATIVE, "openat").expect("a call");
        selection(level).wants(call, &[0, 0, 0, 0, 0, 0])
    };
    assert_eq!(
        [Level::Commands, Level::Files, Level::Full].map(read),
        [false, false, true]
    );
    let stops = |name: &str, arguments: [u64; 6]| {
        let call = Call::named(Abi::NATIVE, name).expect("a call");
        selection(Level::Commands).wants(call, &arguments)
    };
    for (name, arguments, stop) in [
        ("sendto", [3, 0, 0, 0x2000_4000, 0x500, 16], true),
        ("sendto", [3, 0, 0, 0x4000, 0x500, 16], false),
        ("sendmsg", [3, 0, 0x2000_0000, 0, 0, 0], true),
        ("sendmsg", [3, 0, 0x4000, 0, 0, 0], false),
        ("sendmmsg", [3, 0, 1, 0x2000_0000, 0, 0], true),
        ("sendmmsg", [3, 0, 1, 0, 0, 0], false),
        ("clone", [0x4000_0011, 0, 0, 0, 0, 0], true),
        // A thread, as the C library makes it, and a child.
        ("clone", [0x3d_0f00, 0, 0, 0, 0, 0], false),
        ("clone", [0x0120_0011, 0, 0, 0, 0, 0], false),
        ("clone3", [0x500, 88, 0, 0, 0, 0], true),
    ] {
        assert_eq!(stops(name, arguments), stop, "{name} {arguments:x?}");
    }
    // No call of the helper's between its filter and the watcher's word: what brings the listener has a mark.
    let sendmsg = Call::named(Abi::NATIVE, "sendmsg").expect("a call");
    let full_wants = |arguments| selection(Level::Full).wants(sendmsg, &arguments);
    assert!(full_wants([3, 0xd00, 0, 0, 0, 0]));
    assert!(full_wants([3, 0xd00, 0, 0, 0, PASS + 1]));
    assert!(full_wants([3, 0xd00, 0, 0, 0, PASS ^ 1 << 40]));
    assert!(!full_wants([3, 0xd00, 0, 0, 0, PASS]));
    for name in [
        "recvmsg",
        "ppoll",
        "close",
        "write",
        "seccomp",
        "exit_group",
        "munmap",
    ] {
        let call = Call::named(Abi::NATIVE, name).expect("a call");
        assert!(!selection(Level::Full).wants(call, &[0; 6]), "{name}");
    }
    assert!(matches!(
        full[&(
            Abi::NATIVE,
            Call::named(Abi::NATIVE, "execve").expect("a call").number
        )],
        When::Always
    ));
}

#[test]
fn every_name_of_the_table_is_a_call_somewhere() {
    for audited in &super::table::AUDITED {
        let known = Abi::ALL
            .iter()
            .any(|abi| Call::named(*abi, audited.name).is_some());
        assert!(known, "{}", audited.name);
    }
}

#[test]
fn levels_stop_and_tell_what_they_did() {
    let mut text = String::new();
    for level in [Level::Commands, Level::Files, Level::Full] {
        text += &format!("{:?}\n", selection(level));
    }
    for (call, name) in Abi::ALL.into_iter().flat_map(crate::tables::calls) {
        for row in super::table::rows_of(name) {
            text += &format!(
                "{} {name} {:?} {:?} {:?} {:?}\n",
                call.abi.name(),
                row.level,
                (row.event, row.operation),
                row.when,
                row.arguments
            );
        }
    }
    // The sum of the text (FNV-1a): a row that is meant to be told otherwise has another.
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    assert_eq!(sum, 0xd5f8_a659_95be_c7af, "{sum:#x}");
}
