//! Tickets and numbers: what is in use, what is answered, what is forgotten.

use super::*;
use fleetgate_sys::poll::{READ, Watch, poll};
use fleetgate_wire::Failure;
use fleetgate_wire::net::Request;

fn connect() -> What {
    What::Connect {
        host: c"db".into(),
        port: 1,
        timeout_ms: 1,
    }
}

fn accept() -> What {
    What::Accept {
        host: c"".into(),
        port: 1,
        backlog: 1,
    }
}

/// A helper that runs, and the end at which its process would be.
fn running() -> (Helper, Fd) {
    let (ours, theirs) = socket::pair().expect("a pair");
    let mut helper = Helper::new(7, AccountName::parse(b"ada").expect("a name"), None);
    helper.run(1, ours);
    (helper, theirs)
}

/// What was sent to the process.
fn sent(theirs: &Fd) -> Vec<Request> {
    let mut all = Vec::new();
    let mut buffer = [0; 2048];
    while let Ok(got) = socket::receive(theirs, &mut buffer, false) {
        all.push(fleetgate_wire::decode(&buffer[..got.len]).expect("a request"));
    }
    all
}

#[test]
fn numbers_of_fronts_are_not_the_helpers() {
    let (mut helper, theirs) = running();
    for ticket in [900, 5, 77] {
        helper.accept(ticket, connect(), 8).expect("accepted");
    }
    for (ticket, reason) in [(5, Reason::BadRequest), (0, Reason::BadRequest)] {
        assert_eq!(
            helper.accept(ticket, connect(), 8).map_err(|(r, _)| r),
            Err(reason)
        );
    }
    helper.flush().expect("sent");
    assert_eq!(sent(&theirs).iter().map(|r| r.id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(helper.unanswered(), [5, 77, 900]);
    let done = Done::Connected { peer: None };
    assert_eq!(helper.answered(2, &done).map(|a| a.ticket), Some(5));
    assert_eq!(helper.answered(2, &done), None, "answered once");
    assert_eq!(helper.unanswered(), [77, 900]);
    helper.accept(5, connect(), 8).expect("free again");
}

#[test]
fn listeners_stay_until_they_are_cancelled() {
    let (mut helper, theirs) = running();
    helper.accept(10, accept(), 2).expect("accepted");
    helper.accept(11, What::AgentSocket, 2).expect("accepted");
    assert_eq!(
        helper.accept(12, accept(), 2).map_err(|(r, _)| r),
        Err(Reason::TooMany)
    );
    let path = Done::UnixListening {
        path: c"/tmp/a".into(),
    };
    assert!(
        helper
            .answered(1, &Done::Listening { local: Vec::new() })
            .is_some()
    );
    assert!(helper.answered(2, &path).is_some());
    assert_eq!(helper.listening(11), Some(&ListenerName::Path(c"/tmp/a".into())));
    assert_eq!((helper.listening(10), helper.listening(12)), (None, None));
    let peer = fleetgate_wire::common::Endpoint {
        address: [0; 16],
        scope: 0,
        port: 1,
    };
    for _ in 0..2 {
        let accepted = Done::Accepted {
            peer: peer.clone(),
            local: 0,
        };
        assert_eq!(helper.answered(1, &accepted).map(|a| a.ticket), Some(10));
    }
    assert_eq!(
        helper.accept(13, What::Cancel { of: 99 }, 2).map_err(|(r, _)| r),
        Err(Reason::Missing)
    );
    helper.accept(13, What::Cancel { of: 10 }, 2).expect("accepted");
    helper.flush().expect("sent");
    assert_eq!(sent(&theirs).pop().map(|r| r.what), Some(What::Cancel { of: 1 }));
    assert_eq!(helper.answered(3, &Done::Cancelled).map(|a| a.ticket), Some(13));
    helper
        .accept(10, accept(), 2)
        .expect("its number and its place are free");
}

#[test]
fn unanswered_requests_are_bounded() {
    let (mut helper, _theirs) = running();
    for ticket in 1..=MAX_UNANSWERED as u32 {
        helper.accept(ticket, connect(), 8).expect("accepted");
    }
    let refused = helper.accept(100_000, connect(), 8).map_err(|(r, _)| r);
    assert_eq!(refused, Err(Reason::TooMany));
    // The socket has not room for all: what is left goes when the process has read.
    helper.flush().expect("sent");
    let failed = Done::Failed {
        failure: Failure {
            reason: Reason::Missing,
            errno: 0,
            subject: CString::default(),
        },
    };
    assert!(helper.answered(1, &failed).is_some());
    helper.accept(100_000, connect(), 8).expect("room again");
}

#[test]
fn what_a_helper_says_wrongly_is_its_end() {
    let response = |id, done| fleetgate_wire::encode(&Response { id, done });
    let gave_up = Done::Failed {
        failure: Failure {
            reason: Reason::BadRequest,
            errno: 0,
            subject: c"twice".into(),
        },
    };
    for (frame, said) in [
        (
            Some(b"garbage".to_vec()),
            "its answer cannot be read: the message is not one of our frames",
        ),
        (
            Some(response(HELPER, gave_up)),
            "it gave up: twice (BadRequest, error 0)",
        ),
        (None, "it ended"),
    ] {
        let (mut helper, theirs) = running();
        assert!(matches!(helper.hear(), Ok(None)));
        match frame {
            Some(frame) => socket::send(&theirs, &frame, &[]).expect("sent"),
            None => fleetgate_sys::net::shut(&theirs).expect("shut"),
        }
        assert_eq!(helper.hear().map(|_| ()), Err(said.to_owned()));
    }
    // A good answer, for comparison.
    let (mut helper, theirs) = running();
    socket::send(&theirs, &response(1, Done::Cancelled), &[]).expect("sent");
    if let State::Running { control, .. } = &helper.state {
        assert_eq!(poll(&mut [Watch::new(control.raw(), READ)], Some(10_000)), Ok(1));
    }
    assert!(matches!(
        helper.hear(),
        Ok(Some((
            Response {
                id: 1,
                done: Done::Cancelled
            },
            _
        )))
    ));
}
