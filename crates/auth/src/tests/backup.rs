//! Backups: what was there when one was made is there again, and nobody takes the restored state for an old one.

use super::place::{Keys, Place, run};
use crate::clock::Clock;
use crate::{Address, RefusedKind, copy, restore};
use fleetgate_proto::v1;
use fleetgate_proto::v1::admin_client::AdminClient;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tonic::Code;

#[test]
fn a_cluster_comes_back_from_its_backup() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        place.posted().await;
        let to = place.directory.with_extension("backup");
        let _ = std::fs::remove_dir_all(&to);
        let from = place.directory.clone();
        let at = Address::in_directory(&from);
        for (bad, kind) in [
            (Path::new("relative").to_owned(), RefusedKind::Invalid),
            (Path::new("/").to_owned(), RefusedKind::Invalid),
            (from.clone(), RefusedKind::Exists),
            (from.join("missing/deeper"), RefusedKind::Unavailable),
        ] {
            let refused = copy(&from, &at, &bad).err().expect("no place for a backup");
            assert_eq!(refused.kind, kind, "{refused:?}");
        }
        let nothing = copy(&from.join("nothing"), &at, &to)
            .err()
            .expect("nothing there");
        assert_eq!(nothing.kind, RefusedKind::Unavailable, "{nothing:?}");
        let part = to.with_extension("backup.part");
        // Somebody may read it: no place for keys. Then one that a backup which was cut off left behind.
        std::fs::create_dir(&part).unwrap();
        std::fs::set_permissions(&part, Permissions::from_mode(0o755)).unwrap();
        let refused = copy(&from, &at, &to).err().expect("others may look");
        assert_eq!(refused.kind, RefusedKind::Forbidden, "{refused:?}");
        std::fs::set_permissions(&part, Permissions::from_mode(0o700)).unwrap();
        std::fs::write(part.join("state.db.1.part"), "half").unwrap();
        let made = copy(&from, &at, &to).expect("copied");
        let refused = copy(&from, &at, &to).err().expect("another is being made");
        assert_eq!(refused.kind, RefusedKind::Busy, "{refused:?}");
        assert!(made.bytes() > 0 && !to.exists());
        let told = v1::BackedUpRequest {
            path: to.to_str().unwrap().to_string(),
            bytes: made.bytes(),
        };
        let long = v1::BackedUpRequest {
            path: "x".repeat(4097),
            ..told.clone()
        };
        let status = place.admin().await.backed_up(long).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        place.admin().await.backed_up(told.clone()).await.unwrap();
        // An administrator's certificate is not enough: he would tell of what nobody made.
        let admin = place.user("root", &["admin"]).await;
        place.posted().await;
        let (afar, _) = place.log_in(&admin).await;
        let mut afar = AdminClient::new(place.channel_of(&afar).await);
        let status = afar.backed_up(told).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        made.keep().expect("its name");
        assert!(!part.exists());
        assert_eq!(place.events("backup").await.len(), 1);
        for (name, mode) in [("", 0o700), ("state.db", 0o600), ("audit.db", 0o600)] {
            let found = std::fs::metadata(to.join(name)).unwrap();
            assert_eq!(found.permissions().mode() & 0o777, mode, "{name}");
        }
        let again = copy(&from, &at, &to)
            .err()
            .expect("a backup is never written over");
        assert_eq!(again.kind, RefusedKind::Exists, "{again:?}");
        // After it: another user, and many states.
        place.user("eve", &["access"]).await;
        let lock = v1::AddLockRequest {
            target: Some(v1::LockTarget {
                kind: "user".into(),
                name: "ada".into(),
            }),
            ..v1::AddLockRequest::default()
        };
        place.admin().await.add_lock(lock).await.unwrap();
        let published = place.service().published().state.serial;
        let (directory, clock) = place.stop().await;
        let clock_for = || Arc::new(clock.clone());
        let refused = restore(
            &to,
            &directory,
            &Address::in_directory(&directory),
            false,
            clock_for(),
        )
        .await;
        assert!(refused.is_err(), "what is there is not replaced unless told to");
        let why = async |from: &Path| {
            let refused = restore(
                from,
                &directory,
                &Address::in_directory(&directory),
                true,
                clock_for(),
            )
            .await;
            refused.expect_err("no backup").to_string()
        };
        let nothing = why(&directory.join("nothing")).await;
        assert!(
            nothing.contains("nothing is no backup of fleetgate's"),
            "{nothing}"
        );
        let damaged = to.with_extension("damaged");
        std::fs::create_dir_all(&damaged).unwrap();
        for file in ["state.db", "audit.db"] {
            std::fs::copy(to.join(file), damaged.join(file)).unwrap();
        }
        let cut = std::fs::OpenOptions::new()
            .write(true)
            .open(damaged.join("state.db"));
        cut.unwrap().set_len(5000).unwrap();
        let said = why(&damaged).await;
        assert!(
            said.contains("damaged") && said.contains("take another backup"),
            "{said}"
        );
        assert!(!said.contains("fleetgate restore"), "{said}");
        std::fs::remove_dir_all(&damaged).unwrap();
        clock.advance(10);
        restore(
            &to,
            &directory,
            &Address::in_directory(&directory),
            true,
            clock_for(),
        )
        .await
        .expect("restored");
        let place = Place::on(directory, clock.clone()).await;
        let users = place
            .admin()
            .await
            .users(v1::Empty {})
            .await
            .unwrap()
            .into_inner()
            .users;
        assert_eq!(
            users
                .iter()
                .map(|u| (u.name.as_str(), u.state.as_str()))
                .collect::<Vec<_>>(),
            [("ada", "active")]
        );
        assert!(
            place.service().published().state.serial > published,
            "newer than all that was published"
        );
        assert!(place.now() == clock.seconds() && place.events("restored").await.len() == 1);
        assert_eq!(place.events("user_added").await.len(), 1);
        place
            .stranger()
            .await
            .login(place.login_request(&ada, &Keys::fresh()))
            .await
            .expect("as before");
        // Into a directory where nothing is.
        let new = place.directory.with_extension("new");
        let _ = std::fs::remove_dir_all(&new);
        restore(
            &to,
            &new,
            &Address::in_directory(&new),
            false,
            Arc::new(clock.clone()),
        )
        .await
        .expect("restored");
        drop(Place::on(new, clock).await);
        std::fs::remove_dir_all(&to).unwrap();
    });
}
