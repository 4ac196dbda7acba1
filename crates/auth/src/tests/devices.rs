//! Devices: approved by an administrator, shown by a signature, each nonce good once.

use super::place::{Holder, Keys, Place, run};
use bytes::Bytes;
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_proto::{signed, v1};
use fleetgate_ssh::key::{KeyType, PrivateKey};
use tonic::Code;

/// What is done to a request before it is sent.
type Change<'a> = &'a dyn Fn(&mut v1::LoginRequest);

pub async fn nonce(place: &Place) -> Bytes {
    let asked = place.stranger().await.challenge(v1::ChallengeRequest {}).await;
    asked.expect("a nonce").into_inner().nonce
}

pub async fn enroll(
    place: &Place,
    holder: &Holder,
    key: &PrivateKey,
    nonce: &Bytes,
) -> Result<v1::Device, tonic::Status> {
    let blob = Bytes::copy_from_slice(key.public().blob());
    let request = v1::EnrollDeviceRequest {
        name: "laptop".into(),
        signature: key
            .sign("ssh-ed25519", &signed::enroll(nonce, &blob))
            .unwrap()
            .into(),
        key: blob,
        nonce: nonce.clone(),
    };
    let mut asks = IdentityClient::new(place.channel_of(holder).await);
    Ok(asks.enroll_device(request).await?.into_inner())
}

pub fn proof(device: &str, key: &PrivateKey, nonce: &Bytes, keys: &Keys) -> v1::DeviceProof {
    v1::DeviceProof {
        device: device.to_string(),
        nonce: nonce.clone(),
        signature: key
            .sign("ssh-ed25519", &signed::device(nonce, &keys.request()))
            .unwrap()
            .into(),
    }
}

fn device_of(given: &v1::Credentials) -> Option<String> {
    let leaf = fleetgate_net::x509::Certificate::read(&given.tls_chain[0]).unwrap();
    leaf.identity().unwrap().unwrap().device.map(|d| d.to_string())
}

#[test]
fn a_device_counts_when_it_was_approved_and_signs() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        let eve = place.user("eve", &["access"]).await;
        let (holder, given) = place.log_in(&ada).await;
        assert_eq!(device_of(&given), None);
        let key = PrivateKey::generate(KeyType::Ed25519, "").unwrap().0;
        let other = PrivateKey::generate(KeyType::Ed25519, "").unwrap().0;
        let used = nonce(&place).await;
        let device = enroll(&place, &holder, &key, &used).await.expect("enrolled");
        assert!(!device.approved && device.user == "ada");
        let status = enroll(&place, &holder, &key, &used).await.unwrap_err();
        assert!(status.message().contains("was used"), "{status}");
        let again = enroll(&place, &holder, &key, &nonce(&place).await).await.unwrap();
        assert_eq!(again.id, device.id, "the same key is the same device");
        let (eves, _) = place.log_in(&eve).await;
        let status = enroll(&place, &eves, &key, &nonce(&place).await)
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::AlreadyExists);
        let log_in = async |change: Change<'_>, by: &PrivateKey, nonce: Bytes| {
            let keys = Keys::fresh();
            let mut request = place.login_request(&ada, &keys);
            request.device = Some(proof(&device.id, by, &nonce, &keys));
            change(&mut request);
            let reply = place.stranger().await.login(request).await;
            reply.map(tonic::Response::into_inner)
        };
        let as_is = |_: &mut v1::LoginRequest| {};
        let before = log_in(&as_is, &key, nonce(&place).await)
            .await
            .expect("not approved yet");
        assert_eq!(device_of(&before), None);
        let id = v1::DeviceId {
            id: device.id.clone(),
        };
        assert!(
            place
                .admin()
                .await
                .approve_device(id.clone())
                .await
                .unwrap()
                .into_inner()
                .approved
        );
        let good = log_in(&as_is, &key, nonce(&place).await)
            .await
            .expect("the control");
        assert_eq!(device_of(&good), Some(device.id.clone()));
        // A login turns the clock on by half a minute; so a nonce of before two logins is old.
        let old = nonce(&place).await;
        let mine = Bytes::from_static(b"a nonce of my own, and as long  ");
        let other_keys = |r: &mut v1::LoginRequest| r.keys = Some(Keys::fresh().request());
        let unknown = |r: &mut v1::LoginRequest| r.device.as_mut().unwrap().device = "0".repeat(20);
        let table: [(&str, Change<'_>, &PrivateKey, Option<Bytes>); 5] = [
            ("signature", &as_is, &other, None),
            ("signature", &other_keys, &key, None),
            ("older than a minute", &as_is, &key, Some(old)),
            ("not known", &as_is, &key, Some(mine)),
            ("not known", &unknown, &key, None),
        ];
        for (words, change, by, shown) in table {
            let shown = match shown {
                Some(shown) => shown,
                None => nonce(&place).await,
            };
            let status = log_in(change, by, shown).await.unwrap_err();
            assert!(status.message().contains(words), "{words}: {status}");
        }
        // One that is removed counts no more, nor what was made with it.
        place.admin().await.remove_device(id).await.unwrap();
        let locks = place
            .admin()
            .await
            .locks(v1::Empty {})
            .await
            .unwrap()
            .into_inner()
            .locks;
        let mut locks = locks.into_iter();
        let lock = locks.find(|l| l.target.as_ref().unwrap().name == device.id);
        let id = lock.expect("a lock on the device").id;
        let stays = place
            .admin()
            .await
            .remove_lock(v1::LockId { id })
            .await
            .unwrap_err();
        assert!(stays.message().contains("fleetgate device enroll"), "{stays}");
        let status = log_in(&as_is, &key, nonce(&place).await).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        let devices = place
            .admin()
            .await
            .devices(v1::Empty {})
            .await
            .unwrap()
            .into_inner()
            .devices;
        assert_eq!(devices, []);
    });
}

#[test]
fn a_renewal_wants_the_device_again() {
    run(async {
        let place = Place::new().await;
        let role = v1::ApplyRoleRequest {
            text: "[role.checks]\nnodes = [\"*\"]\nlogins = [\"nagios\"]\nrenewal = \"30d\"\n".into(),
            dry_run: false,
        };
        place.admin().await.apply_role(role).await.unwrap();
        let ada = place.user("ada", &["checks"]).await;
        let (holder, _) = place.log_in(&ada).await;
        let key = PrivateKey::generate(KeyType::Ed25519, "").unwrap().0;
        let device = enroll(&place, &holder, &key, &nonce(&place).await).await.unwrap();
        let id = v1::DeviceId {
            id: device.id.clone(),
        };
        place.admin().await.approve_device(id).await.unwrap();
        let keys = Keys::fresh();
        let mut request = place.login_request(&ada, &keys);
        request.device = Some(proof(&device.id, &key, &nonce(&place).await, &keys));
        let login = place.stranger().await.login(request).await.unwrap().into_inner();
        assert_eq!(device_of(&login), Some(device.id.clone()), "the control");
        let chain = login.tls_chain.clone();
        let mut asks = IdentityClient::new(place.channel_of(&Holder { keys, chain }).await);
        let keys = Keys::fresh();
        let mut renewal = v1::RefreshRequest {
            keys: Some(keys.request()),
            renew: true,
            ..v1::RefreshRequest::default()
        };
        renewal.device = Some(proof(&device.id, &key, &nonce(&place).await, &keys));
        let with = asks.refresh(renewal.clone()).await.unwrap().into_inner();
        assert_eq!(device_of(&with), Some(device.id));
        // A copy of the login on another machine.
        renewal.device = None;
        let without = asks.refresh(renewal).await.unwrap().into_inner();
        assert_eq!(device_of(&without), None);
    });
}
