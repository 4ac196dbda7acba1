//! The same conversation, packet by packet, with OpenSSH's server and with ours: every answer the same.

use fleetgate_tests::folder::Folder;
use fleetgate_tests::sftp::Field::{L, N, S};
use fleetgate_tests::sftp::{self, Client, kind, s};
use fleetgate_wire::sftp::Event;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const READ: u32 = 1;
const WRITE: u32 = 2;
const APPEND: u32 = 4;
const CREATE: u32 = 8;
const TRUNCATE: u32 = 16;
const EXCLUSIVE: u32 = 32;
const DENIED: u32 = 3;

/// The same conversation with both servers, each in a directory of its own that `prepare` filled.
fn same(args: &[&str], prepare: fn(&Path), talk: fn(&mut Client) -> Vec<String>) {
    let mut heard = Vec::new();
    for command in [sftp::openssh(args), sftp::ours(args)] {
        let scratch = Folder::new().with_mode(0o777);
        prepare(&scratch);
        let mut served = sftp::serve(command, &scratch);
        served.client.init();
        let said = talk(&mut served.client);
        let place = scratch.to_str().unwrap();
        heard.push(
            said.iter()
                .map(|line| line.replace(place, "HERE"))
                .collect::<Vec<_>>(),
        );
        assert_eq!(served.end(), 0);
    }
    assert!(!heard[0].is_empty());
    for (theirs, ours) in heard[0].iter().zip(&heard[1]) {
        assert_eq!(theirs, ours, "OpenSSH's answer, then ours");
    }
    assert_eq!(heard[0].len(), heard[1].len());
}

/// Files, directories and links of every kind that the conversations below use.
fn furnish(at: &Path) {
    std::fs::create_dir_all(at.join("dir/sub")).unwrap();
    std::fs::create_dir(at.join("empty")).unwrap();
    for name in ["file", "other", "dir/inner"] {
        std::fs::write(at.join(name), name.repeat(100)).unwrap();
        std::fs::set_permissions(at.join(name), std::fs::Permissions::from_mode(0o640)).unwrap();
    }
    symlink("file", at.join("link")).unwrap();
    symlink("missing", at.join("dangling")).unwrap();
    symlink("dir", at.join("dirlink")).unwrap();
    symlink("loop", at.join("loop")).unwrap();
}

#[test]
fn statuses_are_openssh_s() {
    same(&["-u", "022"], furnish, |client| {
        let long = "x".repeat(300);
        let names = [
            "file",
            "dir",
            "empty",
            "link",
            "dangling",
            "dirlink",
            "loop",
            "missing",
            "file/x",
            "missing/x",
            "",
            ".",
            "/",
            "..",
            "dir/../file",
            "dir/sub/",
            "missing/",
            &long,
        ];
        let mut heard = Vec::new();
        for name in names {
            for (what, kind) in [
                ("realpath", kind::REALPATH),
                ("readlink", kind::READLINK),
                ("opendir", kind::OPENDIR),
            ] {
                let answer = client.ask(kind, &[s(name)]);
                let told = if answer.kind == kind::HANDLE {
                    client
                        .ask(kind::CLOSE, &[S(&answer.handle())])
                        .status()
                        .to_string()
                } else if name == ".." || name == "/" {
                    format!("type {}", answer.kind)
                } else {
                    format!("{answer:?}")
                };
                heard.push(format!("{what} {name}: {told}"));
            }
            for (what, kind) in [("stat", kind::STAT), ("lstat", kind::LSTAT)] {
                let answer = client.ask(kind, &[s(name)]);
                // Without the two times at the end.
                let told = &answer.rest[..answer.rest.len() - 8];
                heard.push(format!("{what} {name}: {} {told:?}", answer.kind));
            }
            let answer = client.ask(kind::EXTENDED, &[s("expand-path@openssh.com"), s(name)]);
            heard.push(format!("expand {name}: {}", answer.kind));
            let answer = client.ask(kind::EXTENDED, &[s("statvfs@openssh.com"), s(name)]);
            heard.push(format!("statvfs {name}: {} {}", answer.kind, answer.rest.len()));
        }
        heard
    });
}

#[test]
fn changes_are_openssh_s() {
    same(&["-u", "027"], furnish, |client| {
        let mut heard = Vec::new();
        let mut note = |what: &str, answer: sftp::Answer| heard.push(format!("{what}: {answer:?}"));
        for (from, to) in [
            ("file", "other"),
            ("file", "file"),
            ("file", "moved"),
            ("moved", "file"),
            ("missing", "x"),
            ("dir", "empty"),
            ("dir", "moved"),
            ("moved", "dir"),
            ("dir", "dir/sub/x"),
            ("link", "newlink"),
            ("newlink", "link"),
            ("file", "missing/x"),
            ("empty", "file"),
        ] {
            note(
                &format!("rename {from} {to}"),
                client.ask(kind::RENAME, &[s(from), s(to)]),
            );
        }
        for (from, to) in [
            ("other", "file"),
            ("file", "dir"),
            ("dir", "empty"),
            ("empty", "dir"),
            ("missing", "x"),
        ] {
            let fields = [s("posix-rename@openssh.com"), s(from), s(to)];
            note(
                &format!("posix-rename {from} {to}"),
                client.ask(kind::EXTENDED, &fields),
            );
        }
        for (from, to) in [
            ("file", "hard"),
            ("file", "hard"),
            ("missing", "x"),
            ("dir", "x"),
            ("link", "hardlink"),
        ] {
            let fields = [s("hardlink@openssh.com"), s(from), s(to)];
            note(
                &format!("hardlink {from} {to}"),
                client.ask(kind::EXTENDED, &fields),
            );
        }
        for (target, path) in [("any/thing", "sym"), ("x", "sym"), ("", "y"), ("x", "missing/y")] {
            note("symlink", client.ask(kind::SYMLINK, &[s(target), s(path)]));
        }
        note("readlink", client.ask(kind::READLINK, &[s("sym")]));
        for name in ["new", "new", "missing/new", "file", ""] {
            note("mkdir", client.ask(kind::MKDIR, &[s(name), N(4), N(0o777)]));
        }
        note("mkdir", client.ask(kind::MKDIR, &[s("plain"), N(0)]));
        for name in ["new", "dir", "file", "missing", "link", ".", ""] {
            note("rmdir", client.ask(kind::RMDIR, &[s(name)]));
        }
        for name in ["plain", "missing", "dangling", "hard", "loop", ""] {
            note("remove", client.ask(kind::REMOVE, &[s(name)]));
        }
        for name in ["file", "dir", "link", "missing", "dangling", "dirlink"] {
            note(
                "set mode",
                client.ask(kind::SETSTAT, &[s(name), N(4), N(0o100_600)]),
            );
            note("set size", client.ask(kind::SETSTAT, &[s(name), N(1), L(7)]));
            note(
                "set times",
                client.ask(kind::SETSTAT, &[s(name), N(8), N(1_000), N(4_000_000_000)]),
            );
            note(
                "set owner",
                client.ask(kind::SETSTAT, &[s(name), N(2), N(54_321), N(54_322)]),
            );
            note(
                "set all",
                client.ask(
                    kind::SETSTAT,
                    &[s(name), N(15), L(9), N(0), N(0), N(0o755), N(5), N(6)],
                ),
            );
            let fields = |rest: &[sftp::Field<'static>]| {
                let mut all = vec![s("lsetstat@openssh.com"), s(name)];
                all.extend_from_slice(rest);
                all
            };
            note("lset size", client.ask(kind::EXTENDED, &fields(&[N(1), L(7)])));
            note(
                "lset mode",
                client.ask(kind::EXTENDED, &fields(&[N(4), N(0o700)])),
            );
            note(
                "lset times",
                client.ask(kind::EXTENDED, &fields(&[N(8), N(77), N(78)])),
            );
            note(
                "lset owner",
                client.ask(kind::EXTENDED, &fields(&[N(2), N(1), N(2)])),
            );
            note("now", client.ask(kind::LSTAT, &[s(name)]));
        }
        heard
    });
}

#[test]
fn open_files_behave_as_openssh_s() {
    same(&["-u", "022"], furnish, |client| {
        let mut heard = Vec::new();
        for flags in [
            0,
            READ,
            WRITE,
            READ | WRITE,
            WRITE | CREATE,
            WRITE | CREATE | EXCLUSIVE,
            READ | CREATE,
            WRITE | APPEND,
            WRITE | TRUNCATE,
            READ | WRITE | APPEND | CREATE,
            TRUNCATE,
            APPEND,
        ] {
            for name in ["file", "dir", "missing", "link", "dangling"] {
                let told = client.open(name, flags);
                if told.kind != kind::HANDLE {
                    heard.push(format!("open {name} {flags:#x}: {told:?}"));
                    continue;
                }
                let handle = told.handle();
                let mut note = |what: &str, answer: sftp::Answer| {
                    let rest = if answer.kind == kind::ATTRS {
                        &answer.rest[..24]
                    } else {
                        &answer.rest
                    };
                    heard.push(format!("{what} {name} {flags:#x}: {} {rest:?}", answer.kind));
                };
                note("read", client.ask(kind::READ, &[S(&handle), L(3), N(5)]));
                note("read none", client.ask(kind::READ, &[S(&handle), L(3), N(0)]));
                note(
                    "read far",
                    client.ask(kind::READ, &[S(&handle), L(1 << 40), N(5)]),
                );
                note(
                    "read beyond",
                    client.ask(kind::READ, &[S(&handle), L(1 << 63), N(5)]),
                );
                note(
                    "write",
                    client.ask(kind::WRITE, &[S(&handle), L(2), s("written")]),
                );
                note("write none", client.ask(kind::WRITE, &[S(&handle), L(2), s("")]));
                note(
                    "write beyond",
                    client.ask(kind::WRITE, &[S(&handle), L(u64::MAX), s("x")]),
                );
                note("fstat", client.ask(kind::FSTAT, &[S(&handle)]));
                note(
                    "fsetstat",
                    client.ask(kind::FSETSTAT, &[S(&handle), N(5), L(12), N(0o644)]),
                );
                note(
                    "fsync",
                    client.ask(kind::EXTENDED, &[s("fsync@openssh.com"), S(&handle)]),
                );
                note(
                    "read all",
                    client.ask(kind::READ, &[S(&handle), L(0), N(u32::MAX)]),
                );
                note("readdir", client.ask(kind::READDIR, &[S(&handle)]));
                note("close", client.ask(kind::CLOSE, &[S(&handle)]));
                note("again", client.ask(kind::CLOSE, &[S(&handle)]));
                note("after", client.ask(kind::READ, &[S(&handle), L(0), N(1)]));
            }
            client.ask(kind::REMOVE, &[s("missing")]);
        }
        heard
    });
}

#[test]
fn copy_data_is_openssh_s() {
    same(&[], furnish, |client| {
        let mut heard = Vec::new();
        let from = client.open("file", READ).handle();
        for (at, len, to_at, flags) in [
            (0, 0, 0, WRITE | CREATE | TRUNCATE),
            (10, 50, 5, WRITE | CREATE | TRUNCATE),
            (10, 50, 1 << 33, WRITE | CREATE | TRUNCATE),
            (300, 5000, 0, WRITE | CREATE | TRUNCATE),
            (0, 7, 0, WRITE | APPEND),
            (9999, 0, 0, WRITE),
            (9999, 5, 0, WRITE),
            (1 << 63, 5, 0, WRITE),
        ] {
            let to = client.open("copied", flags).handle();
            let answer = client.ask(
                kind::EXTENDED,
                &[s("copy-data"), S(&from), L(at), L(len), S(&to), L(to_at)],
            );
            heard.push(format!("copy {at} {len} {to_at}: {answer:?}"));
            client.ask(kind::CLOSE, &[S(&to)]);
            heard.push(format!(
                "size: {:?}",
                &client.ask(kind::STAT, &[s("copied")]).rest[..24]
            ));
            let to = client.open("copied", READ).handle();
            heard.push(format!(
                "{:?}",
                client.ask(kind::READ, &[S(&to), L(to_at), N(1000)])
            ));
            client.ask(kind::CLOSE, &[S(&to)]);
        }
        let same = client.open("file", WRITE).handle();
        for to in [&from, &same, &vec![9; 8]] {
            let answer = client.ask(
                kind::EXTENDED,
                &[s("copy-data"), S(&from), L(0), L(5), S(to), L(0)],
            );
            heard.push(format!("{answer:?}"));
        }
        heard
    });
}

#[test]
fn what_a_read_only_or_narrowed_session_refuses_is_openssh_s() {
    fn talk(client: &mut Client) -> Vec<String> {
        // The extensions that are announced.
        let mut heard = vec![format!("{:?}", client.init())];
        let nobody = [0; 8];
        let mut note = |what: &str, answer: sftp::Answer| {
            let told = if answer.kind == kind::STATUS {
                answer.number()
            } else {
                0
            };
            heard.push(format!("{what}: {} {told}", answer.kind));
        };
        for flags in [READ, WRITE, READ | CREATE, READ | TRUNCATE, READ | WRITE] {
            note(&format!("open {flags}"), client.open("file", flags));
        }
        note("write", client.ask(kind::WRITE, &[S(&nobody), L(0), s("x")]));
        note("setstat", client.ask(kind::SETSTAT, &[s("file"), N(4), N(0o600)]));
        note(
            "fsetstat",
            client.ask(kind::FSETSTAT, &[S(&nobody), N(4), N(0o600)]),
        );
        note("remove", client.ask(kind::REMOVE, &[s("file")]));
        note("mkdir", client.ask(kind::MKDIR, &[s("new"), N(0)]));
        note("rmdir", client.ask(kind::RMDIR, &[s("empty")]));
        note("rename", client.ask(kind::RENAME, &[s("file"), s("moved")]));
        note("symlink", client.ask(kind::SYMLINK, &[s("x"), s("sym")]));
        note("stat", client.ask(kind::STAT, &[s("file")]));
        note("opendir", client.ask(kind::OPENDIR, &[s("dir")]));
        note("readlink", client.ask(kind::READLINK, &[s("link")]));
        for (name, fields) in [
            ("posix-rename@openssh.com", &[s("file"), s("moved")][..]),
            ("hardlink@openssh.com", &[s("file"), s("hard")]),
            ("lsetstat@openssh.com", &[s("file"), N(4), N(0o600)]),
            ("fsync@openssh.com", &[S(&nobody)]),
            ("copy-data", &[S(&nobody), L(0), L(0), S(&nobody), L(0)]),
            ("limits@openssh.com", &[]),
            ("statvfs@openssh.com", &[s(".")]),
            ("expand-path@openssh.com", &[s("~/file")]),
            ("nobody@example.com", &[s("x")]),
        ] {
            let all = [&[s(name)], fields].concat();
            note(name, client.ask(kind::EXTENDED, &all));
        }
        heard
    }
    same(&["-R"], furnish, talk);
    same(&["-P", "stat,rename,open,limits,hardlink"], furnish, talk);
    same(&["-p", "open,readlink,statvfs"], furnish, talk);
    // The control: all of it is done when it may be.
    same(&[], furnish, talk);
    let scratch = Folder::new().with_mode(0o777);
    furnish(&scratch);
    let mut order = sftp::order(&scratch);
    order.read_only = true;
    let mut ordered = sftp::give(order, None);
    let heard = talk(&mut ordered.client);
    assert!(
        heard.contains(&format!("remove: {} {DENIED}", kind::STATUS)),
        "{heard:?}"
    );
    assert_eq!(
        ordered.event(),
        Event::Opened {
            path: fleetgate_tests::orders::text(scratch.join("file")),
            flags: READ,
            errno: 0
        }
    );
    assert!(
        scratch.join("file").exists() && !scratch.join("moved").exists() && !scratch.join("new").exists()
    );
    ordered.end();
}
