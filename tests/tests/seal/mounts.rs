//! Overlays that are attached nowhere wake nobody who watches the mount table.

use fleetgate_seal::{Image, Source, Strategy};
use fleetgate_sys::{Fd, mount, poll};
use fleetgate_tests::seal::{Place, play, plays, said, seal_run};
use fleetgate_tests::world::c_path;
use fleetgate_tests::{helper, test_name};

/// Whether the mount table changed since the last look; waits for it up to `ms`.
fn changed(table: &Fd, ms: u32) -> bool {
    let mut watch = [poll::Watch::new(table.raw(), poll::PRIORITY)];
    poll::poll(&mut watch, Some(ms)).expect("poll") > 0 && watch[0].happened() & poll::PRIORITY != 0
}

#[test]
fn five_hundred_overlays_at_once_are_no_mount_event() {
    if !plays("inside") {
        // A mount table of our own: what others mount meanwhile is not our event.
        let before = ["unshare", "--mount", "--propagation", "private"];
        let test = test_name(module_path!(), "five_hundred_overlays_at_once_are_no_mount_event");
        let out = play(&before, &test, "inside").output().expect("unshare");
        assert!(out.status.success(), "{}{}", said(&out).0, said(&out).1);
        return;
    }
    let table = Fd::from(std::fs::File::open("/proc/self/mountinfo").expect("a mount table"));
    let before = std::fs::read_to_string("/proc/self/mountinfo").expect("read");
    changed(&table, 0);
    let source = Source::File(helper());
    let images: Vec<Image> = std::thread::scope(|scope| {
        let make = || {
            let one = |_| Image::make(Strategy::Overlay, &source, c"x", None).expect("an overlay");
            (0..63).map(one).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().expect("no panic"))
            .collect()
    });
    assert!(images.len() >= 500);
    assert!(!changed(&table, 0), "making overlays changed the mount table");
    assert_eq!(
        std::fs::read_to_string("/proc/self/mountinfo").expect("read"),
        before
    );
    drop(images);
    let runs: Vec<_> = (0..20)
        .map(|_| {
            seal_run(Some("overlay"))
                .arg("/bin/true")
                .spawn()
                .expect("starts")
        })
        .collect();
    for mut run in runs {
        assert!(run.wait().expect("ends").success());
    }
    assert!(!changed(&table, 0), "closing overlays changed the mount table");
    // The control: one real mount is seen.
    let place = Place::below("/var/tmp");
    let here = c_path(&place.path);
    mount::bind(&here, &here).expect("a bind mount");
    assert!(changed(&table, 60_000), "a mount is an event");
    assert!(!changed(&table, 0), "and one event only");
    let _ = std::process::Command::new("umount").arg(&place.path).status();
}
