//! Certificates of a cluster that was made by hand, at a node's own port: who is let in, who is told why not, and who is
//! told nothing.

use super::*;
use crate::Config;
use crate::testing::{Card, Hand, key, name};
use fleetgate_policy::Kind;
use fleetgate_policy::cluster::{Lock, Locks, Reason, Subject, Target};
use fleetgate_ssh::auth::{Method, Request};
use fleetgate_ssh::key::PrivateKey;

const NOW: u64 = 10_000;
const ALGORITHM: &str = "ssh-ed25519-cert-v01@openssh.com";

/// What is answered: to the question whether the key would do, and to its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    In,
    /// Its user reads why.
    Told(Reason),
    /// Nobody does.
    Refused,
}

struct Case {
    what: &'static str,
    card: Card,
    by: By,
    login: &'static str,
    lock: Option<Target>,
    want: Answer,
}

/// Whose signature is on the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    UserCa,
    Stranger,
    /// It names the user CA, and another has signed it.
    Forged,
}

fn ask(presented: &[u8], signer: &PrivateKey, hand: &Hand, login: &str, signed: bool) -> Decision {
    let unsigned = Request::unsigned(b"session", login.as_bytes(), ALGORITHM, presented, None);
    let signature = signer.sign("ssh-ed25519", unsigned.to_sign()).expect("signed");
    let bytes = unsigned.signed(&signature);
    let request = Request::parse(&bytes).expect("a request");
    let Method::PublicKey(mut request) = request.method else {
        panic!("it is a key");
    };
    if !signed {
        request.signature = None;
    }
    let ssh = SshExchange {
        id: b"session",
        host_key: b"",
    };
    let claimant = Claimant {
        login,
        source: "192.0.2.1".parse().expect("an address"),
        now: NOW,
        skew: 60,
        utc_offset: 0,
        environment: false,
    };
    let trust = Trust::new(&Config::default(), false, true).expect("trust");
    let cluster = hand.cluster();
    check_key(
        &request,
        ssh,
        &claimant,
        &Files::default(),
        &trust,
        Some(&cluster),
    )
}

fn card(change: impl FnOnce(&mut Card)) -> Card {
    let mut card = Card::of(NOW);
    card.identity.mfa = Some(NOW);
    change(&mut card);
    card
}

#[test]
fn certificates_of_a_cluster() {
    let plain = || card(|_| {});
    let case = |what, card, want| Case {
        what,
        card,
        by: By::UserCa,
        login: "ada",
        lock: None,
        want,
    };
    let locked = |target: Target, want| Case {
        lock: Some(target),
        ..case("a lock", plain(), want)
    };
    let cases = [
        case("as it should be", plain(), Answer::In),
        case(
            "expired",
            card(|c| c.until = NOW - 60),
            Answer::Told(Reason::Expired),
        ),
        case("within the skew", card(|c| c.until = NOW - 59), Answer::In),
        case(
            "from the future",
            card(|c| c.identity.issued = NOW + 61),
            Answer::Told(Reason::Expired),
        ),
        case(
            "no second factor",
            card(|c| c.identity.mfa = None),
            Answer::Told(Reason::Mfa),
        ),
        case(
            "an old one",
            card(|c| c.identity.mfa = Some(NOW - 961)),
            Answer::Told(Reason::Mfa),
        ),
        case(
            "another role without a device",
            card(|c| c.identity.roles = vec![name("ops")]),
            Answer::Told(Reason::Device),
        ),
        case(
            "with one",
            card(|c| {
                c.identity.roles = vec![name("ops")];
                c.identity.device = Some(name("laptop"));
            }),
            Answer::In,
        ),
        case(
            "no role",
            card(|c| c.identity.roles = vec![]),
            Answer::Told(Reason::Role),
        ),
        case(
            "another cluster",
            card(|c| c.identity.cluster = name("elsewhere")),
            Answer::Told(Reason::Role),
        ),
        case(
            "a node's",
            card(|c| c.identity.subject = Subject::Node(name("web2"))),
            Answer::Told(Reason::Role),
        ),
        case(
            "without an identity",
            card(|c| c.extension = false),
            Answer::Refused,
        ),
        // The role would, and the authority did not write the login into the certificate: the role is younger.
        case(
            "without the login",
            card(|c| c.principals = vec!["bob"]),
            Answer::Told(Reason::Role),
        ),
        Case {
            login: "root",
            ..case(
                "as somebody else",
                card(|c| c.principals.push("root")),
                Answer::Told(Reason::Role),
            )
        },
        Case {
            by: By::Stranger,
            ..case("of another CA", plain(), Answer::Refused)
        },
        Case {
            by: By::Forged,
            ..case("forged", plain(), Answer::Refused)
        },
        Case {
            by: By::Forged,
            ..case(
                "forged and refused",
                card(|c| c.identity.mfa = None),
                Answer::Refused,
            )
        },
        locked(Target::User(name("ada")), Answer::Told(Reason::Lock)),
        locked(Target::User(name("bob")), Answer::In),
        locked(Target::Node(name("web1")), Answer::Told(Reason::Lock)),
        locked(Target::Login("ada".into()), Answer::Told(Reason::Lock)),
        locked(Target::Role(name("dev")), Answer::Told(Reason::Lock)),
        locked(Target::Device(name("laptop")), Answer::In),
    ];
    let user = key();
    for case in cases {
        let Case { what, card, by, .. } = &case;
        let mut hand = Hand::new()
            .with_role("dev", "{user}", |role| {
                role.require_mfa = Some(std::time::Duration::from_secs(900));
                role.kinds = vec![Kind::Shell];
            })
            .with_role("ops", "{user}", |role| role.require_trusted_device = true);
        hand.state.locks = Locks::new(case.lock.clone().map(|target| Lock {
            id: name("l1"),
            target,
            serial_before: None,
            expires: None,
            reason: "why".into(),
            created: 0,
            by: String::new(),
        }));
        let stranger = key();
        let ca = if *by == By::Stranger {
            &stranger
        } else {
            &hand.user_ca
        };
        let mut blob = card.sign(user.public(), ca).blob().to_vec();
        if *by == By::Forged {
            let last = blob.len() - 1;
            blob[last] ^= 1;
        }
        let query = ask(&blob, &user, &hand, case.login, false);
        let answer = ask(&blob, &user, &hand, case.login, true);
        let got = match &answer {
            Decision::Proven {
                cluster_login: Some(cluster_login),
                restrictions,
                ..
            } => {
                assert_eq!(cluster_login.user(), Some(&name("ada")), "{what}");
                let permits = cluster_login
                    .within(restrictions.permits.clone())
                    .expect("no force");
                let is_dev = cluster_login.allowed.roles == [name("dev")];
                assert_eq!(permits.allow_kind(Kind::Exec).is_err(), is_dev, "{what}");
                Answer::In
            }
            Decision::Denied(denied) => {
                assert!(
                    denied.refusal.words.len() > 20,
                    "{what}: {}",
                    denied.refusal.words
                );
                Answer::Told(denied.refusal.reason)
            }
            Decision::Refused(_) => Answer::Refused,
            other => panic!("{what}: {other:?}"),
        };
        assert_eq!(got, case.want, "{what} {:?}", case.lock);
        // To who has not signed, a refusal that its user shall read looks like a yes.
        match case.want {
            Answer::Refused => assert!(matches!(query, Decision::Refused(_)), "{what}"),
            _ => assert_eq!(query, Decision::KeyAcceptable, "{what}"),
        }
        // An account that is locked on the machine is no secret to who may come in as it, and to nobody else.
        let locked = |decision| {
            let closed = ClosedAccount::NotInUse("the account is locked".to_owned());
            let trust = Trust::new(&Config::default(), false, true).expect("trust");
            without_account(decision, case.login, &closed, &trust, Some(&hand.cluster()))
        };
        let told = locked(ask(&blob, &user, &hand, case.login, true));
        let of_the_account =
            matches!(&told, Decision::Denied(d) if d.refusal.words.contains("the account is locked"));
        assert_eq!(of_the_account, case.want == Answer::In, "{what}: {told:?}");
        let stolen = locked(ask(&blob, &stranger, &hand, case.login, true));
        assert!(matches!(stolen, Decision::Refused(_)), "{what}: {stolen:?}");
        // And who signs with another key reads nothing.
        let thief = ask(&blob, &stranger, &hand, case.login, true);
        assert!(matches!(thief, Decision::Refused(_)), "{what}: {thief:?}");
    }
}
