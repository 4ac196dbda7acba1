//! The state, locks and signs of freshness: their form stays as it is, they are bounded, and a serial never goes back.

use super::{lock, name, state};
use crate::Invalid;
use crate::cluster::*;

#[test]
fn the_first_form_of_the_state_stays_as_it_is() {
    let golden = concat!(
        r#"{"version":1,"cluster":"prod","serial":7,"as_of":1800000000,"trust":{"user_ca":["dXNlcg==","bmV4dA=="],"#,
        r#""host_ca":["aG9zdA=="],"tls_ca":["dGxz"],"state_keys":["c3RhdGU="]"#,
        r#","retiring":[{"authority":"BAU=","since":1000,"until":2000}]},"roles":[{"name":"dba","#,
        r#""nodes":["env=prod,role=db","bastion*"],"logins":["{user}","postgres","postgres+db-*"],"containers":["app=db|cache","tier!=front"],"#,
        r#""kinds":["shell","sftp","terminal","forward"],"commands":["disk","load"],"command":{"vacuum":{"#,
        r#""argv":["/usr/bin/vacuumdb","--dbname","{a1}"],"#,
        r#""arguments":[{"name":"a1","form":"word"}],"timeout":"2m","environment":{"LC_ALL":"C"}}},"require_mfa":"15m","#,
        r#""require_trusted_device":true,"recording":"full","recording_failure":"go-on","onward_ssh":"refuse","recording_keep":"90d","#,
        r#""recordings":{"of":["{user}","web-*"],"nodes":["env=prod"],"logins":["root","root+*"],"may":["play","watch"]},"audit":"files","io_uring":"refuse","unwatched":"allow","lifetime":"8h","renewal":"90d","session":"1h","sessions":4,"#,
        r#""admin":true},{"name":"eu.dev","nodes":["env=dev"],"logins":["{user}"]}],"#,
        r#""locks":[{"id":"l1","target":{"kind":"login","name":"DOMAIN\\bob"},"serial_before":5,"expires":7,"#,
        r#""reason":"left","created":3,"by":"user root"}],"proxies":["proxy.example.com:443"]}"#,
    );
    assert_eq!(String::from_utf8(state().to_json()).unwrap(), golden);
    assert_eq!(State::parse_json(golden.as_bytes()).unwrap(), state());
    // An earlier one did not say what it retires.
    let retiring = r#","retiring":[{"authority":"BAU=","since":1000,"until":2000}]"#;
    let mut earlier = state();
    earlier.trust.retiring.clear();
    let text = golden.replacen(retiring, "", 1);
    assert_eq!(String::from_utf8(earlier.to_json()).unwrap(), text);
    assert_eq!(State::parse_json(text.as_bytes()).unwrap(), earlier);
    // A later cluster may say more, though not in a role or a lock.
    let later = golden.replacen('{', "{\"more\":[1],", 1);
    assert_eq!(State::parse_json(later.as_bytes()).unwrap(), state());
    for (from, to, want) in [
        (
            "\"version\":1",
            "\"version\":2",
            "the state: it has the form 2, and this fleetgate reads form 1: upgrade it",
        ),
        ("\"eu.dev\"", "\"dba\"", "the state: role dba stands there twice"),
        (
            "\"dXNlcg==\"",
            "\"dXNlcg\"",
            "the state: the key is no base64 at line 1 column 89",
        ),
        (
            "\"dXNlcg==\"",
            "\"\"",
            "the state: a key has 1 to 16384 bytes at line 1 column 83",
        ),
        (
            "\"kind\":\"login\"",
            "\"kind\":\"logn\"",
            "the state: lock l1: \"logn\" cannot be locked: name a user, node, login, role, device, proxy or session",
        ),
        ("left", "a\\nb", "the state: lock l1: its reason has '\\n' in it"),
        (
            "proxy.example",
            "proxy\\u0007.example",
            "the state: the address of a proxy has '\\u{7}' in it",
        ),
    ] {
        let text = golden.replacen(from, to, 1);
        assert_eq!(State::parse_json(text.as_bytes()).unwrap_err().to_string(), want);
    }
    for inside in ["{\"name\":\"dba\"", "{\"id\":\"l1\""] {
        let text = golden.replacen(inside, &inside.replace('{', "{\"deny\":1,"), 1);
        assert!(
            State::parse_json(text.as_bytes())
                .unwrap_err()
                .to_string()
                .contains("unknown field `deny`")
        );
    }
}

#[test]
fn locks_and_signs_of_freshness_come_back() {
    let mut plain = lock();
    (plain.serial_before, plain.expires) = (None, None);
    for target in [
        Target::User(name("a")),
        Target::Node(name("a")),
        Target::Role(name("a")),
        Target::Device(name("a")),
        Target::Proxy(name("a")),
    ] {
        plain.target = target;
        assert_eq!(Lock::parse_json(plain.to_json().as_bytes()).unwrap(), plain);
    }
    assert_eq!(Lock::parse_json(lock().to_json().as_bytes()).unwrap(), lock());
    let fresh = Fresh { serial: 7, as_of: 9 };
    assert_eq!(fresh.to_json(), b"{\"serial\":7,\"as_of\":9}");
    assert_eq!(Fresh::parse_json(&fresh.to_json()).unwrap(), fresh);
    assert!(Fresh::parse_json(b"{}").is_err());
    // Neither document's signature passes for the other's.
    assert_eq!(State::signed(b"{}"), b"fleetgate-state-v1{}");
    assert_eq!(Fresh::signed(b"{}"), b"fleetgate-fresh-v1{}");
}

#[test]
fn a_state_is_bounded() {
    let small = |change: &dyn Fn(&mut State)| {
        let mut state = State::new(name("c"));
        change(&mut state);
        State::parse_json(&state.to_json()).map_err(|why| why.to_string())
    };
    let locks = |count: usize| {
        move |state: &mut State| {
            state.locks = (0..count)
                .map(|i| Lock {
                    id: name(&format!("l{i}")),
                    ..lock()
                })
                .collect();
        }
    };
    let roles = |count: usize| {
        move |state: &mut State| {
            let made = (0..count).map(|i| Role::new(name(&format!("r{i}"))));
            state.roles = made.map(|role| (role.name.clone(), role)).collect();
        }
    };
    let proxies = |count: usize| move |state: &mut State| state.proxies = vec!["a:1".into(); count];
    let keys =
        |count: usize, size: usize| move |state: &mut State| state.trust.user_ca = vec![vec![1; size]; count];
    let reason = |bytes: usize| {
        move |state: &mut State| {
            let reason = "x".repeat(bytes);
            state.locks = Locks::new([Lock { reason, ..lock() }]);
        }
    };
    type Case<'a> = (&'a dyn Fn(&mut State), Option<&'static str>);
    let cases: [Case<'_>; 12] = [
        (&locks(MAX_LOCKS), None),
        (
            &locks(MAX_LOCKS + 1),
            Some("the state: it has 65537 locks, and there is room for 65536"),
        ),
        (&roles(MAX_CLUSTER_ROLES), None),
        (
            &roles(MAX_CLUSTER_ROLES + 1),
            Some("the state: it has 4097 roles, and there is room for 4096"),
        ),
        (&proxies(MAX_PROXIES), None),
        (
            &proxies(MAX_PROXIES + 1),
            Some("the state: it has 257 proxies, and there is room for 256"),
        ),
        (&keys(MAX_TRUSTED, 1), None),
        (
            &keys(MAX_TRUSTED + 1, 1),
            Some("the state: it has 17 user authorities, and there is room for 16"),
        ),
        (&keys(1, MAX_KEY), None),
        (&keys(1, MAX_KEY + 1), Some("a key has 1 to 16384 bytes")),
        (&reason(MAX_REASON), None),
        (
            &reason(MAX_REASON + 1),
            Some("its reason is longer than 1024 bytes"),
        ),
    ];
    for (i, (change, want)) in cases.into_iter().enumerate() {
        match (small(change), want) {
            (Ok(_), None) => {}
            (Err(why), Some(want)) => assert!(why.contains(want), "case {i}: {why}"),
            (got, want) => panic!("case {i}: {want:?}, and it was {:?}", got.map(drop)),
        }
    }
    let mut text = State::new(name("c")).to_json();
    text.resize(MAX_STATE, b' ');
    assert!(State::parse_json(&text).is_ok());
    text.push(b' ');
    assert_eq!(
        State::parse_json(&text).unwrap_err().to_string(),
        "the state is longer than 16777216 bytes"
    );
}

#[test]
fn a_serial_never_goes_back() {
    let at = |serial: u64, as_of: u64| {
        let mut state = State::new(name("c"));
        (state.serial, state.as_of) = (serial, as_of);
        state
    };
    let here = at(5, 100);
    for (new, want) in [
        (at(6, 100), Ok(())),
        (at(6, 90), Ok(())),
        (at(5, 100), Ok(())),
        (at(5, 160), Ok(())),
        (
            at(4, 200),
            Err(
                "the state has the serial 4 of 200, and 5 of 100 is known already: somebody sends an old one",
            ),
        ),
        (
            at(5, 99),
            Err("the state has the serial 5 of 99, and 5 of 100 is known already: somebody sends an old one"),
        ),
    ] {
        assert_eq!(
            here.follows(&new),
            want.map_err(|why: &str| Invalid(why.to_string()))
        );
    }
    let mut other = at(9, 900);
    other.cluster = name("d");
    assert_eq!(
        here.follows(&other).unwrap_err().to_string(),
        "the state is of the cluster d, and this machine belongs to c"
    );
    let mut here = here;
    here.refresh(&Fresh {
        serial: 5,
        as_of: 160,
    })
    .unwrap();
    here.refresh(&Fresh {
        serial: 5,
        as_of: 130,
    })
    .unwrap();
    assert_eq!((here.as_of, here.age(200), here.age(100)), (160, 40, 0));
    assert!(
        here.refresh(&Fresh {
            serial: 6,
            as_of: 170
        })
        .is_err()
    );
}

#[test]
fn machines_renew_in_the_first_half_of_what_is_left_of_an_authority() {
    let of = |since, until| Retiring {
        authority: Vec::new(),
        since,
        until,
    };
    assert_eq!(of(1_000, 1_060).due(0), 1_000);
    assert_eq!(of(1_000, 1_060).due(u32::MAX / 2), 1_014);
    assert_eq!(of(1_000, 1_060).due(u32::MAX), 1_029);
    assert_eq!(of(1_000, 900).due(u32::MAX), 1_000);
}
