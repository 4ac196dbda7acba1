//! Root inside namespaces goes for the image of a program that was started from outside: while it runs, after it has
//! ended, through its /proc/PID/exe, a descriptor it kept, the mount, a file handle. From memfd and overlay nothing
//! comes of it; what comes of it with the others is held here too, because docs/sealing.md says so, and because an
//! attack that works on nothing would prove nothing.

use fleetgate_seal::{Image, Source, Strategy};
use fleetgate_sys::process::{self, SIGKILL};
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Fd, exe, file, mount};
use fleetgate_tests::seal::{Place, play, plays, said};
use fleetgate_tests::test_name;
use fleetgate_tests::world::c;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// The victim waits for its standard input to end.
const VICTIM: &str =
    "#include <unistd.h>\nint main(void) { char c; while (read(0, &c, 1) > 0); return 0; }\n";

/// What each attack said, by name: `refused …` or `done`.
type Outcome = BTreeMap<String, String>;

/// Has the image of `strategy` attacked by root in fresh namespaces (`unshare` arguments), and says what came of it;
/// with it, whether the image still has the bytes it was made of.
fn attack(strategy: Strategy, namespaces: &[&str]) -> (Outcome, bool) {
    let place = Place::below("/var/tmp");
    let program = place.compile("victim", VICTIM, &["-static"]);
    let original = std::fs::read(&program).expect("read");
    let directory =
        matches!(strategy, Strategy::Tmpfile | Strategy::Unlinked).then_some(place.path.as_path());
    let image = Image::make(strategy, &Source::File(program), c"victim", directory).expect("an image");
    // What a program that was started from the image could have kept of it.
    image.fd().set_cloexec(false).expect("inherited");
    let mut before = vec![
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    before.extend(namespaces);
    let mut attacker = play(
        &before,
        &test_name(module_path!(), "the_image_is_attacked"),
        "attacker",
    );
    attacker.env("IMAGE", image.fd().raw().to_string());
    let out = attacker.stdin(Stdio::null()).output().expect("unshare runs");
    image.fd().set_cloexec(true).expect("not inherited any more");
    let (text, error, code) = said(&out);
    assert_eq!(code, 0, "{text}{error}");
    let outcome: Outcome = text
        .lines()
        .filter_map(|l| l.split_once("ATTACK ")?.1.split_once(": "))
        .map(|(name, result)| (name.to_owned(), result.to_owned()))
        .collect();
    let now = std::fs::read(format!("/proc/self/fd/{}", image.fd().raw())).expect("read");
    (outcome, now == original)
}

fn say<T>(name: &str, result: Result<T, impl std::fmt::Debug>) {
    match result {
        Ok(_) => println!("ATTACK {name}: done"),
        Err(e) => println!("ATTACK {name}: refused {e:?}"),
    }
}

/// Every way to write to what `path` leads to.
fn write_through(when: &str, path: &str) {
    let at = Path::new(path);
    let open = |truncate: bool| std::fs::File::options().write(true).truncate(truncate).open(at);
    let write = open(false).and_then(|f| f.write_all_at(b"\x7fEVL", 0));
    say(&format!("{when} write"), write);
    let append = std::fs::File::options().append(true).open(at);
    let append = append.and_then(|mut f| std::io::Write::write_all(&mut f, b"evil"));
    say(&format!("{when} append"), append);
    say(
        &format!("{when} truncate"),
        open(false).and_then(|f| f.set_len(1)),
    );
    say(
        &format!("{when} open truncating"),
        open(true).and_then(|f| match f.metadata()?.len() {
            0 => Ok(()),
            _ => Err(std::io::Error::other("nothing was cut")),
        }),
    );
    let disarm = std::fs::set_permissions(at, PermissionsExt::from_mode(0o444));
    say(&format!("{when} take the x bits"), disarm);
}

/// The attacker: root in the new namespaces.
fn be_the_attacker() {
    let raw: i32 = std::env::var("IMAGE").expect("set").parse().expect("a number");
    let image = Fd::from_raw(raw);
    let (input, keep) = file::pipe().expect("a pipe");
    let null = Fd::from(
        std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .expect("null"),
    );
    let argv = Strings::new([c"victim"]);
    let envp = Strings::new([]);
    let what = Spawn {
        program: Program::Fd(&image),
        argv: &argv,
        envp: &envp,
        fds: &[input.raw(), null.raw(), null.raw()],
        cgroup: None,
    };
    let victim = spawn(&what, &mut Stack::new().expect("a stack")).expect("the victim starts");
    drop(input);
    let exe = format!("/proc/{}/exe", victim.pid);

    // The mount first: what it gains would help everything after it.
    let path = c(&exe);
    say(
        "mount_setattr",
        mount::set_attributes(&path, 0, mount::ATTR_RDONLY),
    );
    say("remount", mount::remount_writable(&path, false));
    say("remount the filesystem", mount::remount_writable(&path, true));
    for on in ["/proc/self/exe", exe.as_str()] {
        let handle = mount::handle(&path);
        let opened = handle.and_then(|h| {
            let on = Fd::from(std::fs::File::open(on).map_err(|_| fleetgate_sys::Errno::EIO)?);
            mount::open_handle_for_writing(&on, &h)
        });
        // Only what really is the image is written to: a handle of one filesystem may name anything on another.
        let written = opened.and_then(|fd| {
            let (found, wanted) = (exe::identity(&fd)?, exe::identity(&image)?);
            match (found.device, found.inode) == (wanted.device, wanted.inode) {
                true => file::write_at(fd.raw(), b"\x7fEVL", 0),
                false => Err(fleetgate_sys::Errno::ESTALE),
            }
        });
        let name = if on == exe {
            "its own mount"
        } else {
            "our filesystem"
        };
        say(&format!("open_by_handle_at on {name}"), written);
    }
    write_through("running", &exe);

    // A descriptor kept from the running program, used when it is gone.
    let kept = std::fs::File::open(&exe).expect("reading is no attack");
    drop(keep);
    process::signal(&victim.pidfd, SIGKILL).expect("it is ours");
    process::wait(&victim.pidfd, true).expect("it ends");
    write_through("exited", &format!("/proc/self/fd/{}", kept.as_raw_fd()));
    write_through("inherited", &format!("/proc/self/fd/{}", image.raw()));
    say(
        "inherited write without reopening",
        file::write_at(image.raw(), b"\x7fEVL", 0),
    );
    say("inherited fchmod", exe::change_mode(&image, 0o000));
}

#[test]
fn the_image_is_attacked() {
    if plays("attacker") {
        return be_the_attacker();
    }
    let as_root: &[&str] = &[];
    // Outside it is the same root, so files of root's are its own: the hardest case.
    let as_root_of_its_own: &[&str] = &["--user", "--map-root-user"];
    for strategy in [Strategy::Memfd, Strategy::Overlay] {
        for namespaces in [as_root, as_root_of_its_own] {
            let (outcome, intact) = attack(strategy, namespaces);
            let done: Vec<&String> = outcome
                .iter()
                .filter(|(_, r)| *r == "done")
                .map(|(n, _)| n)
                .collect();
            assert!(outcome.len() >= 22, "{outcome:#?}");
            assert!(
                done.is_empty(),
                "{strategy} {namespaces:?}: {done:?}\n{outcome:#?}"
            );
            assert!(intact, "{strategy}");
        }
    }
    // The rest is no protection from root, which is why containers get none of it.
    for strategy in [Strategy::Tmpfile, Strategy::Unlinked, Strategy::Plain] {
        for namespaces in [as_root, as_root_of_its_own] {
            let (outcome, intact) = attack(strategy, namespaces);
            let done = |name: &str| outcome.get(name).is_some_and(|r| r == "done");
            assert!(
                done("exited write") && done("exited truncate"),
                "{strategy}: {outcome:#?}"
            );
            assert!(!intact, "{strategy}");
        }
    }
}

/// A program that seals itself inside its namespaces has its own root for an owner; the overlay is read-only for
/// that one too.
#[test]
fn an_overlay_is_read_only_even_for_who_made_it() {
    let place = Place::below("/var/tmp");
    let own = place.copy(&fleetgate_tests::fleetgate(), "fleetgate");
    let script = "exec 2>&1; (echo x >> /proc/$$/exe) || echo refused";
    let out = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
        ])
        .arg(&own)
        .args([
            "seal",
            "run",
            "--strategy",
            "overlay",
            "--",
            "/bin/bash",
            "-c",
            script,
        ])
        .output()
        .expect("unshare runs");
    let (text, error, code) = said(&out);
    assert!(text.contains("Read-only file system"), "{text}{error}");
    assert!(text.contains("refused") && code == 0, "{text}{error}");
}

#[test]
fn no_descriptor_of_a_memfd_is_without_its_seals() {
    let place = Place::below("/var/tmp");
    let program = place.compile("victim", VICTIM, &["-static"]);
    let image = Image::make(Strategy::Memfd, &Source::File(program), c"victim", None).expect("an image");
    let again = std::fs::File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/self/fd/{}", image.fd().raw()))
        .expect("opening is not refused, writing is");
    assert!(again.write_all_at(b"x", 0).is_err());
    assert!(again.set_len(0).is_err());
    let again = Fd::from(again);
    assert!(fleetgate_sys::memfd::is_final(&again));
    assert!(
        fleetgate_sys::memfd::add_seals(&again, 0x10).is_err(),
        "the seals are sealed"
    );
}
