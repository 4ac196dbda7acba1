//! Logging in: password and code for certificates, and the same identity again with something fresher. A wrong user, a
//! wrong password and a wrong code look the same, take the same time, and count the same.

use crate::book;
use crate::caller::{Caller, locked};
use crate::documents::{Secrets, Tries, User};
use crate::error::{Refused, Result};
use crate::issue::{self, UserKeys};
use crate::password::MAX_BYTES;
use crate::service::Service;
use crate::totp::Seed;
use crate::users::secrets_key;
use bytes::Bytes;
use fleetgate_policy::cluster::{Identity, MIN_LIFETIME, Name, Role, Subject, Target, lifetime_of};
use fleetgate_proto::v1;
use fleetgate_store::Step;
use zeroize::Zeroizing;

/// Logins that may fail one after the other before the next has to wait.
pub const FREE_TRIES: u32 = 5;
/// The longest wait, in seconds.
pub const MAX_WAIT: u64 = 300;
/// After so long without a try all is forgotten.
pub const FORGOTTEN: u64 = 3600;
/// The most names whose failures are kept one by one.
pub const MAX_TRIED: usize = 16_384;
/// The longest code that is looked at.
const MAX_CODE: usize = 32;

impl Service {
    /// Password and code for certificates.
    pub async fn login(&self, caller: &Caller, request: v1::LoginRequest) -> Result<v1::Credentials> {
        let password = Zeroizing::new(request.password);
        let code = Zeroizing::new(request.code);
        self.guess(caller)?;
        let keys = UserKeys::read(request.keys.as_ref())?;
        if password.len() > MAX_BYTES || code.len() > MAX_CODE {
            return Err(wrong());
        }
        // What cannot be a name is nobody's: it costs and says the same.
        let name = Name::parse(&request.user).ok();
        if let Some(name) = &name {
            self.count_try(name).await?;
        }
        let proven = self.prove(name.as_ref(), password, &code).await?;
        let Some((user, document, secrets, step)) = proven else {
            self.tell_wrong(caller, name.as_ref()).await?;
            return Err(wrong());
        };
        let now = self.now();
        let issued = self.begins(&user, now);
        let mut identity = Identity {
            cluster: self.cluster(),
            subject: Subject::User(user.clone()),
            roles: document.roles.clone(),
            issued,
            mfa: Some(now),
            device: None,
        };
        let device = match self.device_shown(&user, request.keys.as_ref(), request.device.as_ref()) {
            Ok(device) => device,
            Err(refused) => return Err(self.refuse_login(caller, &user, refused).await),
        };
        identity.device = device;
        if let Err(refused) = locked(&self.published(), &identity, now) {
            return Err(self.refuse_login(caller, &user, refused).await);
        }
        let roles = self.roles_of(&identity);
        let roles: Vec<&Role> = roles.iter().collect();
        let expires = now + lifetime(&roles, request.lifetime);
        let used = Secrets {
            used: step,
            ..secrets.document
        };
        let steps = vec![
            // Of two logins by one code the second finds this changed.
            book::replace(secrets_key(&user), Some(secrets.revision), &used),
            Step::delete(book::key(&["tries", user.as_str()])),
        ];
        let event = self
            .event("login", caller)
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
        let (identity, user) = caller.user(&published, now)?;
        let mut identity = identity.clone();
        let document = self.active_user(user)?;
        identity.roles = document.roles;
        let mut steps = Vec::new();
        if !code.is_empty() {
            self.guess(caller)?;
            self.count_try(user).await?;
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
                let event = self.event("login_refused", caller).user(user.as_str());
                self.ledger
                    .tell(event.with("reason", "the code is wrong"))
                    .await?;
                return Err(Refused::unproven(
                    "the code is wrong or was used: type the next one that your authenticator shows",
                ));
            };
            let used = Secrets {
                used,
                ..secrets.document
            };
            steps.push(book::replace(secrets_key(user), Some(secrets.revision), &used));
            steps.push(Step::delete(book::key(&["tries", user.as_str()])));
            identity.mfa = Some(now);
        }
        if let Some(device) = self.device_shown(user, request.keys.as_ref(), request.device.as_ref())? {
            identity.device = Some(device);
        } else if let Some(device) = &identity.device
            && !self.device_approved(user, device)
        {
            identity.device = None;
        }
        locked(&published, &identity, now)?;
        let roles = self.roles_of(&identity);
        let roles: Vec<&Role> = roles.iter().collect();
        // Never beyond the login that it came from: neither its certificate nor what the roles allow now.
        let end = identity.issued + lifetime_of(roles.iter().copied()).as_secs();
        let expires = caller.expires().min(end);
        if expires <= now {
            return Err(Refused::unproven("the login is over: run fleetgate login"));
        }
        let event = self
            .event("login_refreshed", caller)
            .user(user.as_str())
            .with("mfa", !code.is_empty())
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
        let known = caller.identity(&published, self.now()).is_ok();
        Ok(v1::HelloReply {
            cluster: published.state.cluster.to_string(),
            now: self.now(),
            state: known.then_some(published.signed),
            version: env!("CARGO_PKG_VERSION").to_string(),
        })
    }

    /// An active user.
    pub(crate) fn active_user(&self, name: &Name) -> Result<User> {
        let book = self.book();
        let stored = book.users.get(name.as_str()).filter(|u| u.document.active);
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
    ) -> Result<Option<(Name, User, book::Stored<Secrets>, u64)>> {
        let nobody = Name::parse("_").expect("a name");
        let name = name.unwrap_or(&nobody);
        let secrets = self.ledger.secret::<Secrets>(&secrets_key(name)).await?;
        let user = {
            let book = self.book();
            let stored = book.users.get(name.as_str()).filter(|u| u.document.active);
            stored.map(|s| s.document.clone())
        };
        let kept = secrets.as_ref().map(|s| &s.document.password);
        let fits = self.passwords.fits(password, kept).await?;
        let step = match &secrets {
            Some(s) => s.document.seed.step(code, self.now(), s.document.used),
            None => Seed::fresh()?.step(code, self.now(), u64::MAX),
        };
        Ok(match (fits, step, user, secrets) {
            (true, Some(step), Some(user), Some(secrets)) => Some((name.clone(), user, secrets, step)),
            _ => None,
        })
    }

    /// Counts a try as failed until it has succeeded, so that many at once are no more than one after the other. Names that
    /// nobody has count like others.
    async fn count_try(&self, name: &Name) -> Result<()> {
        loop {
            let now = self.now();
            let at = book::key(&["tries", name.as_str()]);
            let step = {
                let book = self.book();
                let stored = book.tries.get(name.as_str());
                if stored.is_none() && book.tries.len() >= MAX_TRIED {
                    return self.crowd(now);
                }
                let before = stored.map_or(Tries::default(), |s| s.document);
                let wait = wait(&before, now);
                if wait > 0 {
                    return Err(Refused::later("too many logins as this user have failed", wait));
                }
                let failed = match now.saturating_sub(before.last) < FORGOTTEN {
                    true => before.failed.saturating_add(1),
                    false => 1,
                };
                book::replace(at, stored.map(|s| s.revision), &Tries { failed, last: now })
            };
            if self.ledger.attempt(vec![step], Vec::new()).await? {
                return Ok(());
            }
        }
    }

    /// When a login as this user begins: behind every lock that ends older certificates.
    fn begins(&self, user: &Name, now: u64) -> u64 {
        let published = self.published.borrow();
        let target = Target::User(user.clone());
        let locks = published.state.locks.iter().filter(|l| l.target == target);
        let last = locks.filter_map(|l| l.issued_before).max().unwrap_or(0);
        // One that was set for the future is a lock.
        now.max(last.min(now + 1))
    }

    /// What was typed as a name is told only where it is a user's: it may have been the password.
    async fn tell_wrong(&self, caller: &Caller, name: Option<&Name>) -> Result<()> {
        let known = name.filter(|name| self.book().users.contains_key(name.as_str()));
        let event = self.event("login_refused", caller);
        let event = match known {
            Some(name) => event.user(name.as_str()),
            None => event,
        };
        self.ledger
            .tell(event.with("reason", "user, password or code is wrong"))
            .await
    }

    async fn refuse_login(&self, caller: &Caller, user: &Name, refused: Refused) -> Refused {
        let event = self.event("login_refused", caller).user(user.as_str());
        match self
            .ledger
            .tell(event.with("reason", refused.words.as_str()))
            .await
        {
            Ok(()) => refused,
            Err(failed) => failed,
        }
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
        })
    }
}

/// Seconds until the next try.
pub fn wait(tries: &Tries, now: u64) -> u64 {
    let since = now.saturating_sub(tries.last);
    if tries.failed < FREE_TRIES || since >= FORGOTTEN {
        return 0;
    }
    let wait = 1u64
        .checked_shl(tries.failed - FREE_TRIES)
        .unwrap_or(MAX_WAIT)
        .min(MAX_WAIT);
    wait.saturating_sub(since)
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
