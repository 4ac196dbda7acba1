//! `cargo xtask selinux`: boots a Debian that enforces SELinux in an emulator, with our package in it, and reads what a
//! script in there finds: whether fleetgate's sessions get the contexts that the machine's own sshd gives, without and with
//! our policy module. It runs as root, needs no KVM, and is no part of `cargo xtask test`.

use crate::dist;
use crate::shell::{Result, heading, output, root, run, target, write};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The Debian that is tried.
const SUITE: &str = "bookworm";
/// What is in it.
const PACKAGES: &str = "systemd-sysv,dbus,libpam-systemd,openssh-server,openssh-client,selinux-policy-default,selinux-basics,\
    policycoreutils,policycoreutils-python-utils,auditd,procps,linux-image-cloud-amd64";
/// How long the guest may take.
const WITHIN: Duration = Duration::from_secs(30 * 60);
/// How long it may say nothing: it boots, or installs a module.
const SILENT: Duration = Duration::from_secs(10 * 60);
/// A chroot with /proc, /dev and /run, whose mounts end with it.
const ENTER: &str = "root=$1; shift; mount -t proc proc \"$root/proc\" && mount --rbind /dev \"$root/dev\" && \
    mount -t tmpfs -o mode=755 run \"$root/run\" && exec chroot \"$root\" \"$@\"";

/// A line of the guest's.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// A check: its name, whether it held, what was found.
    Check(&'a str, bool, &'a str),
    /// What is only told.
    Told(&'a str),
    /// All checks were made.
    End,
}

/// What the guest has said so far.
#[derive(Default)]
struct Report {
    checks: usize,
    failed: Vec<String>,
    ended: bool,
}

/// `cargo xtask selinux [--deb FILE]`
pub fn main(args: &[String]) -> Result {
    let deb = match args {
        [] => {
            dist::main(&[])?;
            package(&target().join("dist"))?
        }
        [flag, file] if flag == "--deb" => PathBuf::from(file),
        _ => return Err("selinux takes --deb FILE, or nothing".to_owned()),
    };
    if std::env::consts::ARCH != "x86_64" {
        return Err("the guest is made for x86_64".to_owned());
    }
    if output(Command::new("id").arg("-u"))?.trim() != "0" {
        return Err("the guest's system is made as root".to_owned());
    }
    let place = target().join("selinux");
    fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    heading("a Debian with SELinux");
    let base = base(&place)?;
    let guest = guest(&place, &base, &deb)?;
    heading("fleetgate beside sshd, SELinux enforcing");
    watch(boot(&place, &guest)?)
}

fn package(dist: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(dist).map_err(|e| format!("{}: {e}", dist.display()))?;
    let mut paths = entries.filter_map(|e| Some(e.ok()?.path()));
    let found = paths.find(|p| p.extension().is_some_and(|e| e == "deb"));
    found.ok_or_else(|| format!("{}: no .deb", dist.display()))
}

/// The Debian without us, made once by debootstrap from its own mirror and kept.
fn base(place: &Path) -> Result<PathBuf> {
    let (base, stamp) = (place.join("base"), place.join("base.packages"));
    let wanted = format!("{SUITE} {PACKAGES}");
    if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        println!("{}: there", base.display());
        return Ok(base);
    }
    let _ = fs::remove_dir_all(&base);
    let mut debootstrap = Command::new("debootstrap");
    debootstrap
        .args(["--variant=minbase", &format!("--include={PACKAGES}"), SUITE])
        .arg(&base);
    run(debootstrap.stdout(Stdio::null()))?;
    write(&stamp, wanted.as_bytes())?;
    Ok(base)
}

/// A copy with our package, users and checks in it, every file labelled.
fn guest(place: &Path, base: &Path, deb: &Path) -> Result<PathBuf> {
    let guest = place.join("guest");
    let _ = fs::remove_dir_all(&guest);
    run(Command::new("cp")
        .args(["-a", "--reflink=auto"])
        .arg(base)
        .arg(&guest))?;
    for (from, to) in [
        (deb.to_owned(), "tmp/fleetgate.deb"),
        (root().join("xtask/selinux/prepare"), "tmp/prepare"),
        (root().join("xtask/selinux/check"), "usr/local/sbin/selinux-check"),
    ] {
        fs::copy(&from, guest.join(to)).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    let mut prepare = Command::new("unshare");
    prepare
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
        ])
        .args(["sh", "-c", ENTER, "enter"])
        .arg(&guest)
        .args(["sh", "/tmp/prepare"])
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C.UTF-8");
    // It says more than anybody wants to read, unless it fails.
    output(&mut prepare)?;
    Ok(guest)
}

/// The guest, running: its kernel's console goes to a file, its checks to our pipe.
fn boot(place: &Path, guest: &Path) -> Result<Child> {
    let image = place.join("image");
    let _ = fs::remove_file(&image);
    run(Command::new("mkfs.ext4")
        .args(["-q", "-F", "-d"])
        .arg(guest)
        .arg(&image)
        .arg("4G"))?;
    let boot = |name: &str| -> Result<PathBuf> {
        let entries = fs::read_dir(guest.join("boot")).map_err(|e| format!("/boot: {e}"))?;
        let mut paths = entries.filter_map(|e| Some(e.ok()?.path()));
        let found = paths.find(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with(name))
        });
        found.ok_or_else(|| format!("the guest has no {name}"))
    };
    let serial = format!("file:{}", place.join("console").display());
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args([
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-m",
        "2G",
        "-smp",
        "2",
    ])
    .args([
        "-display",
        "none",
        "-monitor",
        "none",
        "-nic",
        "none",
        "-no-reboot",
    ])
    .arg("-kernel")
    .arg(boot("vmlinuz")?)
    .arg("-initrd")
    .arg(boot("initrd.img")?)
    .args([
        "-append",
        "root=/dev/vda rw console=ttyS0 security=selinux selinux=1 enforcing=1 audit=1",
    ])
    .arg("-drive")
    .arg(format!(
        "file={},format=raw,if=virtio,cache=unsafe",
        image.display()
    ))
    .args([
        "-device",
        "virtio-rng-pci",
        "-serial",
        &serial,
        "-serial",
        "stdio",
    ])
    .stdin(Stdio::null())
    .stdout(Stdio::piped());
    println!(
        "emulated, so it takes minutes; the console is in {}",
        place.join("console").display()
    );
    qemu.spawn().map_err(|e| format!("qemu-system-x86_64: {e}"))
}

/// Prints what the guest says, until it ends or takes too long.
fn watch(mut qemu: Child) -> Result {
    let said = qemu.stdout.take().ok_or("no output")?;
    let (line, lines) = channel();
    std::thread::spawn(move || {
        for text in BufReader::new(said).lines().map_while(std::io::Result::ok) {
            if line.send(text).is_err() {
                return;
            }
        }
    });
    let (begun, mut report) = (Instant::now(), Report::default());
    let late = loop {
        let left = WITHIN.saturating_sub(begun.elapsed()).min(SILENT);
        match lines.recv_timeout(left) {
            Ok(text) => report.take(text.trim_end(), begun.elapsed()),
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    let _ = qemu.kill();
    let _ = qemu.wait();
    report.verdict(late)
}

impl Report {
    fn take(&mut self, text: &str, after: Duration) {
        match parse(text) {
            Line::Check(name, held, found) => {
                self.checks += 1;
                let word = if held { "ok" } else { "FAILED" };
                println!("{:>4} s  {word:<6}  {name:<40}  {found}", after.as_secs());
                if !held {
                    self.failed.push(name.to_owned());
                }
            }
            Line::Told(text) => println!("{:>4} s  {text}", after.as_secs()),
            Line::End => self.ended = true,
        }
    }

    fn verdict(&self, late: bool) -> Result {
        if !self.failed.is_empty() {
            return Err(format!(
                "{} of {} checks failed: {}",
                self.failed.len(),
                self.checks,
                self.failed.join(", ")
            ));
        }
        if !self.ended || self.checks == 0 {
            let how = if late { "took too long" } else { "ended" };
            return Err(format!(
                "the guest {how} after {} checks, before the last",
                self.checks
            ));
        }
        println!("{} checks, all as they should be", self.checks);
        Ok(())
    }
}

fn parse(text: &str) -> Line<'_> {
    if text == "END" {
        return Line::End;
    }
    let check = text.strip_prefix("CHECK ").and_then(|check| {
        let (name, found) = check.split_once(": ")?;
        let (word, found) = found.split_once(' ').unwrap_or((found, ""));
        Some((name, word == "ok", found))
    });
    match check {
        Some((name, held, found)) => Line::Check(name, held, found),
        None => Line::Told(text.strip_prefix("NOTE ").unwrap_or(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_lines_are_read() {
        for (text, line) in [
            (
                "CHECK file of ada: ok a:b:c:s0",
                Line::Check("file of ada", true, "a:b:c:s0"),
            ),
            ("CHECK agent of ada: ok", Line::Check("agent of ada", true, "")),
            (
                "CHECK file: FAILED refused, expected x",
                Line::Check("file", false, "refused, expected x"),
            ),
            ("CHECK file: perhaps", Line::Check("file", false, "")),
            ("NOTE a: ok b", Line::Told("a: ok b")),
            ("DENIED 3 avc", Line::Told("DENIED 3 avc")),
            ("END", Line::End),
        ] {
            assert_eq!(parse(text), line, "{text}");
        }
    }

    #[test]
    fn only_checks_that_all_hold_until_the_end_are_good() {
        let after = |lines: &[&str]| {
            let mut report = Report::default();
            lines.iter().for_each(|line| report.take(line, Duration::ZERO));
            report.verdict(false)
        };
        assert!(after(&["CHECK a: ok x", "NOTE b", "END"]).is_ok());
        assert!(after(&["CHECK a: ok x"]).unwrap_err().contains("before the last"));
        assert!(after(&["END"]).is_err());
        assert!(
            after(&["CHECK a: FAILED x", "CHECK b: ok y", "END"])
                .unwrap_err()
                .contains("1 of 2 checks failed: a")
        );
    }

    /// Where both servers fail in one way, they are not the same.
    #[test]
    fn only_an_answer_of_sshds_is_compared_with_ours() {
        const CHECK: &str = include_str!("../selinux/check");
        let (_, functions) = CHECK.split_once("\ncheck() {").expect("it is there");
        let (functions, _) = functions.split_once("\nline() {").expect("it is there");
        for (sshds, ours, holds) in [
            ("a:b:user_t:s0", "a:b:user_t:s0", true),
            ("a:b:user_t:s0 c:d:tty_t:s0", "a:b:user_t:s0 c:d:tty_t:s0", true),
            ("SSH-", "SSH-", true),
            ("unknown to logind", "unknown to logind", true),
            ("a:b:user_t:s0", "a:b:other_t:s0", false),
            ("", "", false),
            ("refused", "refused", false),
            ("Permission denied.", "Permission denied.", false),
            ("a:b:user_t:s0 refused", "a:b:user_t:s0 refused", false),
        ] {
            let script = format!("check() {{{functions}\nsame name \"$1\" \"$2\"");
            let mut shell = std::process::Command::new("sh");
            let said = shell
                .args(["-c", &script, "sh", sshds, ours])
                .output()
                .expect("a shell");
            let said = String::from_utf8(said.stdout).expect("text");
            assert!(
                matches!(parse(said.trim_end()), Line::Check("name", held, _) if held == holds),
                "{sshds}: {said}"
            );
        }
    }
}
