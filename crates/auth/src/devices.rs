//! Devices: a key that stays on a user's machine, approved by an administrator. It proves that it is there by signing the
//! keys that a certificate is asked for.

use crate::audit::event;
use crate::cache;
use crate::caller::Caller;
use crate::documents::Device;
use crate::error::{Refused, Result};
use crate::ledger::Plan;
use crate::secret::fresh_id;
use crate::service::Service;
use bytes::Bytes;
use fleetgate_policy::cluster::{Lock, MAX_LIFETIME, Name, Target};
use fleetgate_proto::{signed, v1};
use fleetgate_ssh::key::{PublicKey, verify};
use fleetgate_store::Step;
use serde_json::json;

/// The most devices of one user.
pub const MAX_DEVICES: usize = 16;
/// The longest name of one.
pub const MAX_DEVICE_NAME: usize = 128;

/// A device that has signed.
#[derive(Clone, Debug)]
pub struct ShownDevice {
    /// Which.
    pub id: Name,
    /// Whether it counts; a login goes on without one that is not approved yet.
    pub approved: bool,
}

impl Service {
    /// A nonce to sign.
    pub fn challenge(&self, caller: &Caller) -> Result<v1::ChallengeReply> {
        self.bounded(caller)?;
        let nonce = self.challenges.give(self.ledger.uptime())?;
        Ok(v1::ChallengeReply {
            nonce: Bytes::copy_from_slice(&nonce),
        })
    }

    /// Makes a device known; an administrator approves it.
    pub async fn enroll_device(
        &self,
        caller: &Caller,
        request: v1::EnrollDeviceRequest,
    ) -> Result<v1::Device> {
        self.bounded(caller)?;
        let now = self.now();
        let (_, user) = caller.user(self)?;
        self.active_user(user)?;
        let name = request.name.trim();
        if name.is_empty() || name.len() > MAX_DEVICE_NAME || name.chars().any(char::is_control) {
            return Err(Refused::invalid(format!(
                "the name of a device has 1 to {MAX_DEVICE_NAME} bytes of one line"
            )));
        }
        let key =
            PublicKey::parse(&request.key).map_err(|e| Refused::invalid(format!("the device's key: {e}")))?;
        self.nonce(&request.nonce)?;
        signs(
            &key,
            &signed::enroll(&request.nonce, &request.key),
            &request.signature,
        )?;
        let id = fresh_id()?;
        let device = Device {
            user: user.clone(),
            name: name.to_string(),
            key: key.line(),
            approved: false,
            made: now,
        };
        self.change(|cache| {
                // The same key again is the same device.
                let mut known = cache.devices.iter().filter(|(_, d)| d.document.key == device.key);
                if let Some((id, known)) = known.next() {
                    if known.document.user != *user {
                        return Err(Refused::exists(
                            "the key is another user's device: make one for this account (fleetgate device enroll)",
                        ));
                    }
                    return Ok(Plan::new(shown(id, &known.document)));
                }
                let count = cache.devices.values().filter(|d| d.document.user == *user).count();
                if count >= MAX_DEVICES {
                    return Err(Refused::busy(format!(
                        "{user} has {MAX_DEVICES} devices, which is the most: have one removed (fleetgate device rm)"
                    )));
                }
                let event = self
                    .event(event::DEVICE_ENROLLED, caller)
                    .user(user.as_str())
                    .with("device", id.as_str())
                    .with("after", event_shown(&device));
                Ok(Plan::new(shown(&id, &device))
                    .step(cache::create(cache::key(&["devices", &id]), &device))
                    .event(event))
            })
            .await
    }

    /// All devices.
    pub fn devices(&self) -> v1::DevicesReply {
        let cache = self.cache();
        let devices = cache.devices.iter().map(|(id, d)| shown(id, &d.document));
        v1::DevicesReply {
            devices: devices.collect(),
        }
    }

    /// From the next login on it counts.
    pub async fn approve_device(&self, caller: &Caller, id: &str) -> Result<v1::Device> {
        self.change(|cache| {
            let stored = cache.devices.get(id).ok_or_else(unknown)?;
            let device = Device {
                approved: true,
                ..stored.document.clone()
            };
            let event = self
                .event(event::DEVICE_APPROVED, caller)
                .user(device.user.as_str())
                .with("device", id)
                .with("before", event_shown(&stored.document))
                .with("after", event_shown(&device));
            Ok(Plan::new(shown(id, &device))
                .step(cache::replace(
                    cache::key(&["devices", id]),
                    Some(stored.revision),
                    &device,
                ))
                .event(event))
        })
        .await
    }

    /// Certificates that were made with it die too.
    pub async fn remove_device(&self, caller: &Caller, id: &str) -> Result<()> {
        let now = self.now();
        self.change(|cache| {
            let stored = cache.devices.get(id).ok_or_else(unknown)?;
            let device = Name::parse(id).map_err(Refused::invalid)?;
            let lock_id = format!("removed-{id}");
            let lock = Lock {
                id: Name::parse(&lock_id).map_err(Refused::invalid)?,
                target: Target::Device(device),
                serial_before: None,
                expires: Some(now + MAX_LIFETIME.as_secs()),
                reason: "the device was removed".to_string(),
                created: now,
                by: caller.by(),
            };
            let event = self
                .event(event::DEVICE_REMOVED, caller)
                .user(stored.document.user.as_str())
                .with("device", id)
                .with("before", event_shown(&stored.document));
            Ok(Plan::new(())
                .step(Step::remove(cache::key(&["devices", id]), stored.revision))
                .step(cache::put(cache::key(&["locks", &lock_id]), &lock))
                .publish(cache, self.ledger.millis())
                .event(event))
        })
        .await
    }

    /// The device that a login or refresh shows to be there.
    pub(crate) fn device_shown(
        &self,
        user: &Name,
        keys: Option<&v1::Keys>,
        proof: Option<&v1::DeviceProof>,
    ) -> Result<Option<ShownDevice>> {
        let (Some(keys), Some(proof)) = (keys, proof) else {
            return Ok(None);
        };
        self.nonce(&proof.nonce)?;
        let device = {
            let cache = self.cache();
            let stored = cache.devices.get(&proof.device);
            let stored = stored.filter(|d| d.document.user == *user);
            stored.map(|d| d.document.clone())
        };
        let Some(device) = device else {
            return Err(Refused::forbidden(
                "the device is not known: it was removed, or it is another user's; remove the file device.id in \
                 ~/.fleetgate, log in, and run fleetgate device enroll again",
            ));
        };
        let key = PublicKey::from_line(&device.key)
            .map_err(|e| Refused::unavailable(format!("what the store holds of the device: {e}")))?;
        signs(&key, &signed::device(&proof.nonce, keys), &proof.signature)?;
        Ok(Some(ShownDevice {
            id: Name::parse(&proof.device).map_err(Refused::invalid)?,
            approved: device.approved,
        }))
    }

    /// Whether it is still the user's, and approved.
    pub(crate) fn device_approved(&self, user: &Name, device: &Name) -> bool {
        let cache = self.cache();
        let stored = cache.devices.get(device.as_str());
        stored.is_some_and(|d| d.document.approved && d.document.user == *user)
    }

    fn nonce(&self, nonce: &[u8]) -> Result<()> {
        match self.challenges.take(nonce, self.ledger.uptime()) {
            true => Ok(()),
            false => Err(Refused::unproven(
                "the challenge is not known, was used, or is older than a minute: try again",
            )),
        }
    }
}

fn signs(key: &PublicKey, message: &[u8], signature: &[u8]) -> Result<()> {
    verify(key, algorithm(signature), message, signature)
        .map(drop)
        .map_err(|e| Refused::unproven(format!("the device's signature: {e}")))
}

/// What the signature says it is made by; whether that fits the key is `verify`'s to say.
fn algorithm(signature: &[u8]) -> &str {
    fleetgate_ssh::codec::Reader::new(signature)
        .text("algorithm")
        .unwrap_or("")
}

fn unknown() -> Refused {
    Refused::missing("there is no such device: fleetgate device ls shows those there are")
}

fn shown(id: &str, device: &Device) -> v1::Device {
    v1::Device {
        id: id.to_string(),
        user: device.user.to_string(),
        name: device.name.clone(),
        approved: device.approved,
        created: device.made,
        fingerprint: PublicKey::from_line(&device.key).map_or(String::new(), |key| key.fingerprint()),
    }
}

fn event_shown(device: &Device) -> serde_json::Value {
    json!({ "name": device.name, "key": device.key, "approved": device.approved })
}
