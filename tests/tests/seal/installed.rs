//! The package's own file: used when it is what was built in and nobody but root can write to it; still the same
//! program, or another rung, whatever happens to the file while it is in use.

use fleetgate_launch::Launcher;
use fleetgate_seal::{Embedded, FallbackChain, Image, Options, Packing, Source, Strategy};
use fleetgate_sys::exe;
use fleetgate_tests::launching::session;
use fleetgate_tests::seal::{Place, said};
use fleetgate_tests::{helper, installed, needs_root, skip};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The helper as if it were embedded, and where its package would have put it.
struct Installed {
    _place: Place,
    path: PathBuf,
    embedded: &'static Embedded,
}

fn install() -> Installed {
    // Below directories that root alone can write to.
    let place = Place::below("/usr/lib");
    let path = place.copy(&helper(), "fleetgate-session");
    let data: &'static [u8] = std::fs::read(&path).expect("read").leak();
    let out = Command::new("sha256sum")
        .arg(&path)
        .output()
        .expect("sha256sum runs");
    let mut sha256 = [0u8; 32];
    for (byte, digits) in sha256.iter_mut().zip(said(&out).0.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).expect("ASCII");
        *byte = u8::from_str_radix(digits, 16).expect("a digest");
    }
    let embedded = Box::leak(Box::new(Embedded {
        name: "fleetgate-session",
        version: "0",
        packing: Packing::Raw,
        data,
        len: data.len(),
        sha256,
    }));
    Installed {
        _place: place,
        path,
        embedded,
    }
}

impl Installed {
    fn chain(&self) -> FallbackChain {
        let options = Options {
            order: vec![Strategy::Installed, Strategy::Memfd],
            installed: Some(self.path.clone()),
            ..Options::default()
        };
        FallbackChain::open(Source::Embedded(self.embedded), options).expect("memfd works at least")
    }

    /// The rung images come from now; whatever it is, they have the right bytes.
    fn rung(&self, chain: &FallbackChain) -> Strategy {
        let image = chain.image().expect("an image");
        let bytes = std::fs::read(format!("/proc/self/fd/{}", image.fd().raw())).expect("read");
        assert!(bytes == self.embedded.data, "{}: other bytes", image.strategy());
        image.strategy()
    }
}

#[test]
fn an_upgrade_or_a_deletion_takes_the_name_and_not_the_program() {
    let it = install();
    let chain = it.chain();
    assert_eq!(it.rung(&chain), Strategy::Installed);
    let fresh = it.path.with_extension("new");
    std::fs::write(&fresh, b"another version").expect("written");
    std::fs::rename(&fresh, &it.path).expect("replaced");
    assert_eq!(it.rung(&chain), Strategy::Installed);
    std::fs::remove_file(&it.path).expect("deleted");
    assert_eq!(it.rung(&chain), Strategy::Installed);
    assert!(chain.report().moves.is_empty());
    // A server that starts now finds no such file.
    let chain = it.chain();
    assert_eq!(it.rung(&chain), Strategy::Memfd);
    let why = &chain.report().strategies[0].why;
    assert!(why.contains("No such file or directory (ENOENT)"), "{why}");
}

#[test]
fn a_file_overwritten_in_place_is_left() {
    for change in ["one byte", "cut", "grown"] {
        let it = install();
        let chain = it.chain();
        assert_eq!(it.rung(&chain), Strategy::Installed);
        let file = std::fs::File::options()
            .write(true)
            .open(&it.path)
            .expect("root may");
        let len = it.embedded.len as u64;
        let changed = match change {
            "cut" => file.set_len(len - 1),
            "grown" => file.set_len(len + 1),
            _ => std::os::unix::fs::FileExt::write_all_at(&file, b"X", len / 2),
        };
        changed.expect("changed");
        drop(file);
        assert_eq!(it.rung(&chain), Strategy::Memfd, "{change}");
        let report = chain.report();
        assert_eq!(report.moves.len(), 1);
        assert!(
            report.strategies[0].why.contains("was written to while in use"),
            "{}",
            report.strategies[0].why
        );
    }
}

#[test]
fn what_only_the_digest_read_does_not_stay_in_the_page_cache() {
    let it = install();
    let file = std::fs::File::open(&it.path).expect("there");
    // What is not on the disk yet cannot go.
    file.sync_all().expect("on the disk");
    let cached = || -> usize {
        let mut fincore = Command::new("fincore");
        let out = fincore
            .args(["--bytes", "--noheadings", "--output", "RES"])
            .arg(&it.path)
            .output();
        let text = said(&out.expect("fincore, of util-linux-extra, runs")).0;
        text.trim().parse().unwrap_or_else(|_| panic!("{text:?}"))
    };
    assert_eq!(cached(), it.embedded.len.next_multiple_of(4096));
    let source = Source::Embedded(it.embedded);
    let image =
        Image::make(Strategy::Installed, &source, c"fleetgate-session", Some(&it.path)).expect("it is");
    assert_eq!(cached(), 0);
    drop(image);
}

#[test]
fn sessions_start_whatever_becomes_of_the_file() {
    needs_root!("sessions of another user");
    let it = install();
    let chain = Arc::new(it.chain());
    let mut launcher = Launcher::new(chain.clone()).expect("a launcher");
    let mut rung = || session(&mut launcher).expect("a session").strategy;
    assert_eq!(rung(), Strategy::Installed);
    let fresh = it.path.with_extension("new");
    std::fs::write(&fresh, b"another version").expect("written");
    std::fs::rename(&fresh, &it.path).expect("replaced");
    assert_eq!(rung(), Strategy::Installed);
    std::fs::remove_file(&it.path).expect("deleted");
    assert_eq!(rung(), Strategy::Installed);
    assert!(chain.report().moves.is_empty());

    let it = install();
    let chain = Arc::new(it.chain());
    let mut launcher = Launcher::new(chain.clone()).expect("a launcher");
    let mut rung = || session(&mut launcher).expect("a session").strategy;
    assert_eq!(rung(), Strategy::Installed);
    // The first bytes too: what is executed is what was built in, or nothing of this file.
    std::fs::write(&it.path, b"#!/bin/sh\necho other bytes\n").expect("overwritten");
    assert_eq!(rung(), Strategy::Memfd);
    assert_eq!(rung(), Strategy::Memfd);
    assert_eq!(chain.report().moves.len(), 1);
}

#[test]
fn touching_it_is_no_harm() {
    let it = install();
    let chain = it.chain();
    std::fs::set_permissions(&it.path, PermissionsExt::from_mode(0o755)).expect("chmod");
    assert_eq!(it.rung(&chain), Strategy::Installed);
}

#[test]
fn a_file_that_others_could_write_to_is_not_used() {
    type Spoil = fn(&Path);
    let spoils: [(&str, Spoil); 5] = [
        ("others than its owner may write to it", |path| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o775)).expect("chmod");
        }),
        ("others than its owner may write to it", |path| {
            let directory = path.parent().expect("has one");
            std::fs::set_permissions(directory, PermissionsExt::from_mode(0o777)).expect("chmod");
        }),
        ("does not belong to root", |path| {
            chown(path, Some(65534), None).expect("chown")
        }),
        ("has a set-id bit", |path| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o4755)).expect("chmod");
        }),
        ("it is another program than the one built in", |path| {
            let mut bytes = std::fs::read(path).expect("read");
            *bytes.last_mut().expect("not empty") ^= 1;
            std::fs::write(path, bytes).expect("written");
        }),
    ];
    for (reason, spoil) in spoils {
        let it = install();
        // The control: before it is spoilt it is used.
        assert_eq!(it.rung(&it.chain()), Strategy::Installed);
        spoil(&it.path);
        let chain = it.chain();
        assert_eq!(it.rung(&chain), Strategy::Memfd, "{reason}");
        let why = &chain.report().strategies[0].why;
        assert!(why.contains(reason), "{why}");
    }
}

/// An embedded image has no file to be the layer below; it gets one in memory or in a directory that is gone again.
#[test]
fn an_embedded_image_is_overlaid_too_and_leaves_nothing_behind() {
    let it = install();
    let directory = Place::below("/var/tmp");
    for place in [None, Some(directory.path.as_path())] {
        let source = Source::Embedded(it.embedded);
        let image = fleetgate_seal::Image::make(Strategy::Overlay, &source, c"fleetgate-session", place);
        let image = match (image, place) {
            (Ok(image), _) => image,
            // Only a kernel from 6.15 on takes a layer that is attached nowhere.
            (Err(refusal), None) => {
                assert_eq!(refusal.step, fleetgate_seal::Step::CreateOverlay);
                continue;
            }
            (Err(refusal), Some(_)) => panic!("{refusal}"),
        };
        let bytes = std::fs::read(format!("/proc/self/fd/{}", image.fd().raw())).expect("read");
        assert!(bytes == it.embedded.data);
        assert!(exe::is_read_only(image.fd()).expect("statfs"));
        assert_eq!(std::fs::read_dir(&directory.path).expect("listed").count(), 0);
    }
}

#[test]
fn the_package_makes_the_installed_rung_real() {
    let Some(deb) = installed::deb() else {
        return if std::env::var("FLEETGATE_SUBJECT").as_deref() == Ok("plain") {
            // Nothing is embedded, so there is nothing to compare an installed file with.
        } else {
            skip("there is no package: run this by `cargo xtask test`")
        };
    };
    let root = installed::Root::with(&deb);
    let doctor = || -> serde_json::Value {
        let out = root
            .command("/usr/bin/fleetgate")
            .args(["seal", "doctor", "--json"])
            .output();
        let (text, error, _) = said(&out.expect("it runs"));
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}{error}"))
    };
    let report = doctor();
    assert_eq!(report["current"], "installed", "{report:#}");
    let path = root.path().join(format!(
        "usr/lib/fleetgate/{}/fleetgate-session",
        installed::VERSION
    ));
    let mut bytes = std::fs::read(&path).expect("the package's file");
    *bytes.last_mut().expect("not empty") ^= 1;
    std::fs::write(&path, &bytes).expect("overwritten in place");
    let report = doctor();
    assert_eq!(report["current"], "memfd", "{report:#}");
    std::fs::remove_file(&path).expect("deleted");
    let report = doctor();
    assert_eq!(report["current"], "memfd", "{report:#}");
    assert_eq!(
        report["strategies"][0]["refusals"][0]["errno"], "ENOENT",
        "{report:#}"
    );
}
