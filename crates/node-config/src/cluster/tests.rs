//! What a cluster signs is believed, and nothing else.

use super::*;
use crate::testing::{Card, Hand, joined, key, name, sign};
use fleetgate_policy::cluster::{Locks, Reason, RecordingReceipt};
use fleetgate_policy::{Kind, Permits};
use fleetgate_ssh::key::{Certificate, PrivateKey};

#[test]
fn what_is_signed_is_believed_and_nothing_else() {
    let mut hand = Hand::new();
    let mut cluster = hand.cluster();
    let old = hand.signed();
    let other = key();
    let receive = |cluster: &mut Cluster, signed: &SignedState| {
        cluster.receive_state(&signed.document, &signed.signature)
    };

    assert_eq!(receive(&mut cluster, &old), Ok(Change::None));
    let second = hand.next(|state| state.proxies = vec!["other:443".into()]);
    assert_eq!(receive(&mut cluster, &second), Ok(Change::State));
    assert_eq!(cluster.state().proxies, ["other:443"]);
    assert_eq!(cluster.signed(), &second);

    let forged = sign(&other, hand.next(|_| {}).document, State::signed);
    let unsigned = SignedState {
        signature: Vec::new(),
        ..hand.signed()
    };
    let changed = SignedState {
        document: String::from_utf8(hand.signed().document)
            .expect("text")
            .replace("other:443", "wrong:443")
            .into_bytes(),
        ..hand.signed()
    };
    // A sign of freshness is signed with the same key, over other words.
    let crossed = sign(&hand.state_key, hand.state.to_json(), Fresh::signed);
    let foreign = {
        let mut state = hand.state.clone();
        state.cluster = name("elsewhere");
        state.serial += 1;
        sign(&hand.state_key, state.to_json(), State::signed)
    };
    let no_key = {
        let mut state = hand.state.clone();
        state.trust.user_ca = vec![b"no key".to_vec()];
        sign(&hand.state_key, state.to_json(), State::signed)
    };
    for (signed, part) in [
        (&old, "somebody sends an old one"),
        (&forged, "not signed by a key"),
        (&unsigned, "the state's signature"),
        (&changed, "not signed by a key"),
        (&crossed, "not signed by a key"),
        (
            &foreign,
            "the state is of the cluster elsewhere, and this machine belongs to home",
        ),
        (&no_key, "a user authority"),
    ] {
        let error = receive(&mut cluster, signed).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(cluster.signed(), &second, "{part}");
    }
    // The control of all of them.
    assert_eq!(receive(&mut cluster, &hand.signed()), Ok(Change::State));

    // Its keys change: the old one signs the state that names the new one.
    let rotated = hand.next(|state| state.trust.state_keys = vec![other.public().blob().to_vec()]);
    assert_eq!(receive(&mut cluster, &rotated), Ok(Change::State));
    let by_old = hand.next(|_| {});
    assert!(receive(&mut cluster, &by_old).is_err());
    let by_new = sign(&other, by_old.document, State::signed);
    assert_eq!(receive(&mut cluster, &by_new), Ok(Change::State));
}

#[test]
fn a_state_grows_old_and_is_refreshed() {
    let hand = Hand::new();
    let mut cluster = hand.cluster();
    let fresh =
        |serial: u64, as_of: u64| sign(&hand.state_key, Fresh { serial, as_of }.to_json(), Fresh::signed);
    assert_eq!(cluster.grows_old(1000 + STALE), None);
    let words = cluster.grows_old(1001 + STALE).expect("it is old");
    assert!(words.contains("301 s ago"), "{words}");
    assert_eq!(cluster.grows_old(1500), None, "said once");
    let newer = fresh(1, 1400);
    assert_eq!(cluster.receive_fresh(&newer.document, &newer.signature), Ok(()));
    assert_eq!(cluster.age(1500), 100);
    assert_eq!(
        cluster.grows_old(1500).as_deref(),
        Some("the cluster's state is up to date again")
    );
    for signed in [
        fresh(2, 1400),
        sign(&key(), newer.document.clone(), Fresh::signed),
        sign(&hand.state_key, newer.document, State::signed),
    ] {
        assert!(
            cluster
                .receive_fresh(&signed.document, &signed.signature)
                .is_err()
        );
    }
}

#[test]
fn who_joined_another_cluster_has_to_join_again() {
    let hand = Hand::new();
    let error = Cluster::new(&joined("elsewhere"), hand.signed())
        .expect_err("another")
        .to_string();
    assert!(error.contains("join again"), "{error}");
    let forged = sign(&key(), hand.state.to_json(), State::signed);
    assert!(Cluster::new(&joined("home"), forged).is_err());
}

#[test]
fn locks_of_node_and_login_are_for_everybody() {
    let mut hand = Hand::new();
    let mut cluster = hand.cluster();
    assert!(cluster.locked("ada", 2000).is_none());
    let lock = |target| Lock {
        id: name("l1"),
        target,
        serial_before: None,
        expires: None,
        reason: String::new(),
        created: 0,
        by: String::new(),
    };
    for (target, ada, bob) in [
        (Target::Node(name("web1")), true, true),
        (Target::Node(name("web2")), false, false),
        (Target::Login("ada".into()), true, false),
        (Target::User(name("ada")), false, false),
    ] {
        let signed = hand.next(|state| state.locks = Locks::new([lock(target.clone())]));
        cluster
            .receive_state(&signed.document, &signed.signature)
            .expect("newer");
        assert_eq!(cluster.locked("ada", 2000).is_some(), ada, "{target}");
        assert_eq!(cluster.locked("bob", 2000).is_some(), bob, "{target}");
    }
}

#[test]
fn a_member_is_who_the_certificate_says_and_is_decided_about_again() {
    const NOW: u64 = 2000;
    let mut hand = Hand::new().with_role("dev", "{user}", |role| {
        role.require_mfa = Some(std::time::Duration::from_secs(900));
        role.kinds = vec![Kind::Shell];
    });
    let mut cluster = hand.cluster();
    let (key, ca) = (key(), &hand.user_ca);
    let mut card = Card::of(NOW);
    card.identity.mfa = Some(NOW);
    let certificate = card.sign(key.public(), ca);
    let decide = |certificate: &Certificate, now| {
        ClusterLogin::decide(
            certificate,
            &cluster,
            "ada",
            ContainerLabels::NoContainers,
            now,
            60,
        )
    };
    let mut cluster_login = decide(&certificate, NOW)
        .expect("of the cluster")
        .expect("allowed");
    assert_eq!(cluster_login.user(), Some(&name("ada")));
    let permits = cluster_login.within(Permits::all()).expect("no force");
    assert!(permits.allow_kind(Kind::Shell).is_ok() && permits.allow_kind(Kind::Exec).is_err());
    let refusal = decide(&certificate, NOW + 961)
        .expect("of the cluster")
        .expect_err("too old");
    assert_eq!(refusal.reason, Reason::Mfa);
    let over = decide(&certificate, NOW + 3660)
        .expect("of the cluster")
        .expect_err("over");
    assert_eq!(over.reason, Reason::Expired);

    card.extension = false;
    let plain = card.sign(key.public(), ca);
    let error = decide(&plain, NOW).expect_err("no identity").to_string();
    assert!(error.contains("identity@fleetgate"), "{error}");

    assert_eq!(
        cluster_login.decide_again(&cluster, "ada", ContainerLabels::NoContainers, NOW + 960, 60),
        Ok(false)
    );
    assert!(
        cluster_login
            .decide_again(&cluster, "ada", ContainerLabels::NoContainers, NOW + 961, 60)
            .is_err()
    );
    // The role changes: what is allowed is another thing from the next order on.
    let signed = hand.next(|state| {
        for role in state.roles.values_mut() {
            role.kinds = vec![Kind::Exec];
        }
    });
    cluster
        .receive_state(&signed.document, &signed.signature)
        .expect("newer");
    assert_eq!(
        cluster_login.decide_again(&cluster, "ada", ContainerLabels::NoContainers, NOW, 60),
        Ok(true)
    );
    let permits = cluster_login.within(Permits::all()).expect("no force");
    assert!(permits.allow_kind(Kind::Shell).is_err() && permits.allow_kind(Kind::Exec).is_ok());
}

#[test]
fn a_machine_knows_by_the_state_that_it_was_removed() {
    let lock = |id: &str, node: &str, serial_before| Lock {
        id: name(id),
        target: Target::Node(name(node)),
        serial_before,
        expires: Some(5000),
        reason: "it was removed".to_owned(),
        created: 1000,
        by: "ada".to_owned(),
    };
    for (lock, serial, is_removed) in [
        (lock("removed-web1", "web1", Some(2000)), Some(1000), true),
        // It joined again since.
        (lock("removed-web1", "web1", Some(2000)), Some(2000), false),
        (lock("removed-web2", "web2", Some(2000)), Some(1000), false),
        // It is locked, and comes back when the lock is removed.
        (lock("maintenance", "web1", None), Some(1000), false),
        (lock("removed-web1", "web1", Some(2000)), None, false),
    ] {
        let mut hand = Hand::new();
        let mut cluster = hand.cluster();
        cluster.serial = serial;
        let case = format!("{lock:?}, {serial:?}");
        assert!(!cluster.is_removed(1500), "{case}");
        let signed = hand.next(|state| state.locks = Locks::new([lock]));
        assert_eq!(
            cluster.receive_state(&signed.document, &signed.signature),
            Ok(Change::State)
        );
        assert_eq!(cluster.is_removed(1500), is_removed, "{case}");
        let words = cluster.removal(1500).map(|lock| lock.refusal().words);
        let removed = "node web1 was removed: join again with a new token (fleetgate token add)";
        assert_eq!(words.as_deref(), is_removed.then_some(removed), "{case}");
        assert!(!cluster.is_removed(5000), "{case}: its time is over");
    }
}

#[test]
fn the_same_cluster_is_known_by_its_keys_and_not_by_its_name() {
    let directory = std::env::temp_dir().join(format!("fleetgate-same-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let (mut hand, other) = (Hand::new(), Hand::new());
    assert!(!is_of_the_same(&directory, &hand.signed()), "it joined none");
    hand.signed().save(&directory).expect("written");
    let next = hand.next(|_| ());
    assert!(is_of_the_same(&directory, &next));
    assert!(!is_of_the_same(&directory, &other.signed()));
    std::fs::remove_dir_all(&directory).expect("clean");
}

#[test]
fn a_receipt_counts_for_this_nodes_own_recording_and_by_a_key_that_is_known() {
    let mut hand = Hand::new();
    let mut cluster = hand.cluster();
    let (session, chain, next) = ([7; 16], [1; 32], key());
    let ends = [(900, [2; 32]), (1000, chain)];
    let signed = |key: &PrivateKey, change: &dyn Fn(&mut RecordingReceipt<'_>)| {
        let mut receipt = RecordingReceipt {
            session: &session,
            length: 1000,
            chain: &chain,
            node: "web1",
        };
        change(&mut receipt);
        key.sign("ssh-ed25519", &receipt.signed()).expect("signed")
    };
    let right = signed(&hand.state_key, &|_| {});
    let check = |cluster: &Cluster, signature: &[u8]| cluster.receipts().check(&session, &ends, signature);
    assert_eq!(check(&cluster, &right), Ok(()));
    let document = hand.state.to_json();
    for (wrong, what) in [
        (Vec::new(), "none"),
        (b"kept".to_vec(), "no signature"),
        (signed(&hand.user_ca, &|_| {}), "another key"),
        (
            signed(&hand.state_key, &|receipt| receipt.node = "web2"),
            "another node",
        ),
        (
            signed(&hand.state_key, &|receipt| receipt.session = &[8; 16]),
            "another session",
        ),
        (
            signed(&hand.state_key, &|receipt| receipt.chain = &[3; 32]),
            "other content",
        ),
        (
            signed(&hand.state_key, &|receipt| receipt.length = 900),
            "the hash of another place",
        ),
        (
            sign(&hand.state_key, document, State::signed).signature,
            "another document",
        ),
    ] {
        let error = check(&cluster, &wrong).expect_err(what).to_string();
        assert!(error.contains("receipt"), "{what}: {error}");
    }
    let nothing = cluster.receipts().check(&session, &[], &right);
    assert!(nothing.is_err(), "of one that is not whole");
    // The next key: first it is not known, and then both are.
    let by_next = signed(&next, &|_| {});
    assert!(check(&cluster, &by_next).is_err());
    let both = hand.next(|state| state.trust.state_keys.push(next.public().blob().to_vec()));
    cluster
        .receive_state(&both.document, &both.signature)
        .expect("signed");
    assert_eq!(check(&cluster, &by_next), Ok(()));
    assert_eq!(check(&cluster, &right), Ok(()));
}
