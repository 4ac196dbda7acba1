//! `fleetgate up` beside roles that say too much, cannot be started again, or do not end.

use super::*;

/// A role as it is while its process has not said that it is ready, and the process's end of its socket.
fn starting(directory: &Path) -> (Service, UnixDatagram) {
    let mut service = Service::new(Role::Proxy, &[], Path::new("/nowhere"));
    let address = directory.join("said");
    let socket = UnixDatagram::bind(&address).expect("bound");
    socket.set_nonblocking(true).expect("set");
    let ours = UnixDatagram::unbound().expect("made");
    ours.connect(&address).expect("connected");
    ours.set_nonblocking(true).expect("set");
    let child = Command::new("true").spawn().expect("spawned");
    let pidfd = process::pidfd_open(child.id() as i32).expect("not reaped");
    service.state = State::Starting(Running {
        child,
        pidfd,
        since: Instant::now(),
        socket: Fd::from(OwnedFd::from(socket)),
        stops: false,
    });
    (service, ours)
}

/// A role that says more than anybody can hear keeps nobody else from being heard: a turn has an end, and what is left is
/// heard at the next one.
#[test]
fn a_role_that_says_without_end_is_heard_in_turns() {
    let place = Place::make().expect("a directory");
    let (mut service, says) = starting(&place.0);
    let mut said = 0;
    let mut heard = 0;
    for _ in 0..3 {
        while says.send(format!("STATUS={said}").as_bytes()).is_ok() {
            said += 1;
        }
        let before = heard;
        service.hear(&Notify::from_environment());
        heard = service.status.parse::<usize>().expect("a number") + 1;
        assert!(heard - before <= MESSAGES, "{heard} of {said}");
        assert!(heard > before, "nothing was heard");
    }
    while heard < said {
        service.hear(&Notify::from_environment());
        heard = service.status.parse::<usize>().expect("a number") + 1;
    }
    says.send(b"READY=1").expect("there is room");
    assert!(service.hear(&Notify::from_environment()).ready);
}

/// What cannot be started a second time is tried again: the other roles go on.
#[test]
fn a_role_that_cannot_be_started_again_ends_nobody() {
    let place = Place::make().expect("a directory");
    let (mut service, _says) = starting(&place.0);
    service.proven = true;
    service.state = State::Pausing(Instant::now());
    let gone = place.0.clone();
    fs::remove_dir_all(&gone).expect("removed");
    let mut up = Up {
        services: vec![service],
        place,
        leaving: Vec::new(),
        signals: signals::descriptor(&[signals::HUP]).expect("taken"),
        manager: Notify::from_environment(),
        ending: None,
        all: false,
        announced: false,
    };
    let before = Instant::now();
    up.start_what_is_due().expect("it is tried again");
    assert!(matches!(up.services[0].state, State::Pausing(until) if until > before));
}

/// A process that drains longer than it may is killed.
#[test]
fn what_drains_for_longer_than_it_may_is_killed() {
    let place = Place::make().expect("a directory");
    let child = Command::new("sleep").arg("600").spawn().expect("spawned");
    let pidfd = process::pidfd_open(child.id() as i32).expect("it lives");
    let socket = UnixDatagram::unbound().expect("made");
    let mut up = Up {
        services: Vec::new(),
        place,
        leaving: vec![Leaving {
            role: Role::Proxy,
            running: Running {
                child,
                pidfd,
                since: Instant::now(),
                socket: Fd::from(OwnedFd::from(socket)),
                stops: true,
            },
            until: Instant::now(),
        }],
        signals: signals::descriptor(&[signals::HUP]).expect("taken"),
        manager: Notify::from_environment(),
        ending: None,
        all: false,
        announced: false,
    };
    up.look_for_leavers();
    up.wait().expect("its end is seen");
    up.look_for_leavers();
    assert!(up.leaving.is_empty());
}

/// A role that was ready once and hangs at a later start is killed and started again. The others go on.
#[test]
fn a_role_that_hangs_when_it_is_started_again_is_killed() {
    let place = Place::make().expect("a directory");
    let (mut service, _says) = starting(&place.0);
    service.proven = true;
    let State::Starting(running) = &mut service.state else {
        unreachable!("it was made so");
    };
    running.child = Command::new("sleep").arg("600").spawn().expect("spawned");
    running.pidfd = process::pidfd_open(running.child.id() as i32).expect("it lives");
    running.since = Instant::now()
        .checked_sub(START)
        .expect("since the machine's start");
    let mut up = Up {
        services: vec![service],
        place,
        leaving: Vec::new(),
        signals: signals::descriptor(&[signals::HUP]).expect("taken"),
        manager: Notify::from_environment(),
        ending: None,
        all: false,
        announced: false,
    };
    up.start_what_is_due().expect("the others go on");
    let pidfd = &up.services[0].running().expect("not reaped").pidfd;
    let died = poll::poll(&mut [Watch::new(pidfd.raw(), poll::READ)], Some(10_000));
    assert!(died.expect("polled") > 0, "it was not killed");
    up.look_for_death(0).expect("the others go on");
    assert!(matches!(up.services[0].state, State::Pausing(_)));
}

#[test]
fn a_process_that_cannot_be_watched_is_not_left_behind() {
    let child = Command::new("sleep").arg("600").spawn().expect("spawned");
    let process = PathBuf::from(format!("/proc/{}", child.id()));
    let told = watched(child, |_| Err(Errno::EMFILE));
    assert!(matches!(told, Err(Errno::EMFILE)));
    assert!(!process.exists(), "it lives on");
}
