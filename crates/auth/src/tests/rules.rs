//! Roles and locks as administrators write them: what is refused, what is explained.

use super::place::{Place, run};
use fleetgate_proto::v1;
use tonic::Code;

fn apply(text: &str, dry_run: bool) -> v1::ApplyRoleRequest {
    v1::ApplyRoleRequest {
        text: text.to_string(),
        dry_run,
    }
}

fn lock(kind: &str, name: &str) -> v1::AddLockRequest {
    v1::AddLockRequest {
        target: Some(v1::LockTarget {
            kind: kind.into(),
            name: name.into(),
        }),
        ..v1::AddLockRequest::default()
    }
}

#[test]
fn roles_are_changed_as_a_whole_or_not_at_all() {
    run(async {
        let place = Place::new().await;
        place.user("ada", &["access"]).await;
        let serial = place.service().published().state.serial;
        let many: String = (0..51)
            .map(|i| format!("[role.r{i}]\nlogins = [\"root\"]\n"))
            .collect();
        let table = [
            ("", "missing field `role`"),
            ("[role]\n", "has no role"),
            ("[role.a]\nlogin = [\"root\"]\n", "line 2"),
            ("[role.A]\nlogins = [\"root\"]\n", "lower-case"),
            (
                "[role.a]\nlogins = [\"root\"]\n[role.b]\nlifetime = \"99d\"\n",
                "lifetime",
            ),
            (&many, "at most 50"),
            (&"#".repeat(1 << 20 | 1), "at most 1048576 bytes"),
        ];
        for (text, words) in table {
            let status = place
                .admin()
                .await
                .apply_role(apply(text, false))
                .await
                .unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains(words), "{words}: {status}");
        }
        let good = "[role.ops]\nnodes = [\"*\"]\nlogins = [\"root\"]\n[role.access]\nnodes = [\"env=prod\"]\nlogins = [\"{user}\"]\n";
        let what = |reply: v1::ApplyRoleReply| -> Vec<String> {
            reply
                .changes
                .into_iter()
                .map(|c| format!("{} {}", c.name, c.what))
                .collect()
        };
        let dry = place
            .admin()
            .await
            .apply_role(apply(good, true))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(what(dry), ["access changed", "ops created"]);
        assert_eq!(
            place.service().published().state.serial,
            serial,
            "nothing was changed yet"
        );
        let done = place
            .admin()
            .await
            .apply_role(apply(good, false))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(what(done), ["access changed", "ops created"]);
        let event = place.events("role_applied").await;
        assert_eq!(
            (&event[0]["before"]["nodes"][0], &event[0]["after"]["nodes"][0]),
            (&"*".into(), &"env=prod".into())
        );
        let gone = |name: &str| v1::RoleName { name: name.into() };
        let status = place.admin().await.remove_role(gone("access")).await.unwrap_err();
        assert!(status.message().contains("held by ada"), "{status}");
        place
            .admin()
            .await
            .remove_role(gone("ops"))
            .await
            .expect("nobody has it");
        assert_eq!(
            place
                .admin()
                .await
                .remove_role(gone("ops"))
                .await
                .unwrap_err()
                .code(),
            Code::NotFound
        );
        let add = v1::AddUserRequest {
            name: "bob".into(),
            roles: vec!["ops".into()],
            ..v1::AddUserRequest::default()
        };
        assert_eq!(
            place.admin().await.add_user(add).await.unwrap_err().code(),
            Code::NotFound
        );
    });
}

#[test]
fn users_that_cannot_be_are_refused() {
    run(async {
        let place = Place::new().await;
        place.user("ada", &["access"]).await;
        let add = |name: &str, roles: &[&str], invite_lifetime| v1::AddUserRequest {
            name: name.into(),
            roles: roles.iter().map(|r| r.to_string()).collect(),
            invite_lifetime,
        };
        let many = vec!["access"; 65];
        let table = [
            (add("ada", &[], 0), Code::AlreadyExists, "already"),
            (add("", &[], 0), Code::InvalidArgument, "empty"),
            (add("Ada", &[], 0), Code::InvalidArgument, "lower-case"),
            (add("../ada", &[], 0), Code::InvalidArgument, "has '/'"),
            (
                add(&"a".repeat(65), &[], 0),
                Code::InvalidArgument,
                "64 characters",
            ),
            (add("bob", &["nothing"], 0), Code::NotFound, "no role nothing"),
            (add("bob", &many, 0), Code::InvalidArgument, "64 roles"),
            (add("bob", &[], u32::MAX), Code::InvalidArgument, "30 days"),
        ];
        for (request, code, words) in table {
            let status = place.admin().await.add_user(request).await.unwrap_err();
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(words), "{words}: {status}");
        }
        let users = place
            .admin()
            .await
            .users(v1::Empty {})
            .await
            .unwrap()
            .into_inner()
            .users;
        assert_eq!(users.len(), 1);
        let missing = v1::UserName { name: "bob".into() };
        assert_eq!(
            place
                .admin()
                .await
                .remove_user(missing.clone())
                .await
                .unwrap_err()
                .code(),
            Code::NotFound
        );
        assert_eq!(
            place.admin().await.reset_user(missing).await.unwrap_err().code(),
            Code::NotFound
        );
    });
}

#[test]
fn locks_hold_for_their_time_and_on_what_there_is() {
    run(async {
        let place = Place::new().await;
        place.user("ada", &["access"]).await;
        let table = [
            (lock("user", "bob"), Code::NotFound, "spelling"),
            (lock("node", "web1"), Code::NotFound, "spelling"),
            (lock("role", "ops"), Code::NotFound, "spelling"),
            (lock("device", "x"), Code::NotFound, "spelling"),
            (
                lock("cluster", "orchard"),
                Code::InvalidArgument,
                "cannot be locked",
            ),
            (
                lock("login", "deploy+web"),
                Code::InvalidArgument,
                "lock the account (--login deploy), which holds for all of its containers, or take web from the roles",
            ),
            (
                lock("login", "ada "),
                Code::InvalidArgument,
                "spaces around the account",
            ),
            (
                lock("account", " ada"),
                Code::InvalidArgument,
                "spaces around the account",
            ),
            (
                lock("login", "ada\u{200b}"),
                Code::InvalidArgument,
                "cannot be seen",
            ),
            (lock("login", "{user}"), Code::InvalidArgument, "is a template"),
            (lock("login", "+web"), Code::InvalidArgument, "nobody logs in so"),
            (lock("login", "ada+"), Code::InvalidArgument, "nobody logs in so"),
            (lock("login", "deploy+*"), Code::InvalidArgument, "is a pattern"),
            (lock("account", "deploy+*"), Code::InvalidArgument, "is a pattern"),
            (
                v1::AddLockRequest::default(),
                Code::InvalidArgument,
                "cannot be locked",
            ),
            (
                v1::AddLockRequest {
                    reason: "a\nb".into(),
                    ..lock("user", "ada")
                },
                Code::InvalidArgument,
                "one line",
            ),
            (
                v1::AddLockRequest {
                    reason: "a".repeat(1025),
                    ..lock("user", "ada")
                },
                Code::InvalidArgument,
                "1024",
            ),
        ];
        for (request, code, words) in table {
            let status = place.admin().await.add_lock(request).await.unwrap_err();
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(words), "{words}: {status}");
        }
        // Where accounts' own names have a `+`.
        let own_name = place.admin().await.add_lock(lock("account", "DOMAIN+bob")).await;
        let own_name = own_name.unwrap().into_inner();
        let target = own_name.target.unwrap();
        assert_eq!((&*target.kind, &*target.name), ("login", "DOMAIN+bob"));
        let id = v1::LockId { id: own_name.id };
        place.admin().await.remove_lock(id).await.unwrap();
        let hour = v1::AddLockRequest {
            lifetime: 3600,
            ..lock("user", "ada")
        };
        let made = place.admin().await.add_lock(hour).await.unwrap().into_inner();
        assert_eq!(made.expires, place.now() + 3600);
        let state = async || {
            place
                .admin()
                .await
                .users(v1::Empty {})
                .await
                .unwrap()
                .into_inner()
                .users[0]
                .state
                .clone()
        };
        assert_eq!(state().await, "locked");
        place.clock.advance(3600);
        assert_eq!(state().await, "active", "at once");
        place.service().turn().await;
        assert_eq!(
            place
                .admin()
                .await
                .locks(v1::Empty {})
                .await
                .unwrap()
                .into_inner()
                .locks,
            []
        );
        assert_eq!(place.events("lock_expired").await[0]["user"], "ada");
        let made = place
            .admin()
            .await
            .add_lock(lock("user", "ada"))
            .await
            .unwrap()
            .into_inner();
        let id = v1::LockId { id: made.id };
        place.admin().await.remove_lock(id.clone()).await.unwrap();
        assert_eq!(
            place.admin().await.remove_lock(id).await.unwrap_err().code(),
            Code::NotFound
        );
        assert_eq!(state().await, "active");
    });
}

#[test]
fn a_decision_is_explained() {
    run(async {
        let place = Place::new().await;
        place.user("ada", &["access"]).await;
        place.machine("node", "web1").await;
        let ask = async |login: &str, node: &str| {
            let request = v1::TestRoleRequest {
                user: "ada".into(),
                node: node.into(),
                login: login.into(),
                ..v1::TestRoleRequest::default()
            };
            place
                .admin()
                .await
                .test_role(request)
                .await
                .map(tonic::Response::into_inner)
        };
        let yes = ask("", "web1").await.unwrap();
        assert!(
            yes.allowed && yes.steps.iter().any(|s| s.contains("role access allows ada")),
            "{:?}",
            yes.steps
        );
        let no = ask("root", "web1").await.unwrap();
        assert!(
            !no.allowed && no.steps.iter().any(|s| s.contains("not root")),
            "{:?}",
            no.steps
        );
        assert_eq!(ask("", "web2").await.unwrap_err().code(), Code::NotFound);
        // Roles alone let nobody in: the invite has to be accepted first.
        let added = v1::AddUserRequest {
            name: "eve".into(),
            roles: vec!["access".into()],
            ..v1::AddUserRequest::default()
        };
        place.admin().await.add_user(added).await.unwrap();
        let request = v1::TestRoleRequest {
            user: "eve".into(),
            node: "web1".into(),
            ..v1::TestRoleRequest::default()
        };
        let invited = place.admin().await.test_role(request).await.unwrap().into_inner();
        assert!(
            !invited.allowed
                && invited.steps[0].contains("has not accepted the invite")
                && invited.steps.iter().any(|s| s.contains("role access allows eve")),
            "{:?}",
            invited.steps
        );
    });
}

#[test]
fn all_roles_together_fit_into_the_state() {
    run(async {
        let place = Place::new().await;
        // Some 900 KB each.
        let role = |n: usize| {
            let word = "x".repeat(3500);
            let command =
                |c: usize| format!("[role.r{n}.command.c{c}]\nargv = [\"/bin/true\", \"{word}\"]\n");
            let commands: String = (0..250).map(command).collect();
            format!("[role.r{n}]\nnodes = [\"*\"]\nlogins = [\"root\"]\nkinds = []\n{commands}")
        };
        for n in 0..4 {
            place
                .admin()
                .await
                .apply_role(apply(&role(n), false))
                .await
                .unwrap();
        }
        let status = place
            .admin()
            .await
            .apply_role(apply(&role(4), false))
            .await
            .unwrap_err();
        assert!(status.message().contains("4194304 is the most"), "{status}");
        // One that is there may still be changed.
        place
            .admin()
            .await
            .apply_role(apply("[role.r0]\nlogins = [\"root\"]\n", false))
            .await
            .unwrap();
        place
            .admin()
            .await
            .apply_role(apply(&role(4), false))
            .await
            .unwrap();
    });
}
