//! Many commands in many containers at once, as probes make them: nobody who watches mounts is woken, and nothing is left.

use fleetgate_sys::{Fd, poll};
use fleetgate_tests::containers::{Container, Machine, errors};
use fleetgate_tests::folder::Folder;
use fleetgate_tests::needs_root;
use fleetgate_tests::world::wait_until;

const CONTAINERS: usize = 48;
/// Commands in each: more than a thousand.
const EACH: usize = 21;
/// Under way at a time.
const AT_A_TIME: usize = 8;

/// Whether the table of mounts changed since the last look.
fn has_changed(table: &Fd) -> bool {
    let mut watch = [poll::Watch::new(table.raw(), poll::PRIORITY)];
    poll::poll(&mut watch, Some(0)).expect("poll") > 0 && watch[0].happened() & poll::PRIORITY != 0
}

#[test]
fn a_thousand_commands_in_many_containers_are_no_mount_event() {
    needs_root!("containers");
    let folder = Folder::new();
    let machine = Machine::with_a_small_program(&folder);
    let containers: Vec<Container> = (0..CONTAINERS)
        .map(|_| Container::beside(machine.first))
        .collect();
    // The last ones may still be on their way to their program.
    wait_until("all containers sleep", || {
        let all = machine.processes();
        all.iter().filter(|(_, words)| words == "sleep 600").count() > CONTAINERS
    });
    let before = machine.traces();
    let table = std::fs::File::open(format!("/proc/{}/mountinfo", machine.first)).expect("it runs");
    let table = Fd::from(table);
    has_changed(&table);
    std::thread::scope(|scope| {
        for some in containers.chunks(CONTAINERS.div_ceil(AT_A_TIME)) {
            scope.spawn(move || {
                for container in some.iter().cycle().take(some.len() * EACH) {
                    let out = container.exec(&[], &["true"]);
                    assert!(out.status.success(), "{}", errors(&out));
                }
            });
        }
    });
    assert!(
        !has_changed(&table),
        "a command in a container changed the table of mounts"
    );
    machine.returns_to(&before);
    // The control: a real mount is seen.
    machine.says(&["mount", "-t", "tmpfs", "none", "/mnt"]);
    assert!(has_changed(&table), "a mount is an event");
    machine.says(&["umount", "/mnt"]);
}
