//! One connection's way to its login: requests as the lobby received them, verified here, over the monitor's own session
//! id. It answers nobody by itself: each call gives the step that follows.

mod account;
mod calendar;
mod facts;
mod floor;
mod handler;
mod methods;
pub mod pam;
mod penalties;
mod publickey;
mod talk;

pub(crate) use handler::to_offer;

use super::cluster::Member;
use super::names::Lane;
use super::pam_turns::{Kind, Turn};
use super::timers;
use super::tools::Tools;
use super::trust::{Trust, Way};
use super::wakes::{Key, Owner};
use account::{allowed, closed};
use calendar::calendar;
use facts::Facts;
use fleetgate_launch::pam::PamSession;
use fleetgate_launch::{Begun, LaunchError, Running};
use fleetgate_policy::access::{self, Proof};
use fleetgate_policy::grant::{How, Identity};
use fleetgate_policy::{Login as Name, Permits};
use fleetgate_ssh::auth::{InfoResponse, Method, Request};
use fleetgate_ssh::key::{Restrictions, Visitor};
use fleetgate_sys::Errno;
use fleetgate_wire::common::Account;
use fleetgate_wire::names::Found;
use fleetgate_wire::node::{Connection, Prompt, Verdict};
use fleetgate_wire::pam::Secret;
use floor::Floor;
use methods::Progress;
use pam::{Conversation, Said};
use penalties::same_key;
use publickey::{Decision, Session};
use std::ffi::CString;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// DISCONNECT's reasons (RFC 4253 §11.1).
const PROTOCOL_ERROR: u32 = 2;
const NO_MORE_AUTH_METHODS: u32 = 14;
/// How long a login waits before it asks a resolver again whose socket was full.
const RESOLVER_FULL: Duration = Duration::from_millis(20);
/// How long PAM may take to each of its words once a session is being made.
const PAM_PATIENCE: Duration = Duration::from_secs(30);

/// What follows.
pub enum Step {
    /// Nothing yet: an answer is on its way.
    Wait,
    /// Say this.
    Say(Verdict),
    /// He is in.
    In(Box<Entry>),
    /// The process that asked is not honest.
    Violation(&'static str),
}

/// A login that was proven.
pub struct Entry {
    /// The account, as it is now.
    pub account: Account,
    /// Its name.
    pub login: Name,
    /// Who.
    pub identity: Identity,
    /// What he may do.
    pub permits: Permits,
    /// The same without what roles take away, which may change.
    pub base: Permits,
    /// As whom of the cluster.
    pub members: Vec<Member>,
    /// Until when, on the boot-time clock.
    pub expires: Option<Duration>,
    /// What PAM said that the user shall read.
    pub notes: Vec<u8>,
    /// PAM's conversation, accepted and not opened.
    pub pam: Option<PamSession>,
    /// PAM says that the password has to be changed before anything else.
    pub must_change_password: bool,
}

/// Where a login happens.
pub struct Scene<'a> {
    /// On which connection.
    pub connection: Connection,
    /// From where.
    pub source: IpAddr,
    /// By a proxy, whose word that is.
    pub tunnelled: bool,
    /// The monitor's session id; none: no key exchange was signed.
    pub session_id: Option<&'a [u8]>,
    /// The host key that it began with.
    pub host_key: &'a [u8],
    /// For what is asked.
    pub tools: &'a mut Tools,
    /// What refusals are told to.
    pub refusals: &'a mut Vec<Refusal>,
}

/// A refusal, for log and audit.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Whom it was for, as asked.
    pub login: String,
    /// By which way.
    pub method: String,
    /// Why.
    pub reason: String,
    /// The cluster's user, where it is known.
    pub user: Option<String>,
    /// The role or lock that refused.
    pub rule: Option<String>,
}

/// The state.
pub struct Login {
    trust: Arc<Trust>,
    user: Option<Vec<u8>>,
    progress: Progress,
    attempts: u32,
    facts: Facts,
    proven: Vec<(How, Restrictions)>,
    /// Those of them that are of the cluster.
    members: Vec<Member>,
    /// The request that is being decided.
    pending: Option<Zeroizing<Vec<u8>>>,
    talk: Option<Talk>,
    /// A conversation that waits for its turn.
    queued: Option<Purpose>,
    floor: Floor,
    /// What PAM said beside its questions, and nobody has read yet.
    notes: Vec<u8>,
    /// A conversation that PAM accepted.
    accepted: Option<Conversation>,
    /// That one says so of the password.
    must_change_password: bool,
    /// Its source was charged for wrong passwords.
    was_charged: bool,
    /// The last key that would not do, unless something else was refused since: told when the connection ends.
    refused_key: Option<String>,
}

struct Talk {
    conversation: Conversation,
    purpose: Purpose,
    /// So many answers are awaited of the user.
    asked: Option<usize>,
    /// PAM's messages, to be shown with the next question, or with the verdict.
    notes: Vec<u8>,
    /// It asked what has no answer here: what the log says of it.
    unanswered: Option<&'static str>,
}

enum Purpose {
    /// Answer with this, once.
    Password(Option<Zeroizing<Vec<u8>>>),
    /// Hand questions on.
    Interactive,
    /// Nobody is asked: may the account come in?
    Account,
}

impl Login {
    /// Nothing was asked yet.
    pub fn new(trust: Arc<Trust>) -> Login {
        Login {
            user: None,
            progress: Progress::new(&trust.required, &trust.ways),
            trust,
            attempts: 0,
            facts: Facts::default(),
            proven: Vec::new(),
            members: Vec::new(),
            pending: None,
            talk: None,
            queued: None,
            floor: Floor::default(),
            notes: Vec::new(),
            accepted: None,
            must_change_password: false,
            was_charged: false,
            refused_key: None,
        }
    }

    /// Whether it talks to PAM, or waits for its turn to.
    pub fn needs_turn(&self) -> bool {
        self.talk.is_some() || self.queued.is_some()
    }

    /// Its turn to talk to PAM has come.
    pub fn take_turn(&mut self, scene: &mut Scene<'_>) -> Step {
        match self.queued.take() {
            Some(purpose) => self.talk(purpose, scene),
            None => Step::Wait,
        }
    }

    /// A USERAUTH_REQUEST.
    pub fn asked(&mut self, request: Vec<u8>, scene: &mut Scene<'_>) -> Step {
        let request = Zeroizing::new(request);
        if scene.session_id.is_none() {
            return Step::Violation("a login before the first key exchange was signed");
        }
        match self.talk.take() {
            // The user gives up what he was asked, and tries something else.
            Some(talk) if talk.asked.is_some() => {
                talk.conversation.abort();
                self.pending = None;
                self.progress.failed(u32::MAX);
            }
            talk => self.talk = talk,
        }
        if self.pending.is_some() || self.floor.is_holding() {
            return Step::Violation("a login request before the last one was answered");
        }
        self.attempts += 1;
        self.pending = Some(request);
        self.go(scene)
    }

    /// A USERAUTH_INFO_RESPONSE.
    pub fn answered(&mut self, mut response: Vec<u8>, scene: &mut Scene<'_>) -> Step {
        let parsed = InfoResponse::parse(&response);
        response.zeroize();
        let Some((talk, asked)) = self.talk.as_mut().and_then(|t| t.asked.take().map(|n| (t, n))) else {
            return end(PROTOCOL_ERROR, c"an answer to a question that was not asked");
        };
        let Ok(parsed) = parsed else {
            return end(PROTOCOL_ERROR, c"the answers cannot be read");
        };
        if parsed.answers.len() != asked {
            return end(
                PROTOCOL_ERROR,
                c"as many answers are wanted as there were questions",
            );
        }
        let secrets: Option<Vec<Secret>> = parsed.answers.iter().map(|a| pam::secret(a)).collect();
        match secrets {
            Some(secrets) => {
                talk.conversation.answer(secrets);
                Step::Wait
            }
            None => {
                talk.conversation.abort();
                self.fail("an answer holds a zero byte, or is too long", scene)
            }
        }
    }

    /// The resolver's answer.
    pub fn named(&mut self, found: Found, scene: &mut Scene<'_>) -> Step {
        if let Err(why) = self.facts.named(found) {
            tracing::warn!(connection = scene.connection, "{why}");
        }
        self.go(scene)
    }

    /// The key files.
    pub fn read(&mut self, outcome: Result<(Running, Begun), LaunchError>, scene: &mut Scene<'_>) -> Step {
        let user = self.user.clone().unwrap_or_default();
        self.facts.read(&user, outcome, &self.trust, scene.tools);
        self.go(scene)
    }

    /// PAM says something, or had no room for the conversation a moment ago; or a refusal was held until now.
    pub fn heard(&mut self, scene: &mut Scene<'_>) -> Step {
        if let Some(verdict) = self.floor.take() {
            return Step::Say(verdict);
        }
        if self.queued.is_some() && scene.tools.pam_turns.is_running(scene.connection) {
            return self.take_turn(scene);
        }
        while let Some(talk) = &mut self.talk {
            match talk.conversation.hear() {
                Said::Nothing => return Step::Wait,
                Said::Ask(prompts) => {
                    if let Some(step) = self.prompted(prompts) {
                        return step;
                    }
                }
                Said::Accepted(user, must_change) => {
                    self.must_change_password = must_change;
                    return self.accepted(&user, scene);
                }
                Said::Refused { why, at } => return self.turned_away(&why, at, scene),
                Said::Broken(why) => {
                    let why = talk.unanswered.map_or(why, str::to_owned);
                    return self.fail(&why, scene);
                }
            }
        }
        Step::Wait
    }

    /// Goes on with the pending request as far as what is known reaches.
    fn go(&mut self, scene: &mut Scene<'_>) -> Step {
        let Some(bytes) = self.pending.take() else {
            return Step::Wait;
        };
        let step = match Request::parse(&bytes) {
            Ok(request) => self.decide(&request, scene),
            Err(e) => {
                tracing::debug!(
                    connection = scene.connection,
                    "a login request cannot be read: {e}"
                );
                end(PROTOCOL_ERROR, c"the login request cannot be read")
            }
        };
        // Only a request that still waits is kept.
        if matches!(step, Step::Wait) {
            self.pending = Some(bytes);
        }
        step
    }

    fn decide(&mut self, request: &Request<'_>, scene: &mut Scene<'_>) -> Step {
        if request.service != "ssh-connection" {
            return end(PROTOCOL_ERROR, c"there is no such service");
        }
        let user = self.user.get_or_insert_with(|| request.user.to_vec()).clone();
        if user != request.user {
            return end(PROTOCOL_ERROR, c"the user name may not change");
        }
        let way = match &request.method {
            // The first is how clients ask what there is.
            Method::None if self.attempts == 1 => return self.rejected(false),
            Method::None => return self.refuse("none", "the method none", scene),
            Method::PublicKey(_) => Way::PublicKey,
            Method::Password { .. } => Way::Password,
            Method::KeyboardInteractive { .. } => Way::KeyboardInteractive,
            Method::Other { .. } => return self.refuse("other", "a method that is not there", scene),
        };
        if !self.progress.open().contains(&way) {
            return self.refuse(way.name(), "the method is not open", scene);
        }
        self.floor.begin();
        let key = Key::new(Owner::Logins, scene.connection);
        let trust = self.trust.clone();
        let wants_files = way == Way::PublicKey;
        let Some(known) = self.facts.gather(
            &user,
            wants_files,
            &trust,
            scene.tools,
            (Lane::of(scene.source), key),
        ) else {
            return Step::Wait;
        };
        let name = Name::parse(&user).ok();
        let closed = name.as_ref().and_then(|_| closed(known.account, scene));
        let allowed = match (known.account, &name) {
            (Some(account), Some(name)) => allowed(account, name, known.groups, &trust, scene),
            _ => Err("there is no such account".to_owned()),
        };
        match &request.method {
            Method::PublicKey(request) => {
                let (now, utc_offset) = calendar();
                let visitor = Visitor {
                    login: name.as_ref().map_or("", Name::as_str),
                    source: scene.source,
                    now,
                    skew: trust.skew,
                    utc_offset,
                    environment: trust.user_environment,
                };
                let session = Session {
                    id: scene.session_id.unwrap_or_default(),
                    host_key: scene.host_key,
                };
                let decision = publickey::decide(
                    request,
                    session,
                    &visitor,
                    known.files,
                    &trust,
                    scene.tools.cluster.as_ref(),
                );
                let is_query = request.signature.is_none();
                let (allowed, decision) = match closed {
                    Some(closed) => (
                        Ok(()),
                        publickey::without_account(
                            decision,
                            visitor.login,
                            &closed,
                            scene.tools.cluster.as_ref(),
                        ),
                    ),
                    None => (allowed, decision),
                };
                match (allowed, decision) {
                    (Ok(()), Decision::Would) => Step::Say(Verdict::KeyOk),
                    (
                        Ok(()),
                        Decision::Proven {
                            how,
                            restrictions,
                            member,
                        },
                    ) => self.proven(way, how, *restrictions, member.map(|m| *m), scene),
                    (Ok(()), Decision::Denied(denied)) => {
                        let publickey::Denied { user, refusal } = *denied;
                        self.deny(way.name(), user, refusal, scene)
                    }
                    (Err(why), _) | (_, Decision::Refused(why)) if is_query => {
                        tracing::debug!(connection = scene.connection, "a key would not do: {why}");
                        self.refused_key = Some(why);
                        self.rejected_counted(scene)
                    }
                    (Err(why), _) | (_, Decision::Refused(why)) => self.refuse(way.name(), &why, scene),
                }
            }
            Method::Password { new: Some(_), .. } => self.refuse(
                way.name(),
                "passwords are not changed this way: use keyboard-interactive",
                scene,
            ),
            Method::Password { password, .. } => {
                // Who may not come in at all is asked for his password as everybody, and it is wrong.
                let password = match &allowed {
                    Ok(()) => Zeroizing::new(password.to_vec()),
                    Err(_) => Zeroizing::new(b"\x08\n\r\x7f".to_vec()),
                };
                self.talk(Purpose::Password(Some(password)), scene)
            }
            _ => self.talk(Purpose::Interactive, scene),
        }
    }

    /// Begins a conversation.
    fn talk(&mut self, purpose: Purpose, scene: &mut Scene<'_>) -> Step {
        let config = scene.tools.config.clone();
        let method = purpose.method();
        if let Some(why) = self.why_no_password(&purpose, scene) {
            return self.refuse(method, &why, scene);
        }
        // libpam would go by the service `other` instead, which lets in whom nobody wrote a rule for.
        if !pam::service_is_there(&config) {
            let why = format!("pam is on and /etc/pam.d/{} is not there", config.pam_service);
            return self.refuse(method, &why, scene);
        }
        let turn = Turn {
            kind: match &purpose {
                Purpose::Interactive => Kind::Conversation,
                Purpose::Password(_) | Purpose::Account => Kind::Decision,
            },
            proven: self.has_key(),
            tunnelled: scene.tunnelled,
        };
        let turns = &mut scene.tools.pam_turns;
        if !turns.begin(
            scene.connection,
            turn,
            config.strangers.source(scene.source),
            &config.limits,
        ) {
            tracing::debug!(
                connection = scene.connection,
                method,
                "a login waits for its turn at PAM"
            );
            self.queued = Some(purpose);
            return Step::Wait;
        }
        let string = |bytes: Vec<u8>| CString::new(bytes).unwrap_or_default();
        let start = pam::start(
            &string(config.pam_service.clone().into_bytes()),
            &string(self.user.clone().unwrap_or_default()),
            &string(scene.source.to_canonical().to_string().into_bytes()),
            (
                !matches!(purpose, Purpose::Account),
                matches!(purpose, Purpose::Interactive),
            ),
            config.limits.login_grace.0,
        );
        let key = Key::new(Owner::Logins, scene.connection);
        match Conversation::begin(&scene.tools.resolver, start, &scene.tools.wakes, key) {
            Ok(conversation) => {
                self.talk = Some(Talk {
                    conversation,
                    purpose,
                    asked: None,
                    notes: Vec::new(),
                    unanswered: None,
                });
                Step::Wait
            }
            // Many begin at once: the resolver has read none of the last ones yet.
            Err(Errno::EAGAIN) => {
                self.queued = Some(purpose);
                scene.tools.timers.after(RESOLVER_FULL, key);
                Step::Wait
            }
            Err(e) => self.fail(&format!("the resolver takes no conversation: {e}"), scene),
        }
    }

    /// One way was gone to its end.
    fn proven(
        &mut self,
        way: Way,
        how: How,
        restrictions: Restrictions,
        member: Option<Member>,
        scene: &mut Scene<'_>,
    ) -> Step {
        let by_role = |member: &Member| member.allowed.permits.only_named();
        let proof = match way {
            Way::PublicKey => Proof::Key {
                forced: publickey::is_forced(&restrictions) || member.as_ref().is_some_and(by_role),
            },
            _ => Proof::Password,
        };
        if let Some(account) = self.facts.account() {
            let account = access::Account {
                name: account.name.to_str().unwrap_or_default(),
                uid: account.ids.uid,
                groups: &[],
            };
            if let Err(denied) = self.trust.access.root().allow(&account, proof) {
                return self.refuse(way.name(), &denied.to_string(), scene);
            }
        }
        if self.proven.iter().any(|(earlier, _)| same_key(earlier, &how)) {
            return self.refuse(
                way.name(),
                "the same key again, where another is asked for",
                scene,
            );
        }
        self.proven.push((how, restrictions));
        self.members.extend(member);
        self.pending = None;
        if !self.progress.went(way) {
            return self.rejected(true);
        }
        if scene.tools.pam && self.accepted.is_none() {
            let step = self.talk(Purpose::Account, scene);
            if matches!(step, Step::Wait) {
                // What the lobby waits for; it is not looked at again.
                self.pending = Some(Zeroizing::default());
            }
            return step;
        }
        self.enter(scene)
    }

    /// Whether a key or certificate was proven.
    fn has_key(&self) -> bool {
        let is_key = |how: &How| matches!(how, How::Key { .. } | How::Certificate { .. });
        self.proven.iter().any(|(how, _)| is_key(how))
    }

    /// All was proven.
    fn enter(&mut self, scene: &mut Scene<'_>) -> Step {
        let name = self.user.as_deref().and_then(|u| Name::parse(u).ok());
        let (Some(account), Some(login)) = (self.facts.account().cloned(), name) else {
            return self.fail("there is no such account", scene);
        };
        let mut all = publickey::unrestricted();
        let mut proven = Vec::new();
        for (how, restrictions) in std::mem::take(&mut self.proven) {
            all = match all.and(restrictions) {
                Ok(both) => both,
                Err(denied) => return self.fail(&denied.to_string(), scene),
            };
            proven.push(how);
        }
        let (now, _) = calendar();
        // A lock of the node or the account is for whoever comes without the cluster, too.
        let lock = scene
            .tools
            .cluster
            .as_ref()
            .and_then(|c| c.locked(login.as_str(), now));
        if let Some(refusal) = lock.map(fleetgate_policy::cluster::Lock::refusal) {
            return self.deny("login", None, refusal, scene);
        }
        // While PAM was asked the state may have changed.
        let mut members = std::mem::take(&mut self.members);
        if let Some(cluster) = &scene.tools.cluster {
            let again = members.iter_mut().find_map(|member| {
                let decided = member.decide_again(cluster, login.as_str(), now, self.trust.skew);
                let user = member.user().map(ToString::to_string);
                decided.err().map(|refusal| (user, refusal))
            });
            if let Some((user, refusal)) = again {
                return self.deny("login", user, refusal, scene);
            }
        }
        let base = all.permits.within(self.trust.permits.clone());
        let mut permits = base.clone();
        for member in &members {
            permits = match member.within(permits) {
                Ok(permits) => permits,
                Err(denied) => return self.fail(&denied.to_string(), scene),
            };
        }
        if let Err(denied) = permits.name_commands(&self.trust.commands) {
            return self.fail(&denied.to_string(), scene);
        }
        let expires = all
            .expires
            .map(|end| timers::now() + Duration::from_secs(end.saturating_sub(now)));
        let pam = self
            .accepted
            .take()
            .map(|conversation| conversation.into_session(&scene.tools.wakes, PAM_PATIENCE));
        Step::In(Box::new(Entry {
            account,
            login,
            identity: Identity { proven },
            permits,
            base,
            members,
            expires,
            notes: talk::lines(&std::mem::take(&mut self.notes)),
            pam,
            must_change_password: self.must_change_password,
        }))
    }

    /// A refusal of what is pending.
    fn fail(&mut self, why: &str, scene: &mut Scene<'_>) -> Step {
        let queued = self.queued.take();
        let purpose = self.talk.take().map(|t| t.purpose).or(queued);
        self.refuse(purpose.as_ref().map_or("login", Purpose::method), why, scene)
    }

    fn refuse(&mut self, method: &str, why: &str, scene: &mut Scene<'_>) -> Step {
        self.note(method, why, (None, None), scene);
        self.rejected_counted(scene)
    }

    /// A refusal that its user, who has proven who he is, reads himself.
    fn deny(
        &mut self,
        method: &str,
        user: Option<String>,
        refusal: fleetgate_policy::cluster::Refusal,
        scene: &mut Scene<'_>,
    ) -> Step {
        self.note(method, &refusal.words, (user, Some(refusal.rule)), scene);
        self.rejected_for(refusal.words, scene)
    }

    fn note(
        &mut self,
        method: &str,
        why: &str,
        (user, rule): (Option<String>, Option<String>),
        scene: &mut Scene<'_>,
    ) {
        self.refused_key = None;
        scene.refusals.push(Refusal {
            login: String::from_utf8_lossy(self.user.as_deref().unwrap_or_default()).into_owned(),
            method: method.to_owned(),
            reason: why.to_owned(),
            user: user.or_else(|| self.proven_user()),
            rule,
        });
    }

    fn rejected_counted(&mut self, scene: &Scene<'_>) -> Step {
        self.pending = None;
        self.talk = None;
        self.queued = None;
        if self.progress.failed(scene.tools.config.limits.tries) {
            return end(NO_MORE_AUTH_METHODS, c"too many tries to log in");
        }
        self.rejected(false)
    }

    /// The same, and the user reads why.
    fn rejected_for(&mut self, words: String, scene: &Scene<'_>) -> Step {
        match self.rejected_counted(scene) {
            Step::Say(Verdict::Rejected { methods, .. }) => Step::Say(Verdict::Refused {
                methods,
                words: CString::new(words).unwrap_or_default(),
            }),
            end => end,
        }
    }

    fn rejected(&mut self, partial: bool) -> Step {
        self.pending = None;
        let open = self.progress.open();
        let methods = open
            .iter()
            .filter_map(|way| CString::new(way.name()).ok())
            .collect();
        Step::Say(Verdict::Rejected { methods, partial })
    }
}

fn end(reason: u32, text: &std::ffi::CStr) -> Step {
    Step::Say(Verdict::End {
        reason,
        text: text.into(),
    })
}

#[cfg(test)]
mod tests;
