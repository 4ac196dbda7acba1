//! Backups: what was there when one was made is there again, and nobody takes the restored state for an old one.

use super::place::{Keys, Place, run};
use crate::clock::Clock;
use crate::restore;
use fleetgate_proto::v1;
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
        let request = |path: &std::path::Path| v1::BackupRequest {
            path: path.to_str().unwrap().to_string(),
        };
        for (bad, code) in [
            (request(std::path::Path::new("relative")), Code::InvalidArgument),
            (request(std::path::Path::new("/")), Code::InvalidArgument),
            (request(&place.directory), Code::AlreadyExists),
            (
                request(&place.directory.join("missing/deeper")),
                Code::Unavailable,
            ),
        ] {
            let status = place.admin().await.backup(bad).await.unwrap_err();
            assert_eq!(status.code(), code, "{status}");
        }
        let made = place
            .admin()
            .await
            .backup(request(&to))
            .await
            .unwrap()
            .into_inner();
        assert!(made.bytes > 0);
        use std::os::unix::fs::PermissionsExt;
        for (name, mode) in [("", 0o700), ("state.db", 0o600), ("audit.db", 0o600)] {
            let found = std::fs::metadata(to.join(name)).unwrap();
            assert_eq!(found.permissions().mode() & 0o777, mode, "{name}");
        }
        let status = place.admin().await.backup(request(&to)).await.unwrap_err();
        assert_eq!(
            status.code(),
            Code::AlreadyExists,
            "a backup is never written over"
        );
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
        let refused = restore(&to, &directory, false, clock_for()).await;
        assert!(refused.is_err(), "what is there is not replaced unless told to");
        let refused = restore(&directory.join("nothing"), &directory, true, clock_for()).await;
        assert!(refused.is_err());
        clock.advance(10);
        restore(&to, &directory, true, clock_for())
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
        restore(&to, &new, false, Arc::new(clock.clone()))
            .await
            .expect("restored");
        drop(Place::on(new, clock).await);
        std::fs::remove_dir_all(&to).unwrap();
    });
}
