//! Calls with registers and memory that a test made up, as text and as JSON; and with any that there may be.

use super::*;
use crate::report::json::Json;
use crate::report::text::{COLUMN, Text};
use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::tables;

/// Memory in pieces; everything else is not mapped.
#[derive(Default)]
struct Pieces(Vec<(u64, Vec<u8>)>);

impl Memory for Pieces {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let within = |(from, bytes): &&(u64, Vec<u8>)| (*from..from + bytes.len() as u64).contains(&at);
        let Some((from, bytes)) = self.0.iter().find(within) else {
            return 0;
        };
        let bytes = &bytes[(at - from) as usize..];
        let length = bytes.len().min(into.len());
        into[..length].copy_from_slice(&bytes[..length]);
        length
    }

    fn descriptor(&self, fd: i32) -> Option<Vec<u8>> {
        let what: [&[u8]; 3] = [b"/a<b>\n", b"/gone (deleted)", b"TCP:[[::1]:1->[::1]:2]"];
        let place = usize::try_from(fd).ok()?.checked_sub(3)?;
        what.get(place).map(|what| what.to_vec())
    }

    fn directory(&self) -> Option<Vec<u8>> {
        Some(b"/home".to_vec())
    }
}

/// How a call ends in a test.
#[derive(Clone, Copy)]
enum Ends {
    With(i64),
    Never,
}
use Ends::{Never, With};

fn shown(
    call: &str,
    abi: Abi,
    arguments: [u64; 6],
    pieces: &Pieces,
    end: Ends,
    limits: &Limits,
) -> (String, String) {
    let call = Call::named(abi, call).expect("a call");
    let enter = Enter {
        tid: 1,
        call: Some(call),
        audit: abi.audit(),
        number: call.number,
        arguments,
        instruction: 0,
    };
    let mut text = Vec::new();
    let mut json = b"{".to_vec();
    for (into, is_text) in [(&mut text, true), (&mut json, false)] {
        let run = |out: &mut dyn Out, begun: Option<CallProgress>| match (begun, end) {
            (None, _) => Some(begin(&enter, pieces, limits, out)),
            (Some(begun), With(result)) => {
                finish(&enter, begun, result, pieces, limits, out);
                None
            }
            (Some(begun), Never) => {
                abandon(&enter, begun, pieces, limits, out);
                None
            }
        };
        // Two writers, as a report has them: nothing of one is left to the other.
        if is_text {
            let begun = run(&mut Text::new(into, 0, COLUMN), None);
            run(&mut Text::new(into, 0, COLUMN), begun);
        } else {
            let begun = run(&mut Json::new(into), None);
            run(&mut Json::new(into), begun);
        }
    }
    json.push(b'}');
    let text = String::from_utf8(text).expect("ASCII");
    let json = String::from_utf8(json).expect("UTF-8");
    let value: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"));
    assert!(value.is_object());
    (text, json)
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

const X: Abi = Abi::X86_64;
const HERE: u64 = 0x1000;
const CWD: u64 = -100i64 as u64;
/// A `long` of -1.
const ALL: u64 = u64::MAX;

#[test]
fn calls_are_shown() {
    let long = vec![b'x'; 40];
    let wide = "é".repeat(20).into_bytes();
    for (call, abi, arguments, bytes, end, text, json) in [
        (
            "openat",
            X,
            [CWD, HERE, 0x80041, 0o644, 0, 0],
            b"/a\"b\n\0".to_vec(),
            With(3),
            r#"(AT_FDCWD, "/a\"b\n", O_WRONLY|O_CREAT|O_CLOEXEC, 0644) = 3"#,
            r#"{"arguments":{"dirfd":"AT_FDCWD","pathname":"/a\"b\n","flags":["O_WRONLY","O_CREAT","O_CLOEXEC"],"mode":"0644"},"result":3}"#,
        ),
        (
            "openat",
            X,
            [CWD, 8, 0, 9, 0, 0],
            vec![],
            With(-14),
            "(AT_FDCWD, 0x8, O_RDONLY)               = -1 EFAULT (Bad address)",
            r#"{"arguments":{"dirfd":"AT_FDCWD","pathname":"0x8","flags":["O_RDONLY"]},"result":-1,"errno":14,"error":"EFAULT","text":"Bad address"}"#,
        ),
        (
            "read",
            X,
            [3, HERE, 100, 0, 0, 0],
            long.clone(),
            With(40),
            r#"(3, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"..., 100) = 40"#,
            r#"{"arguments":{"fd":3,"buf":{"text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","more":true},"count":100},"result":40}"#,
        ),
        (
            "read",
            X,
            [3, HERE, 100, 0, 0, 0],
            long.clone(),
            Never,
            "(3, 0x1000, 100)                        = ?",
            r#"{"arguments":{"fd":3,"buf":"0x1000","count":100},"result":null}"#,
        ),
        (
            "read",
            X,
            [3, HERE, 100, 0, 0, 0],
            long,
            With(-512),
            "(3, 0x1000, 100)                        = ? ERESTARTSYS (To be restarted if SA_RESTART is set)",
            r#"{"arguments":{"fd":3,"buf":"0x1000","count":100},"result":null,"error":"ERESTARTSYS","text":"To be restarted if SA_RESTART is set"}"#,
        ),
        (
            "write",
            X,
            [1, HERE, 3, 0, 0, 0],
            vec![0xff, 0, b'1'],
            With(3),
            r#"(1, "\377\0001", 3)                     = 3"#,
            r#"{"arguments":{"fd":1,"buf":{"hex":"ff0031"},"count":3},"result":3}"#,
        ),
        (
            "write",
            X,
            [1, HERE, 40, 0, 0, 0],
            wide,
            With(40),
            r#"(1, "\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251"..., 40) = 40"#,
            r#"{"arguments":{"fd":1,"buf":{"text":"éééééééééééééééé","more":true},"count":40},"result":40}"#,
        ),
        (
            "exit_group",
            X,
            [1, 0, 0, 0, 0, 0],
            vec![],
            Never,
            "(1)                                     = ?",
            r#"{"arguments":{"status":1},"result":null}"#,
        ),
        (
            "getpid",
            X,
            [0; 6],
            vec![],
            With(77),
            "()                                      = 77",
            r#"{"arguments":{},"result":77}"#,
        ),
        (
            "mmap",
            X,
            [0, 4096, 0, 0x22, ALL, 0],
            vec![],
            With(0x7f00_0000_0000),
            "(NULL, 4096, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000",
            r#"{"arguments":{"addr":null,"length":4096,"prot":"PROT_NONE","flags":["MAP_PRIVATE","MAP_ANONYMOUS"],"fd":-1,"offset":"0x0"},"result":"0x7f0000000000"}"#,
        ),
        (
            "connect",
            X,
            [3, HERE, 16, 0, 0, 0],
            vec![2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            With(-115),
            r#"(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}, 16) = -1 EINPROGRESS (Operation now in progress)"#,
            r#"{"arguments":{"sockfd":3,"addr":{"sa_family":"AF_INET","sin_port":80,"sin_addr":"127.0.0.1"},"addrlen":16},"result":-1,"errno":115,"error":"EINPROGRESS","text":"Operation now in progress"}"#,
        ),
        (
            "connect",
            X,
            [3, HERE, 8, 0, 0, 0],
            b"\x01\0\0hello".to_vec(),
            With(0),
            r#"(3, {sa_family=AF_UNIX, sun_path=@"hello"}, 8) = 0"#,
            r#"{"arguments":{"sockfd":3,"addr":{"sa_family":"AF_UNIX","sun_path":{"abstract":"hello"}},"addrlen":8},"result":0}"#,
        ),
        (
            "wait4",
            X,
            [ALL, HERE, 0, 0, 0, 0],
            vec![0x8b, 0, 0, 0],
            With(5),
            "(-1, [{WIFSIGNALED(s) && WTERMSIG(s) == SIGSEGV && WCOREDUMP(s)}], 0, NULL) = 5",
            r#"{"arguments":{"pid":-1,"wstatus":{"killed":"SIGSEGV","core":true},"options":[],"rusage":null},"result":5}"#,
        ),
        (
            "rt_sigprocmask",
            X,
            [0, HERE, HERE, 8, 0, 0],
            words(&[0x10002]),
            With(0),
            "(SIG_BLOCK, [INT CHLD], [INT CHLD], 8)  = 0",
            r#"{"arguments":{"how":"SIG_BLOCK","set":["SIGINT","SIGCHLD"],"oldset":["SIGINT","SIGCHLD"],"sigsetsize":8},"result":0}"#,
        ),
        (
            "rt_sigprocmask",
            X,
            [2, HERE, 0, 8, 0, 0],
            words(&[!1]),
            With(0),
            "(SIG_SETMASK, ~[HUP], NULL, 8)          = 0",
            r#"{"arguments":{"how":"SIG_SETMASK","set":{"not":["SIGHUP"]},"oldset":null,"sigsetsize":8},"result":0}"#,
        ),
        (
            "poll",
            X,
            [HERE, 1, 5, 0, 0, 0],
            vec![3, 0, 0, 0, 1, 0, 1, 0],
            With(1),
            "([{fd=3, events=POLLIN}], 1, 5)         = 1 ([{fd=3, revents=POLLIN}])",
            r#"{"arguments":{"fds":[{"fd":3,"events":["POLLIN"]}],"nfds":1,"timeout":5},"result":1,"note":{"ready":[{"fd":3,"revents":["POLLIN"]}]}}"#,
        ),
        (
            "poll",
            X,
            [HERE, 1, 5, 0, 0, 0],
            vec![3, 0, 0, 0, 1, 0, 0, 0],
            With(0),
            "([{fd=3, events=POLLIN}], 1, 5)         = 0 (Timeout)",
            r#"{"arguments":{"fds":[{"fd":3,"events":["POLLIN"]}],"nfds":1,"timeout":5},"result":0,"note":{"timeout":true}}"#,
        ),
        (
            "fcntl",
            X,
            [3, 3, 0, 0, 0, 0],
            vec![],
            With(0x8002),
            "(3, F_GETFL)                            = 0x8002 (flags O_RDWR|O_LARGEFILE)",
            r#"{"arguments":{"fd":3,"cmd":"F_GETFL"},"result":"0x8002","note":{"flags":["O_RDWR","O_LARGEFILE"]}}"#,
        ),
        (
            "ioctl",
            X,
            [0, 0xc004_1272, 8, 0, 0, 0],
            vec![],
            With(-25),
            "(0, _IOC(_IOC_READ|_IOC_WRITE, 0x12, 0x72, 0x4), 0x8) = -1 ENOTTY (Inappropriate ioctl for device)",
            r#"{"arguments":{"fd":0,"request":[["_IOC_READ","_IOC_WRITE"],"0x12","0x72","0x4"],"arg":"0x8"},"result":-1,"errno":25,"error":"ENOTTY","text":"Inappropriate ioctl for device"}"#,
        ),
        (
            "writev",
            X,
            [1, HERE, 2, 0, 0, 0],
            words(&[HERE, 1]),
            With(1),
            r#"(1, [{iov_base="\0", iov_len=1}, ... /* 0x1010 */], 2) = 1"#,
            r#"{"arguments":{"fd":1,"iov":[{"iov_base":"\u0000","iov_len":1},{"unreadable":"0x1010"}],"iovcnt":2},"result":1}"#,
        ),
        (
            "execve",
            X,
            [HERE, HERE + 8, HERE + 16, 0, 0, 0],
            [b"/bin/sh\0".to_vec(), words(&[HERE, 0])].concat(),
            With(0),
            r#"("/bin/sh", ["/bin/sh"], 0x1010 /* 0 vars */) = 0"#,
            r#"{"arguments":{"pathname":"/bin/sh","argv":["/bin/sh"],"envp":{"address":"0x1010","vars":0}},"result":0}"#,
        ),
        (
            "clone3",
            X,
            [HERE, 64, 0, 0, 0, 0],
            words(&[0x10_0000, 0, 0, HERE + 64, 17, 0, 0, 0, 9]),
            With(9),
            "({flags=CLONE_PARENT_SETTID, parent_tid=0x1040, exit_signal=SIGCHLD, stack=NULL, stack_size=0} => {parent_tid=[9]}, 64) = 9",
            r#"{"arguments":{"cl_args":{"before":{"flags":["CLONE_PARENT_SETTID"],"parent_tid":"0x1040","exit_signal":"SIGCHLD","stack":null,"stack_size":"0x0"},"after":{"parent_tid":[9]}},"size":64},"result":9}"#,
        ),
        (
            "clone3",
            X,
            [HERE, 64, 0, 0, 0, 0],
            words(&[0; 8]),
            With(-1),
            "({flags=0, exit_signal=0, stack=NULL, stack_size=0}, 64) = -1 EPERM (Operation not permitted)",
            r#"{"arguments":{"cl_args":{"before":{"flags":[],"exit_signal":0,"stack":null,"stack_size":"0x0"}},"size":64},"result":-1,"errno":1,"error":"EPERM","text":"Operation not permitted"}"#,
        ),
        (
            "pread64",
            Abi::I386,
            [3, HERE, 4, 1, 2, 0],
            b"abcd".to_vec(),
            With(4),
            r#"(3, "abcd", 4, 8589934593)              = 4"#,
            r#"{"arguments":{"fd":3,"buf":"abcd","count":4,"offset":8589934593},"result":4}"#,
        ),
        (
            "clock_gettime",
            Abi::I386,
            [1, HERE, 0, 0, 0, 0],
            vec![5, 0, 0, 0, 7, 0, 0, 0],
            With(0),
            "(CLOCK_MONOTONIC, {tv_sec=5, tv_nsec=7}) = 0",
            r#"{"arguments":{"clockid":"CLOCK_MONOTONIC","tp":{"tv_sec":5,"tv_nsec":7}},"result":0}"#,
        ),
        (
            "mmap",
            Abi::I386,
            [HERE, 0, 0, 0, 0, 0],
            vec![],
            With(0xf7f0_0000),
            "(0x1000)                                = 0xf7f00000",
            r#"{"arguments":{"args":"0x1000"},"result":"0xf7f00000"}"#,
        ),
        (
            "openat",
            Abi::Aarch64,
            [CWD, HERE, 0xc000, 0, 0, 0],
            b"/\0".to_vec(),
            With(3),
            r#"(AT_FDCWD, "/", O_RDONLY|O_NOFOLLOW|O_DIRECTORY) = 3"#,
            r#"{"arguments":{"dirfd":"AT_FDCWD","pathname":"/","flags":["O_RDONLY","O_NOFOLLOW","O_DIRECTORY"]},"result":3}"#,
        ),
        (
            "lsm_list_modules",
            X,
            [1, 0, 0xffff_ffff_ffff_ffff, 0, 0, 0],
            vec![],
            With(-38),
            "(0x1, 0, 0xffffffffffffffff)            = -1 ENOSYS (Function not implemented)",
            r#"{"arguments":{"arg1":"0x1","arg2":"0x0","arg3":"0xffffffffffffffff"},"result":-1,"errno":38,"error":"ENOSYS","text":"Function not implemented"}"#,
        ),
    ] {
        let pieces = Pieces(vec![(HERE, bytes)]);
        let found = shown(call, abi, arguments, &pieces, end, &Limits::default());
        assert_eq!(found, (text.to_owned(), json.to_owned()), "{call}");
    }
}

#[test]
fn descriptors_are_described_where_that_is_asked_for() {
    let pieces = Pieces(vec![(HERE, b"x\0".to_vec())]);
    let limits = Limits {
        descriptors: true,
        ..Limits::default()
    };
    for (call, arguments, end, text) in [
        (
            "close",
            [3, 0, 0, 0, 0, 0],
            With(0),
            r"(3</a\74b\76\n>)                        = 0",
        ),
        (
            "close",
            [4, 0, 0, 0, 0, 0],
            With(0),
            "(4</gone>(deleted))                     = 0",
        ),
        (
            "close",
            [5, 0, 0, 0, 0, 0],
            With(0),
            "(5<TCP:[[::1]:1->[::1]:2]>)             = 0",
        ),
        (
            "close",
            [6, 0, 0, 0, 0, 0],
            With(0),
            "(6)                                     = 0",
        ),
        (
            "dup",
            [6, 0, 0, 0, 0, 0],
            With(4),
            "(6)                                     = 4</gone>(deleted)",
        ),
        (
            "unlinkat",
            [CWD, HERE, 0, 0, 0, 0],
            With(0),
            r#"(AT_FDCWD</home>, "x", 0)               = 0"#,
        ),
    ] {
        assert_eq!(shown(call, X, arguments, &pieces, end, &limits).0, text, "{call}");
    }
}

#[test]
fn places_are_found() {
    let pieces = Pieces(vec![(HERE, b"/a\0b\0".to_vec())]);
    let path = |argument, path: &[u8], from| Place::Path {
        argument,
        path: path.to_vec(),
        from,
    };
    for (call, arguments, wanted) in [
        (
            "renameat",
            [CWD, HERE, 7, HERE + 3, 0, 0],
            vec![
                path("oldpath", b"/a", Base::Here),
                Place::Descriptor {
                    argument: "newdirfd",
                    fd: 7,
                },
                path("newpath", b"b", Base::Descriptor(7)),
            ],
        ),
        (
            "open",
            [HERE, 0, 0, 0, 0, 0],
            vec![path("pathname", b"/a", Base::Here)],
        ),
        ("open", [8, 0, 0, 0, 0, 0], vec![]),
        (
            "read",
            [5, 0, 0, 0, 0, 0],
            vec![Place::Descriptor {
                argument: "fd",
                fd: 5,
            }],
        ),
        ("getpid", [0; 6], vec![]),
    ] {
        let call = Call::named(X, call).expect("a call");
        let enter = Enter {
            tid: 1,
            call: Some(call),
            audit: X.audit(),
            number: call.number,
            arguments,
            instruction: 0,
        };
        assert_eq!(paths(&enter, &pieces), wanted, "{}", call.name().unwrap_or("?"));
    }
}

/// The most that one call may become: a hundred strings of the usual limit, and all that stands around them.
const MOST: usize = 1 << 20;

#[test]
fn nothing_that_a_program_may_have_in_registers_and_memory_does_harm() {
    let mut state = 1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for abi in Abi::ALL {
        for (_, name) in tables::calls(abi) {
            for round in 0..12 {
                let bytes: Vec<u8> = (0..600)
                    .map(|_| match round % 4 {
                        0 => random() as u8,
                        // Addresses that lead into the same memory, lengths that are short.
                        1 => [0, 0x10, 0, 0, 0, 0, 0, 0][random() as usize % 8],
                        2 => random() as u8 & 1,
                        _ => 0xff,
                    })
                    .collect();
                let pieces = Pieces(vec![(HERE, bytes)]);
                let arguments = std::array::from_fn(|_| match random() % 6 {
                    0 => random(),
                    1 => random() % 64,
                    2 => ALL - random() % 8,
                    3 => random() & 0xffff_ffff,
                    _ => HERE + random() % 650,
                });
                let end = match random() % 5 {
                    0 => Never,
                    1 => With(-(random() as i64 & 0xfff)),
                    2 => With(random() as i64),
                    _ => With(random() as i64 % 40),
                };
                let limits = Limits {
                    abbreviate: round % 3 != 0,
                    ..Limits::default()
                };
                let (text, json) = shown(name, abi, arguments, &pieces, end, &limits);
                assert!(
                    text.len() < MOST && json.len() < MOST,
                    "{name}: {} {}",
                    text.len(),
                    json.len()
                );
                assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
            }
        }
    }
}

#[test]
fn what_is_shown_of_one_call_has_an_end() {
    // An address of a long string, and of the list itself, over and over.
    let string = HERE + (1 << 20);
    let mut list = words(&vec![string; 1 << 16]);
    list.extend(words(&[0]));
    let vectors = words(&[string, 1 << 16].repeat(1024));
    let mut bytes = vec![b'x'; 1 << 16];
    bytes.push(0);
    let pieces = Pieces(vec![(HERE, list), (string, bytes), (8 << 20, vectors)]);
    let limits = Limits {
        string: usize::MAX,
        abbreviate: false,
        list: usize::MAX,
        ..Limits::default()
    };
    for (call, arguments) in [
        ("execve", [string, HERE, 0, 0, 0, 0]),
        ("writev", [1, 8 << 20, 1024, 0, 0, 0]),
    ] {
        let (text, json) = shown(call, X, arguments, &pieces, With(0), &limits);
        for length in [text.len(), json.len()] {
            assert!(length < 2 * Limits::ALTOGETHER, "{call}: {length}");
            assert!(length > Limits::ALTOGETHER / 2, "{call}: {length} is not much");
        }
    }
}
