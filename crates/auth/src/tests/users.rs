//! Invites and logins: what is refused, in which words, and what a restart does not forgive.

use super::place::{Holder, Keys, PASSWORD, Place, run};
use fleetgate_net::Ticket;
use fleetgate_policy::cluster::{Identity, Target};
use fleetgate_proto::v1;
use fleetgate_ssh::key::Certificate;
use tonic::Code;

fn ticket(invite: &v1::Invite) -> Ticket {
    invite.text.parse().expect("an invite's text")
}

async fn invite(place: &Place, user: &str) -> v1::Invite {
    let request = v1::AddUserRequest {
        name: user.to_string(),
        roles: vec!["access".to_string()],
        invite_lifetime: 0,
    };
    place
        .admin()
        .await
        .add_user(request)
        .await
        .expect("an invite")
        .into_inner()
}

#[test]
fn invites_are_good_once_in_their_time_and_until_another_takes_their_place() {
    run(async {
        let place = Place::new().await;
        let first = invite(&place, "ada").await;
        let mut asks = place.by_ticket(&ticket(&first)).await;
        let begin = |secret: &str| v1::BeginInviteRequest {
            secret: secret.to_string(),
        };
        let begun = asks
            .begin_invite(begin(ticket(&first).secret()))
            .await
            .unwrap()
            .into_inner();
        let again = asks
            .begin_invite(begin(ticket(&first).secret()))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(begun, again, "asking changes nothing");
        let accept = |secret: &str, password: &str, code: String| v1::AcceptInviteRequest {
            secret: secret.to_string(),
            password: password.to_string(),
            code,
        };
        let code = || place.code(&begun.otpauth);
        let bad_code = match code().as_str() {
            "000000" => "000001",
            _ => "000000",
        };
        let secret = ticket(&first).secret().to_string();
        let long = "x".repeat(2000);
        let table = [
            (accept("", PASSWORD, code()), "not known"),
            (accept(&"A".repeat(43), PASSWORD, code()), "not known"),
            (accept(&long, PASSWORD, code()), "not known"),
            (accept(&secret, "short", code()), "too short"),
            (accept(&secret, &long, code()), "too long"),
            (accept(&secret, PASSWORD, bad_code.to_string()), "code is wrong"),
            (accept(&secret, PASSWORD, String::new()), "code is wrong"),
        ];
        for (request, words) in table {
            place.clock.advance(10);
            let refused = asks.accept_invite(request).await.unwrap_err();
            assert!(refused.message().contains(words), "{words}: {refused}");
            assert!(!refused.message().contains(&secret), "{refused}");
        }
        place.clock.advance(60);
        asks.accept_invite(accept(&secret, PASSWORD, code()))
            .await
            .expect("the control");
        place.clock.advance(60);
        let refused = asks
            .accept_invite(accept(&secret, PASSWORD, code()))
            .await
            .unwrap_err();
        assert!(refused.message().contains("not known"), "used: {refused}");
        // A newer one, and one that is late.
        let reset = |name: &str| v1::UserName {
            name: name.to_string(),
        };
        let second = place
            .admin()
            .await
            .reset_user(reset("ada"))
            .await
            .unwrap()
            .into_inner();
        let third = place
            .admin()
            .await
            .reset_user(reset("ada"))
            .await
            .unwrap()
            .into_inner();
        place.clock.advance(60);
        let refused = asks
            .begin_invite(begin(ticket(&second).secret()))
            .await
            .unwrap_err();
        assert!(refused.message().contains("not known"), "replaced: {refused}");
        place.clock.advance(86_400);
        let refused = asks
            .begin_invite(begin(ticket(&third).secret()))
            .await
            .unwrap_err();
        assert!(refused.message().contains("time is over"), "{refused}");
    });
}

#[test]
fn a_million_invites_that_are_none_are_told_to_wait() {
    run(async {
        let place = Place::new().await;
        let mut asks = place.stranger().await;
        let request = v1::BeginInviteRequest {
            secret: "A".repeat(43),
        };
        let mut told = Vec::new();
        for _ in 0..30 {
            told.push(asks.begin_invite(request.clone()).await.unwrap_err());
        }
        let waits = told.iter().filter(|s| s.code() == Code::ResourceExhausted);
        assert_eq!(waits.count(), 20, "ten at once, then one in three seconds");
        assert!(told[29].message().contains("try again in 3 s"), "{}", told[29]);
        place.clock.advance(3);
        assert_eq!(
            asks.begin_invite(request).await.unwrap_err().code(),
            Code::Unauthenticated
        );
    });
}

#[test]
fn whoever_is_wrong_is_told_the_same() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        place.user("eve", &["access"]).await;
        let invited = invite(&place, "bob").await;
        let keys = Keys::fresh();
        let request = || place.login_request(&ada, &keys);
        let with = |change: fn(&mut v1::LoginRequest)| {
            let mut request = request();
            change(&mut request);
            request
        };
        let table = [
            ("another's code and password", with(|r| r.user = "eve".into())),
            ("nobody", with(|r| r.user = "nobody".into())),
            ("no name", with(|r| r.user = "No Name/..".into())),
            ("empty", with(|r| r.user = String::new())),
            ("not active", with(|r| r.user = "bob".into())),
            ("password", with(|r| r.password = "correct horse batterz".into())),
            ("no password", with(|r| r.password = String::new())),
            ("long password", with(|r| r.password = "x".repeat(1025))),
            ("code", with(|r| r.code = "12345".into())),
            ("no code", with(|r| r.code = String::new())),
        ];
        let mut stranger = place.stranger().await;
        for (what, request) in table {
            place.clock.advance(30);
            let refused = stranger.login(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated, "{what}");
            assert_eq!(
                refused.message(),
                "user, password or code is wrong; a code is good once: type the next one",
                "{what}"
            );
        }
        place.clock.advance(3600);
        let good = request();
        stranger.login(good.clone()).await.expect("the control");
        let refused = stranger.login(good).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "a code is good once");
        // What was typed for a name may have been a password.
        let events = place.events("login_refused").await;
        let told: Vec<_> = events.iter().filter_map(|e| e["user"].as_str()).collect();
        assert!(told.contains(&"eve") && told.contains(&"ada"), "{told:?}");
        assert!(
            !told.contains(&"nobody") && !told.iter().any(|u| u.contains(' ')),
            "{told:?}"
        );
        // Keys that are none are said to be so: that tells nothing about anybody.
        let mut bad = request();
        bad.keys = None;
        assert_eq!(
            stranger.login(bad).await.unwrap_err().code(),
            Code::InvalidArgument
        );
        drop(invited);
    });
}

#[test]
fn failures_lock_out_for_a_while_whoever_it_is_and_over_a_restart() {
    run(async {
        let mut place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        for user in ["ada", "nobody"] {
            let mut stranger = place.stranger().await;
            let wrong = v1::LoginRequest {
                user: user.to_string(),
                password: "wrong horse battery".to_string(),
                code: "000000".to_string(),
                keys: Some(Keys::fresh().request()),
                ..v1::LoginRequest::default()
            };
            let mut told = Vec::new();
            for _ in 0..8 {
                told.push(stranger.login(wrong.clone()).await.unwrap_err());
            }
            let codes: Vec<Code> = told.iter().map(|s| s.code()).collect();
            assert_eq!(codes[..5], [Code::Unauthenticated; 5], "{user}");
            assert_eq!(codes[5..], [Code::ResourceExhausted; 3], "{user}");
            assert!(
                told[5].message().contains("try again in 1 s"),
                "{user}: {}",
                told[5]
            );
            place.clock.advance(30);
        }
        // Three more failures: the wait doubles.
        for _ in 0..6 {
            place.clock.advance(64);
            let mut request = place.login_request(&ada, &Keys::fresh());
            request.password = "wrong horse battery".into();
            let refused = place.stranger().await.login(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        }
        let (directory, clock) = place.stop().await;
        place = Place::on(directory, clock).await;
        let mut right = place.login_request(&ada, &Keys::fresh());
        let refused = place.stranger().await.login(right.clone()).await.unwrap_err();
        assert!(
            refused.message().contains("have failed from here: try again in"),
            "{refused}"
        );
        place.clock.advance(64);
        right.code = place.code(&ada.otpauth);
        place
            .stranger()
            .await
            .login(right)
            .await
            .expect("the right one after the wait");
        let mut wrong = place.login_request(&ada, &Keys::fresh());
        wrong.password.clear();
        let refused = place.stranger().await.login(wrong).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "who got in begins anew");
    });
}

#[test]
fn names_that_are_tried_are_bounded_and_forgotten() {
    use crate::documents::Tries;
    use crate::tries::{FREE_TRIES, MAX_WAIT, wait};
    let table = [
        (0, 0, 0),
        (FREE_TRIES - 1, 0, 0),
        (FREE_TRIES, 0, 1),
        (FREE_TRIES, 1, 0),
        (FREE_TRIES + 3, 0, 8),
        (FREE_TRIES + 3, 5, 3),
        (1000, 0, MAX_WAIT),
        (u32::MAX, 10, MAX_WAIT - 10),
        (1000, 3600, 0),
    ];
    for (failed, later, seconds) in table {
        assert_eq!(
            wait(&Tries { failed, last: 1000 }, 1000 + later),
            seconds,
            "{failed} after {later}"
        );
    }
    run(async {
        let place = Place::new().await;
        let request = v1::LoginRequest {
            user: "nobody".to_string(),
            keys: Some(Keys::fresh().request()),
            ..v1::LoginRequest::default()
        };
        assert!(place.stranger().await.login(request).await.is_err());
        assert_eq!(place.service().cache().tries.len(), 1);
        place.clock.advance(crate::tries::FORGOTTEN);
        place.service().turn().await;
        assert_eq!(place.service().cache().tries.len(), 0);
    });
}

#[test]
fn certificates_die_with_what_they_were_given_for() {
    run(async {
        let place = Place::new().await;
        let roles = r#"
            [role.ops]
            nodes = ["*"]
            logins = ["root"]
            lifetime = "1h"
        "#;
        let apply = v1::ApplyRoleRequest {
            text: roles.to_string(),
            dry_run: false,
        };
        place.admin().await.apply_role(apply).await.unwrap();
        let ada = place.user("ada", &["access"]).await;
        let (_, before) = place.log_in(&ada).await;
        assert_eq!(before.logins, ["ada"]);
        let change = v1::ChangeUserRequest {
            name: "ada".into(),
            roles: vec!["ops".into()],
        };
        place.admin().await.change_user(change).await.unwrap();
        assert!(locked(&place, &before), "the old certificate");
        let (_, after) = place.log_in(&ada).await;
        assert_eq!(after.logins, ["root"]);
        assert_eq!(after.expires, place.now() + 3600, "as long as the role says");
        assert!(!locked(&place, &after), "the new one");
        place
            .admin()
            .await
            .remove_user(v1::UserName { name: "ada".into() })
            .await
            .unwrap();
        assert!(locked(&place, &after));
        let refused = place
            .stranger()
            .await
            .login(place.login_request(&ada, &Keys::fresh()))
            .await;
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
        // Whoever gets the name after is another.
        let (_, other) = {
            let other = place.user("ada", &["access"]).await;
            place.log_in(&other).await
        };
        assert!(!locked(&place, &other));
    });
}

#[test]
fn a_refresh_is_the_same_login() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        let (holder, login) = place.log_in(&ada).await;
        let (issued, mfa) = of(&login);
        place.clock.advance(600);
        let channel = place.channel_of(&holder).await;
        let mut asks = v1::identity_client::IdentityClient::new(channel);
        let mut request = v1::RefreshRequest {
            keys: Some(Keys::fresh().request()),
            ..v1::RefreshRequest::default()
        };
        let plain = asks.refresh(request.clone()).await.unwrap().into_inner();
        assert_eq!(of(&plain), (issued, mfa), "as old as it was");
        assert_eq!(plain.expires, login.expires, "and as short");
        request.code = place.code(&ada.otpauth);
        let fresh = asks.refresh(request.clone()).await.unwrap().into_inner();
        assert_eq!(of(&fresh), (issued, Some(place.now())));
        assert_eq!(fresh.expires, login.expires);
        let refused = asks.refresh(request.clone()).await.unwrap_err();
        assert!(refused.message().contains("wrong or was used"), "{refused}");
        // Without a certificate, and after the login's end.
        let refused = place.stranger().await.refresh(request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
        place.clock.advance(login.expires - place.now());
        request.code.clear();
        let refused = asks.refresh(request).await.unwrap_err();
        assert!(refused.message().contains("expired"), "{refused}");
    });
}

#[test]
fn a_login_is_renewed_for_as_long_as_its_roles_say() {
    run(async {
        let place = Place::new().await;
        let role = |renewal: &str| v1::ApplyRoleRequest {
            text: format!(
                "[role.checks]\nnodes = [\"*\"]\nlogins = [\"nagios\"]\nlifetime = \"12h\"\n{renewal}"
            ),
            dry_run: false,
        };
        place.admin().await.apply_role(role("")).await.unwrap();
        let ada = place.user("ada", &["checks"]).await;
        let (holder, login) = place.log_in(&ada).await;
        assert_eq!(login.renewable, 0);
        let began = of(&login);
        let request = |renew| v1::RefreshRequest {
            keys: Some(Keys::fresh().request()),
            renew,
            ..v1::RefreshRequest::default()
        };
        let asks = |channel| v1::identity_client::IdentityClient::new(channel);
        let mut first = asks(place.channel_of(&holder).await);
        let refused = first.refresh(request(true)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains("`renewal`"), "{refused}");
        place
            .admin()
            .await
            .apply_role(role("renewal = \"14h\""))
            .await
            .unwrap();
        // Who wanted a short login has no long one made of it.
        let keys = Keys::fresh();
        let mut short = place.login_request(&ada, &keys);
        short.lifetime = 3600 * 11;
        let short = place.stranger().await.login(short).await.unwrap().into_inner();
        assert_eq!(short.renewable, 0);
        let chain = short.tls_chain.clone();
        let mut asks_short = asks(place.channel_of(&Holder { keys, chain }).await);
        let refused = asks_short.refresh(request(true)).await.unwrap_err();
        assert!(refused.message().contains("--ttl"), "{refused}");
        let until = began.0 + 14 * 3600;
        place.clock.advance(5 * 3600);
        let keys = Keys::fresh();
        let again = v1::RefreshRequest {
            keys: Some(keys.request()),
            ..request(true)
        };
        let renewed = first.refresh(again).await.unwrap().into_inner();
        assert_eq!(
            of(&renewed),
            began,
            "it is the same login, and its second factor as old"
        );
        assert_eq!(
            (renewed.expires, renewed.renewable),
            (until, until),
            "and no longer"
        );
        // Without a renewal nothing lives for longer, and the renewed one goes on.
        let plain = first.refresh(request(false)).await.unwrap().into_inner();
        assert_eq!(plain.expires, login.expires);
        place.clock.advance(4 * 3600);
        let mut second = asks({
            let chain = renewed.tls_chain.clone();
            place.channel_of(&Holder { keys, chain }).await
        });
        let plain = second.refresh(request(false)).await.unwrap().into_inner();
        assert_eq!(plain.expires, until);
        // What ends the login ends what came of it.
        place.admin().await.apply_role(role("")).await.unwrap();
        assert!(
            second.refresh(request(true)).await.is_err(),
            "the role says so no more"
        );
        place
            .admin()
            .await
            .apply_role(role("renewal = \"14h\""))
            .await
            .unwrap();
        let name = v1::UserName { name: "ada".into() };
        place.admin().await.reset_user(name).await.unwrap();
        let refused = second.refresh(request(true)).await.unwrap_err();
        assert!(locked(&place, &renewed), "{refused}");
    });
}

/// When the login of these credentials began, and when its second factor was shown.
fn of(given: &v1::Credentials) -> (u64, Option<u64>) {
    let identity = identity(given);
    (identity.issued, identity.mfa)
}

fn identity(given: &v1::Credentials) -> Identity {
    let leaf = fleetgate_net::x509::Certificate::read(&given.tls_chain[0]).unwrap();
    assert!(
        Certificate::parse(&given.ssh_certificate)
            .unwrap()
            .signature_holds()
            .is_ok()
    );
    leaf.identity().unwrap().unwrap()
}

/// Whether a lock holds against them.
fn locked(place: &Place, given: &v1::Credentials) -> bool {
    let identity = identity(given);
    let target = Target::User(identity.user().unwrap().clone());
    let published = place.service().published();
    published
        .state
        .locks
        .on(&target, place.now(), identity.serial)
        .is_some()
}
