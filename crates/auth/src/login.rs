//! Logging in: password and code for certificates, and the same identity again with something fresher. A wrong user, a
//! wrong password and a wrong code look the same, take the same time, and count the same.

use crate::audit::event;
use crate::buffers::Line;
use crate::cache;
use crate::caller::{Caller, Origin};
use crate::documents::{Secrets, User};
use crate::error::{Refused, Result};
use crate::issue::{self, UserKeys};
use crate::password::MAX_BYTES;
use crate::proof::locked;
use crate::service::Service;
use crate::totp::Seed;
use crate::users::secrets_key;
use bytes::Bytes;
use fleetgate_policy::cluster::{Identity, MIN_LIFETIME, Name, Role, Subject, lifetime_of, renewal_of};
use fleetgate_proto::v1;
use zeroize::Zeroizing;

/// The longest code that is looked at.
const MAX_CODE: usize = 32;

impl Service {
    /// Password and code for certificates.
    pub async fn login(&self, caller: &Caller, request: v1::LoginRequest) -> Result<v1::Credentials> {
        let password = Zeroizing::new(request.password);
        let code = Zeroizing::new(request.code);
        // What cannot be a name is nobody's: it costs and says the same.
        let name = Name::parse(&request.user).ok();
        // A device that signs is counted by itself, whoever else is at its address. What it says counts further below.
        let device = match &name {
            Some(name) => self.device_shown(name, request.keys.as_ref(), request.device.as_ref()),
            None => Ok(None),
        };
        let origin = match &device {
            Ok(Some(device)) => Origin::Device(device.id.clone()),
            _ => Origin::of(caller),
        };
        if let Err(refused) = self.guess_by(caller, &origin) {
            return Err(self.refuse_try(caller, None, refused).await);
        }
        long_enough(request.lifetime)?;
        let keys = UserKeys::read(request.keys.as_ref())?;
        if password.len() > MAX_BYTES || code.len() > MAX_CODE {
            return Err(self.refuse_try(caller, name.as_ref(), wrong()).await);
        }
        let line = match &name {
            Some(name) => match self.count_try(name, &origin).await {
                Ok(line) => line,
                Err(refused) => return Err(self.refuse_try(caller, Some(name), refused).await),
            },
            None => Line::Source(caller.source()),
        };
        let proven = self.prove(name.as_ref(), password, &code, line).await?;
        let Some((user, document, secrets, step)) = proven else {
            return Err(self.refuse_try(caller, name.as_ref(), wrong()).await);
        };
        let (document, serial) = document;
        let now = self.now();
        self.note_time(now).await?;
        let mut identity = Identity {
            cluster: self.cluster(),
            subject: Subject::User(user.clone()),
            roles: document.roles.clone(),
            issued: now,
            serial,
            mfa: Some(now),
            device: None,
            ends: None,
        };
        identity.device = match device {
            Ok(device) => device.filter(|d| d.approved).map(|d| d.id),
            Err(refused) => return Err(self.refuse_login(caller, &user, refused).await),
        };
        if let Err(refused) = locked(&self.published(), &identity, now) {
            return Err(self.refuse_login(caller, &user, refused).await);
        }
        let roles = self.roles_of(&identity);
        let roles: Vec<&Role> = roles.iter().collect();
        let expires = now + lifetime(&roles, request.lifetime);
        // A user who asks for a short login, on a foreign machine for example, gets no longer one by a renewal.
        identity.ends = (request.lifetime > 0).then_some(expires);
        let used = Secrets {
            used: step,
            ..secrets.document
        };
        let mut steps = vec![
            // Of two logins by one code the second finds this changed.
            cache::replace(secrets_key(&user), Some(secrets.revision), &used),
        ];
        steps.extend(self.succeeded(&user, &origin, caller));
        let event = self
            .event(event::LOGIN, caller)
            .user(user.as_str())
            .with("device", identity.device.as_ref().map_or("", Name::as_str))
            .with("expires", crate::clock::rfc3339(expires * 1000));
        if !self.ledger.attempt(steps, vec![event]).await? {
            return Err(wrong());
        }
        self.certify(&identity, &roles, &keys, expires).await
    }

    /// The same identity with new keys, and with a fresh second factor or a device, if they are shown.
    pub async fn refresh(&self, caller: &Caller, request: v1::RefreshRequest) -> Result<v1::Credentials> {
        let code = Zeroizing::new(request.code);
        self.bounded(caller)?;
        let keys = UserKeys::read(request.keys.as_ref())?;
        let (published, now) = (self.published(), self.now());
        let (identity, user) = caller.user(self)?;
        let mut identity = identity.clone();
        let document = self.active_user(user)?;
        identity.roles = document.roles;
        let mut steps = Vec::new();
        if !code.is_empty() {
            // Strangers cannot have the login's certificate, so nothing that they try counts here.
            let origin = Origin::Login(user.clone(), identity.issued);
            let may_try = match self.guess_by(caller, &origin) {
                Ok(()) => self.count_try(user, &origin).await.map(drop),
                Err(refused) => Err(refused),
            };
            if let Err(refused) = may_try {
                return Err(self.refuse_login(caller, user, refused).await);
            }
            let secrets = self
                .ledger
                .secret::<Secrets>(&secrets_key(user))
                .await?
                .ok_or_else(wrong)?;
            let step = match code.len() <= MAX_CODE {
                true => secrets.document.seed.step(&code, now, secrets.document.used),
                false => None,
            };
            let Some(used) = step else {
                let refused = Refused::unproven(
                    "the code is wrong or was used: type the next one that your authenticator shows",
                );
                return Err(self.refuse_login(caller, user, refused).await);
            };
            let used = Secrets {
                used,
                ..secrets.document
            };
            steps.push(cache::replace(secrets_key(user), Some(secrets.revision), &used));
            steps.extend(self.succeeded(user, &origin, caller));
            identity.mfa = Some(now);
        }
        let shown = self.device_shown(user, request.keys.as_ref(), request.device.as_ref())?;
        // First: a login whose device is locked cannot go on by leaving the device out.
        locked(&published, &identity, now)?;
        if let Some(device) = shown.filter(|d| d.approved) {
            identity.device = Some(device.id);
        } else if request.renew {
            // A renewal needs the device's signature again.
            identity.device = None;
        } else if let Some(device) = &identity.device
            && !self.device_approved(user, device)
        {
            identity.device = None;
        }
        locked(&published, &identity, now)?;
        let roles = self.roles_of(&identity);
        let roles: Vec<&Role> = roles.iter().collect();
        let most = lifetime_of(roles.iter().copied()).as_secs();
        let renewable = renewable(&identity, &roles);
        // Never beyond what the roles allow now; and without a renewal not beyond the certificate that it came from.
        let expires = match request.renew {
            true => (now + most).min(renewable.ok_or_else(not_renewable)?),
            false => caller
                .expires()
                .min(now + most)
                .min(renewable.unwrap_or(identity.issued + most)),
        };
        if expires <= now {
            return Err(Refused::unproven("the login is over: run fleetgate login"));
        }
        let event = self
            .event(event::LOGIN_REFRESHED, caller)
            .user(user.as_str())
            .with("mfa", !code.is_empty())
            .with("renewed", request.renew)
            .with("device", identity.device.as_ref().map_or("", Name::as_str));
        if !self.ledger.attempt(steps, vec![event]).await? {
            return Err(Refused::unproven("the code was used: type the next one"));
        }
        self.certify(&identity, &roles, &keys, expires).await
    }

    /// The cluster as everybody may know it; the state only for those who belong to it.
    pub fn hello(&self, caller: &Caller) -> Result<v1::HelloReply> {
        self.bounded(caller)?;
        let published = self.published();
        let known = caller.identity(self).is_ok();
        Ok(v1::HelloReply {
            cluster: published.state.cluster.to_string(),
            now: self.now(),
            state: known.then_some(published.signed),
            version: env!("CARGO_PKG_VERSION").to_string(),
        })
    }

    /// An active user.
    pub(crate) fn active_user(&self, name: &Name) -> Result<User> {
        let cache = self.cache();
        let stored = cache.users.get(name.as_str()).filter(|u| u.document.active);
        stored.map(|s| s.document.clone()).ok_or_else(|| {
            Refused::forbidden(format!(
                "the user {name} was removed or has to accept an invite first"
            ))
        })
    }

    /// The roles of an identity that there are.
    pub(crate) fn roles_of(&self, identity: &Identity) -> Vec<Role> {
        let published = self.published.borrow();
        let roles = &published.state.roles;
        identity
            .roles
            .iter()
            .filter_map(|r| roles.get(r).cloned())
            .collect()
    }

    async fn prove(
        &self,
        name: Option<&Name>,
        password: Zeroizing<String>,
        code: &str,
        line: Line,
    ) -> Result<Option<(Name, (User, u64), cache::Stored<Secrets>, u64)>> {
        let nobody = Name::parse("_").expect("a name");
        let name = name.unwrap_or(&nobody);
        let secrets = self.ledger.secret::<Secrets>(&secrets_key(name)).await?;
        let user = {
            let cache = self.cache();
            let stored = cache.users.get(name.as_str()).filter(|u| u.document.active);
            // Together: whoever changes the user after this ends what comes of it.
            stored.map(|s| (s.document.clone(), cache.last_serial()))
        };
        let kept = secrets.as_ref().map(|s| &s.document.password);
        let fits = self.passwords.fits(password, kept, line).await?;
        let step = match &secrets {
            Some(s) => s.document.seed.step(code, self.now(), s.document.used),
            None => Seed::fresh()?.step(code, self.now(), u64::MAX),
        };
        Ok(match (fits, step, user, secrets) {
            (true, Some(step), Some(user), Some(secrets)) => Some((name.clone(), user, secrets, step)),
            _ => None,
        })
    }

    /// What was typed as a name is told only where it is a user's: it may have been the password.
    async fn refuse_try(&self, caller: &Caller, name: Option<&Name>, refused: Refused) -> Refused {
        let known = name.filter(|name| self.cache().users.contains_key(name.as_str()));
        let event = self.event(event::LOGIN_REFUSED, caller);
        let event = match known {
            Some(name) => event.user(name.as_str()),
            None => event,
        };
        self.refuse(caller, false, event, refused).await
    }

    /// Refuses a user who has proven who he is.
    async fn refuse_login(&self, caller: &Caller, user: &Name, refused: Refused) -> Refused {
        let event = self.event(event::LOGIN_REFUSED, caller).user(user.as_str());
        self.refuse(caller, true, event, refused).await
    }

    async fn certify(
        &self,
        identity: &Identity,
        roles: &[&Role],
        keys: &UserKeys,
        expires: u64,
    ) -> Result<v1::Credentials> {
        let made = issue::user(&self.signers, identity, roles, keys, self.now(), expires).await?;
        Ok(v1::Credentials {
            ssh_certificate: Bytes::from(made.ssh),
            tls_chain: made.tls,
            expires,
            state: Some(self.published().signed),
            user: identity.user().map_or(String::new(), Name::to_string),
            roles: identity.roles.iter().map(Name::to_string).collect(),
            logins: made.logins,
            renewable: renewable(identity, roles).unwrap_or_default(),
        })
    }
}

/// That a lifetime that is asked for can be given: a shorter one than the least would be changed.
fn long_enough(wanted: u32) -> Result<()> {
    let least = MIN_LIFETIME.as_secs();
    match u64::from(wanted) {
        wanted if wanted > 0 && wanted < least => Err(Refused::invalid(format!(
            "a login lasts {least} s at least, not {wanted} s"
        ))),
        _ => Ok(()),
    }
}

/// Until when a login can be renewed with nobody there, where its roles let it.
fn renewable(identity: &Identity, roles: &[&Role]) -> Option<u64> {
    let renewal = renewal_of(roles.iter().copied())?;
    let end = identity.issued + renewal.as_secs();
    identity.ends.is_none().then_some(end)
}

fn not_renewable() -> Refused {
    Refused::forbidden(
        "this login cannot be renewed: it was made with a time of its own (`--ttl`), or not each of its roles has `renewal`; run \
         fleetgate login",
    )
}

fn lifetime(roles: &[&Role], wanted: u32) -> u64 {
    let most = lifetime_of(roles.iter().copied()).as_secs();
    match u64::from(wanted) {
        0 => most,
        wanted => wanted.clamp(MIN_LIFETIME.as_secs(), most.max(MIN_LIFETIME.as_secs())),
    }
}

fn wrong() -> Refused {
    Refused::unproven("user, password or code is wrong; a code is good once: type the next one")
}
