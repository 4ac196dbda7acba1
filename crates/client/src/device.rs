//! This device's own key: made once, kept in the login's directory, shown at each login. It never leaves.

use crate::error::ClientError;
use crate::profile::Home;
use crate::waiting::BoundedChannel;
use crate::{connect, files};
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_proto::v1::{ChallengeRequest, Device, DeviceProof, EnrollDeviceRequest, Keys};
use fleetgate_ssh::key::{KeyType, PrivateKey};
use std::path::Path;
use zeroize::Zeroizing;

/// In front of what the key signs at a login.
const PROOF: &[u8] = b"fleetgate-device-v1";
/// In front of what it signs when it is made known.
const ENROLL: &[u8] = b"fleetgate-enroll-v1";
/// What helps where a file of the device is damaged.
const ENROLL_AGAIN: &str = "remove it and run `fleetgate device enroll`";

/// Makes this device known under a name. A key that is there is used again.
pub async fn enroll(home: &Home, name: &str) -> Result<Device, ClientError> {
    let profile = home.login()?;
    let key = match key(home)? {
        Some(key) => key,
        None => {
            let (key, text) = PrivateKey::generate(KeyType::Ed25519, name)
                .map_err(|e| ClientError::Refused(format!("making a key: {e}")))?;
            files::write(&home.file("device"), 0o600, text.as_bytes())?;
            key
        }
    };
    let shown = connect::credentials(home)?;
    let mut auth = connect::identity(&profile.proxy, &connect::believe(home)?, Some(&shown)).await?;
    let nonce = auth.challenge(ChallengeRequest {}).await?.into_inner().nonce;
    let blob = key.public().blob().to_vec();
    let request = EnrollDeviceRequest {
        name: name.to_owned(),
        signature: sign(&key, &[ENROLL, &nonce, &blob])?.into(),
        key: blob.into(),
        nonce,
    };
    let device = auth.enroll_device(request).await?.into_inner();
    files::write(
        &home.file("device.id"),
        0o600,
        format!("{}\n", device.id).as_bytes(),
    )?;
    Ok(device)
}

/// The proof that a login comes from here; none where no device was made known.
pub(crate) async fn proof(
    auth: &mut IdentityClient<BoundedChannel>,
    home: &Home,
    keys: &Keys,
) -> Result<Option<DeviceProof>, ClientError> {
    let id = home.file("device.id");
    let (Some(key), true) = (key(home)?, id.exists()) else {
        return Ok(None);
    };
    let nonce = auth.challenge(ChallengeRequest {}).await?.into_inner().nonce;
    Ok(Some(DeviceProof {
        device: text_of(&id)?.trim().to_owned(),
        signature: sign(&key, &[PROOF, &nonce, &keys.ssh, &keys.tls])?.into(),
        nonce,
    }))
}

/// The device's id, as auth gave it.
fn text_of(id: &Path) -> Result<Zeroizing<String>, ClientError> {
    files::read_text(id).map_err(|e| match e {
        ClientError::Broken(path, why) => ClientError::Broken(path, format!("{why}; {ENROLL_AGAIN}")),
        e => e,
    })
}

fn key(home: &Home) -> Result<Option<PrivateKey>, ClientError> {
    let path = home.file("device");
    if !path.exists() {
        return Ok(None);
    }
    let text = files::read(&path)?;
    PrivateKey::parse(&text)
        .map(Some)
        .map_err(|e| ClientError::Broken(path, format!("{e}; {ENROLL_AGAIN}")))
}

fn sign(key: &PrivateKey, parts: &[&[u8]]) -> Result<Vec<u8>, ClientError> {
    key.sign("ssh-ed25519", &parts.concat())
        .map_err(|e| ClientError::Refused(format!("signing with the device's key: {e}")))
}
