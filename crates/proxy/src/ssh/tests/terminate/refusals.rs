//! What no role allows, who cannot be served, and hosts that are not the registered ones.

use super::{Keyless, program, run, scene};
use crate::ssh::terminate::serve;
use crate::ssh::tests::world::Client;
use fleetgate_policy::Kind;
use fleetgate_policy::cluster::Limits;
use fleetgate_ssh::event::{ChannelKind, Event, Request};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::duplex;

#[test]
fn what_no_role_allows_is_refused_and_told() {
    run(async || {
        let mut s = scene(&[Kind::Shell, Kind::ConnectTcp], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        s.host.ending.set(true);
        // As a program that says why, since clients show nothing of a request that failed.
        let (done, words, code) = program(&mut s, &Request::Shell).await;
        assert!(done && words.contains("role access"), "{words}");
        assert_eq!(code, Some(255));
        let to = ChannelKind::DirectTcpip {
            host: b"db".to_vec(),
            port: 1,
            origin: Vec::new(),
            origin_port: 0,
        };
        s.client.end.core.open(&to).expect("open");
        let words = s.client.until(|_, e| match e {
            Event::OpenFailed { text, .. } => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        });
        let words = words.await.expect("words");
        assert!(words.contains("role access"), "{words}");
        let told = s.host.told.borrow();
        assert_eq!(
            told.iter().filter(|t| t.contains("Denied")).count(),
            2,
            "{told:?}"
        );
    });
}

#[test]
fn each_session_is_decided_anew_and_held_to_its_roles_limits() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let command = b"uptime".to_vec();
        let exec = Request::Exec { command };
        s.host.limits.borrow_mut().sessions = Some(1);
        assert!(program(&mut s, &exec).await.0);
        s.host.ending.set(true);
        let (_, words, code) = program(&mut s, &exec).await;
        assert!(words.contains("at most 1 sessions by its roles"), "{words}");
        assert_eq!(code, Some(255));
        // A role that changes counts for what comes next.
        *s.host.limits.borrow_mut() = Limits::default();
        s.host.forbidden.borrow_mut().push(Kind::Exec);
        let (_, words, _) = program(&mut s, &exec).await;
        assert!(words.contains("role access"), "{words}");
        s.host.forbidden.borrow_mut().clear();
        s.host.limits.borrow_mut().session = Some(Duration::ZERO);
        let (_, words, _) = program(&mut s, &exec).await;
        assert!(
            words.contains("a session of more than 0 s is not allowed by its roles"),
            "{words}"
        );
        // One whose end somebody orders ends with his words.
        *s.host.limits.borrow_mut() = Limits::default();
        let (order, ordered) = tokio::sync::oneshot::channel();
        *s.host.order.borrow_mut() = Some(ordered);
        order
            .send("the session was ended by user bob".to_owned())
            .expect("somebody waits");
        let (_, words, _) = program(&mut s, &exec).await;
        assert!(words.contains("was ended by user bob"), "{words}");
        // And what runs since before goes on.
        s.host.ending.set(false);
        *s.host.limits.borrow_mut() = Limits::default();
        assert!(program(&mut s, &exec).await.0);
        let told = s.host.told.borrow();
        let count = |what: &str| told.iter().filter(|t| t.contains(what)).count();
        assert_eq!((count("Began"), count("Denied")), (4, 4), "{told:?}");
    });
}

#[test]
fn who_cannot_be_served_is_told_why() {
    run(async || {
        let mut s = scene(&[], true).await;
        // The control: with a key it goes on.
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let (ours, far) = duplex(64 * 1024);
        let keyless = Rc::new(Keyless(s.host.clone()));
        let source = "192.0.2.7:4000".parse().expect("an address");
        let mut client = Client::new(ours);
        let served = tokio::task::spawn_local(serve(far, source, keyless));
        let end = client.until(|_, _| None::<()>).await;
        let end = end.expect_err("it ends");
        assert!(end.contains("auth is away"), "{end}");
        drop(client);
        assert_eq!(served.await.expect("served"), "auth is away");
    });
}

#[test]
fn a_host_key_that_is_not_the_registered_one_ends_it_with_a_sentence() {
    run(async || {
        let mut s = scene(&[], false).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let end = s.client.until(|_, _| None::<()>).await.expect_err("it ends");
        assert!(
            end.contains("old1: its host key is not the registered one"),
            "{end}"
        );
    });
}

#[test]
fn of_many_refusals_the_first_are_told_and_the_number_of_the_others() {
    run(async || {
        let mut s = scene(&[Kind::ConnectTcp], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let to = ChannelKind::DirectTcpip {
            host: b"db".to_vec(),
            port: 1,
            origin: Vec::new(),
            origin_port: 0,
        };
        for _ in 0..150 {
            s.client.end.core.open(&to).expect("open");
            let failed = s
                .client
                .until(|_, e| matches!(e, Event::OpenFailed { .. }).then_some(()));
            failed.await.expect("refused");
        }
        drop(s.client);
        let told = || {
            s.host
                .told
                .borrow()
                .iter()
                .filter(|t| t.contains("Denied"))
                .count()
        };
        let is_out = || s.host.told.borrow().iter().any(|t| t.contains(": Out("));
        while !is_out() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(told(), 101);
        let told = s.host.told.borrow();
        assert!(told.iter().any(|t| t.contains("50 further refusals")), "{told:?}");
    });
}
