//! The file server by order: who it becomes, where it is confined, whom it asks for names. Needs root.

use fleetgate_sys::process::Exit;
use fleetgate_sys::{poll, socket};
use fleetgate_tests::folder::Folder;
use fleetgate_tests::needs_root;
use fleetgate_tests::orders::text;
use fleetgate_tests::sftp::Field::{L, N, S};
use fleetgate_tests::sftp::{self, Client, kind, s};
use fleetgate_wire::names::{About, Answer, Found, Question};
use fleetgate_wire::order::{Role, Work};
use fleetgate_wire::{Reason, Reply};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const READ: u32 = 1;
const WRITE: u32 = 2;
const CREATE: u32 = 8;
const MISSING: u32 = 2;
const DENIED: u32 = 3;

/// What is written in the file outside; nobody inside may ever read it.
const SECRET: &[u8] = b"outside";

fn read_all(client: &mut Client, path: &str) -> Result<Vec<u8>, u32> {
    let answer = client.open(path, READ);
    if answer.kind == kind::STATUS {
        return Err(answer.status());
    }
    let handle = answer.handle();
    let answer = client.ask(kind::READ, &[S(&handle), L(0), N(1000)]);
    client.ask(kind::CLOSE, &[S(&handle)]);
    if answer.kind == kind::STATUS {
        Err(answer.status())
    } else {
        Ok(answer.data().to_vec())
    }
}

#[test]
fn the_user_s_rights_count_and_no_others() {
    needs_root!("sessions of another user");
    let scratch = Folder::new().with_mode(0o777);
    std::fs::write(scratch.join("roots"), "root's").unwrap();
    std::fs::set_permissions(scratch.join("roots"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(scratch.join("groups"), "the group's").unwrap();
    std::fs::set_permissions(scratch.join("groups"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let ids = sftp::ordinary();
    chown(scratch.join("groups"), Some(0), ids.groups.last().copied()).unwrap();
    let mut order = sftp::order(&scratch);
    order.ids = ids.clone();
    let mut ordered = sftp::give(order, None);
    let client = &mut ordered.client;
    client.init();
    assert_eq!(read_all(client, "roots"), Err(DENIED));
    assert_eq!(
        read_all(client, "groups").as_deref(),
        Ok(&b"the group's"[..]),
        "by a supplementary group"
    );
    let handle = client.open("mine", WRITE | CREATE).handle();
    client.ask(kind::CLOSE, &[S(&handle)]);
    let meta = std::fs::metadata(scratch.join("mine")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (ids.uid, ids.gid));
    assert_eq!(
        client.ask(kind::SETSTAT, &[s("mine"), N(2), N(0), N(0)]).status(),
        DENIED
    );
    let home = client.ask(kind::EXTENDED, &[s("home-directory"), s("")]);
    assert_eq!(home.names(), [scratch.to_str().unwrap()]);
    assert_eq!(ordered.end(), (vec![Reply::Ready], Exit::Code(0)));
    // The control: root may.
    let mut ordered = sftp::give(sftp::order(&scratch), None);
    ordered.client.init();
    assert_eq!(
        read_all(&mut ordered.client, "roots").as_deref(),
        Ok(&b"root's"[..])
    );
    ordered.end();
}

#[test]
fn nothing_leads_out_of_a_chroot() {
    needs_root!("sessions of another user");
    let scratch = Folder::new().with_mode(0o777);
    std::fs::write(scratch.join("secret"), SECRET).unwrap();
    let root = scratch.join("root");
    std::fs::create_dir_all(root.join("home/deep")).unwrap();
    std::fs::set_permissions(root.join("home"), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(root.join("home/inside"), "inside").unwrap();
    symlink("../../secret", root.join("home/relative")).unwrap();
    symlink(scratch.join("secret"), root.join("home/absolute")).unwrap();
    symlink("/proc/self/root", root.join("home/proc")).unwrap();
    let mut order = sftp::order(std::path::Path::new("/home"));
    order.ids = sftp::ordinary();
    order.chroot = Some(text(&root));
    let mut ordered = sftp::give(order, None);
    let client = &mut ordered.client;
    client.init();
    assert_eq!(client.ask(kind::REALPATH, &[s(".")]).names(), ["/home"]);
    assert_eq!(client.ask(kind::REALPATH, &[s("../../../../..")]).names(), ["/"]);
    assert_eq!(read_all(client, "inside").as_deref(), Ok(&b"inside"[..]));
    assert_eq!(
        read_all(client, "/home/../home/inside").as_deref(),
        Ok(&b"inside"[..])
    );
    let outside = scratch.join("secret");
    for path in [
        "../secret",
        "../../secret",
        "../../../../../../../../secret",
        "relative",
        "absolute",
        "proc/secret",
        "/proc/1/root",
        outside.to_str().unwrap(),
    ] {
        assert_eq!(read_all(client, path), Err(MISSING), "{path}");
        assert_eq!(client.ask(kind::STAT, &[s(path)]).status(), MISSING, "{path}");
    }
    // By hands of their own: a link made by the client, a hard link, a rename.
    assert_eq!(
        client
            .ask(kind::SYMLINK, &[s("/../../secret"), s("made")])
            .status(),
        0
    );
    assert_eq!(read_all(client, "made"), Err(MISSING));
    let fields = [s("hardlink@openssh.com"), s("../../secret"), s("hard")];
    assert_eq!(client.ask(kind::EXTENDED, &fields).status(), MISSING);
    assert_eq!(
        client
            .ask(kind::RENAME, &[s("inside"), s("../../escaped")])
            .status(),
        DENIED,
        "the root is root's"
    );
    let names = client.ask(kind::OPENDIR, &[s("/")]).handle();
    let mut listed = client.ask(kind::READDIR, &[S(&names)]).names();
    listed.sort();
    assert_eq!(listed, [".", "..", "home"]);
    let exit = ordered.end();
    assert_eq!(exit, (vec![Reply::Ready], Exit::Code(0)));
    assert!(!scratch.join("escaped").exists());
    assert_eq!(std::fs::read(scratch.join("secret")).unwrap(), SECRET);
}

/// Somebody swaps a directory for a link that leads out, all the time.
#[test]
fn a_race_of_links_never_leads_out_of_a_chroot() {
    needs_root!("sessions of another user");
    let scratch = Folder::new().with_mode(0o777);
    std::fs::create_dir_all(scratch.join("out")).unwrap();
    std::fs::write(scratch.join("out/file"), SECRET).unwrap();
    let root = scratch.join("root");
    std::fs::create_dir_all(root.join("in")).unwrap();
    std::fs::write(root.join("in/file"), "inside").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapping = {
        let (stop, root, out) = (stop.clone(), root.clone(), scratch.join("out"));
        std::thread::spawn(move || {
            let mut swaps = 0u32;
            while !stop.load(Ordering::Relaxed) {
                for target in [std::path::Path::new("../../out"), &out] {
                    std::fs::rename(root.join("in"), root.join("kept")).unwrap();
                    symlink(target, root.join("in")).unwrap();
                    std::fs::remove_file(root.join("in")).unwrap();
                    std::fs::rename(root.join("kept"), root.join("in")).unwrap();
                    swaps += 1;
                }
            }
            swaps
        })
    };
    let mut order = sftp::order(std::path::Path::new("/"));
    order.chroot = Some(text(&root));
    let mut ordered = sftp::give(order, None);
    ordered.client.init();
    let (mut inside, mut missing) = (0, 0);
    // Until both were seen often: the race is on.
    for _ in 0..200_000 {
        match read_all(&mut ordered.client, "in/file") {
            Ok(bytes) => {
                assert_eq!(bytes, b"inside");
                inside += 1;
            }
            Err(status) => {
                assert_eq!(status, MISSING);
                missing += 1;
            }
        }
        if inside > 200 && missing > 200 {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(
        swapping.join().unwrap() > 0 && inside > 0 && missing > 0,
        "{inside} inside, {missing} missing"
    );
    ordered.end();
}

#[test]
fn an_order_that_cannot_be_followed_is_refused_by_name() {
    needs_root!("sessions of another user");
    let scratch = Folder::new().with_mode(0o777);
    std::fs::write(scratch.join("file"), "").unwrap();
    let refused = |chroot: Option<&str>, start: Option<&str>| {
        let mut order = sftp::order(&scratch);
        order.chroot = chroot.map(|name| text(scratch.join(name)));
        order.start = start.map(text);
        let (replies, exit) = sftp::give(order, None).end();
        assert_eq!(exit, Exit::Code(1));
        match replies.last() {
            Some(Reply::Failed { failure }) => (
                failure.reason.clone(),
                failure.subject.to_str().unwrap().to_owned(),
            ),
            other => panic!("{other:?}"),
        }
    };
    // No such context: refused where the kernel runs SELinux, and where it does not.
    let mut order = sftp::order(&scratch);
    order.ids = sftp::ordinary();
    order.selinux = Some(c"no:such:context".into());
    let (replies, exit) = sftp::give(order, None).end();
    assert_eq!(exit, Exit::Code(1));
    assert!(
        matches!(replies.last(), Some(Reply::Failed { failure }) if failure.subject.as_c_str() == c"setting the SELinux context"),
        "{replies:?}"
    );
    let at = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    assert_eq!(refused(Some("missing"), None), (Reason::System, at("missing")));
    assert_eq!(refused(Some("file"), None), (Reason::WrongKind, at("file")));
    assert_eq!(
        refused(None, Some("missing")),
        (Reason::Missing, "missing".to_owned())
    );
    // Streams missing; work for somebody else.
    let helper = fleetgate_tests::orders::start("sftp", &[]);
    fleetgate_tests::orders::send(&helper.control, Work::Sftp(sftp::order(&scratch)), &[]);
    assert!(matches!(
        helper.replies().as_slice(),
        [Reply::Failed { failure }] if failure.reason == Reason::BadDescriptors
    ));
    assert_eq!(helper.wait(), Exit::Code(1));
    let helper = fleetgate_tests::orders::start("sftp", &[]);
    let work = Work::Exec(fleetgate_tests::orders::command(
        fleetgate_tests::orders::root(),
        "true",
    ));
    let null = fleetgate_sys::Fd::from(std::fs::File::open("/dev/null").unwrap());
    fleetgate_tests::orders::send(&helper.control, work, &[(Role::Stdin, &null)]);
    assert!(matches!(
        helper.replies().as_slice(),
        [Reply::Failed { failure }] if failure.reason == Reason::BadOrder
    ));
    helper.wait();
}

/// Names come from the resolver, one question for a whole listing; a resolver that hangs costs a second, once.
#[test]
fn names_are_the_resolver_s_and_a_hanging_one_is_not_waited_for() {
    needs_root!("sessions of another user");
    let scratch = Folder::new().with_mode(0o777);
    std::fs::create_dir(scratch.join("d")).unwrap();
    for n in 0..3u32 {
        let path = scratch.join(format!("d/f{n}"));
        std::fs::write(&path, "").unwrap();
        chown(&path, Some(60_000 + n), Some(61_000)).unwrap();
    }
    let (ours, theirs) = socket::pair().unwrap();
    let answering = std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        let mut questions = 0;
        loop {
            fleetgate_tests::orders::wait_for(&ours, poll::READ);
            let message = socket::receive(&ours, &mut buffer, true).unwrap();
            if message.len == 0 {
                return questions;
            }
            questions += 1;
            let question: Question = fleetgate_wire::decode(&buffer[..message.len]).unwrap();
            let found = match question.about {
                About::Names { uids, gids } => Found::Names {
                    users: uids
                        .iter()
                        .map(|u| {
                            text(if *u == 60_002 {
                                String::new()
                            } else {
                                format!("user{u}")
                            })
                        })
                        .collect(),
                    groups: gids.iter().map(|g| text(format!("group{g}"))).collect(),
                },
                About::User { name } if name.as_c_str() == c"ada" => Found::User {
                    account: fleetgate_tests::orders::user(),
                },
                _ => Found::Unknown,
            };
            // A late answer to another question first: it is not taken for this one.
            let stale = Answer {
                id: question.id.wrapping_sub(1),
                found: Found::Unknown,
            };
            socket::send(&ours, &fleetgate_wire::encode(&stale), &[]).unwrap();
            socket::send(
                &ours,
                &fleetgate_wire::encode(&Answer {
                    id: question.id,
                    found,
                }),
                &[],
            )
            .unwrap();
        }
    });
    let mut ordered = sftp::give(sftp::order(&scratch), Some(&theirs));
    drop(theirs);
    let client = &mut ordered.client;
    client.init();
    let list = |client: &mut Client| {
        let handle = client.ask(kind::OPENDIR, &[s("d")]).handle();
        let answer = client.ask(kind::READDIR, &[S(&handle)]);
        String::from_utf8_lossy(&answer.rest).into_owned()
    };
    let listing = list(client);
    for line in [
        "user60000 group61000",
        "user60001 group61000",
        "60002    group61000",
    ] {
        assert!(listing.contains(line), "{line} in {listing:?}");
    }
    list(client);
    let uids: Vec<u8> = [60_001u32, 60_002, 7]
        .iter()
        .flat_map(|n| n.to_be_bytes())
        .collect();
    let answer = client.ask(
        kind::EXTENDED,
        &[s("users-groups-by-id@openssh.com"), S(&uids), s("")],
    );
    assert_eq!(answer.string(), b"\0\0\0\x09user60001\0\0\0\0\0\0\0\x05user7");
    let home = client.ask(kind::EXTENDED, &[s("home-directory"), s("ada")]);
    assert_eq!(home.names(), ["/tmp"]);
    ordered.end();
    assert_eq!(
        answering.join().unwrap(),
        3,
        "one for the listing, one for uid 7, one for ada"
    );
    // A resolver that never answers: numbers, and a session that goes on.
    let (ours, theirs) = socket::pair().unwrap();
    let mut ordered = sftp::give(sftp::order(&scratch), Some(&theirs));
    ordered.client.init();
    for _ in 0..50 {
        assert!(list(&mut ordered.client).contains("60000    61000"));
    }
    ordered.end();
    let mut buffer = [0; 4096];
    assert!(
        socket::receive(&ours, &mut buffer, false).unwrap().len > 0,
        "it was asked"
    );
    assert!(socket::receive(&ours, &mut buffer, false).is_err(), "once");
}
