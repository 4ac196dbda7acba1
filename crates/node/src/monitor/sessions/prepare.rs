//! What a session waits for between its admission and its launch: the account of a command that runs as another, its SELinux
//! context, and xauth for X11.

use super::helper_checks;
use super::{About, Session, Sessions, State, key, text};
use crate::monitor::names::Lane;
use crate::monitor::tools::Tools;
use crate::monitor::x11;
use fleetgate_launch::LaunchOutcome;
use fleetgate_orders::SessionRefusal;
use fleetgate_sys::poll::READ;
use fleetgate_sys::process;
use fleetgate_wire::common::Account;
use fleetgate_wire::names::{About as Question, Found};

impl Sessions {
    /// The first step: whose account it is.
    pub(super) fn prepare(&mut self, tools: &mut Tools, number: u64) {
        let other = self
            .all
            .get(&number)
            .and_then(|session| session.runs_as.as_deref());
        let Some(user) = other.map(text) else {
            return self.find_context(tools, number);
        };
        if let Some(found) = tools.names.account(Lane::IN, &user, key(number, About::Account)) {
            self.account_found(tools, number, found);
        }
    }

    /// A name was found: an account, or a SELinux context.
    pub fn named(&mut self, tools: &mut Tools, id: u64, found: Found) {
        match (super::parts(id), found) {
            (Some((number, About::Context)), found) => self.context_found(tools, number, found),
            (Some((number, About::Account)), Found::User { account }) => {
                self.account_found(tools, number, Some(account));
            }
            (Some((number, About::Account)), Found::Unknown) => self.account_found(tools, number, None),
            (Some((number, About::Account)), other) => {
                tracing::error!("the account of a named command is not known: {other:?}");
                let why =
                    "the account that the command runs as could not be looked up; the host's log says why";
                self.refuse(tools, number, SessionRefusal::new(why));
            }
            _ => {}
        }
    }

    fn account_found(&mut self, tools: &mut Tools, number: u64, account: Option<Account>) {
        let Some(session) = self.all.get_mut(&number) else {
            return;
        };
        let State::Pending(pending) = &mut session.state else {
            return;
        };
        let Some(account) = account else {
            let user = session.runs_as.as_deref().unwrap_or_default();
            let why = format!("the command runs as {user}, and this node has no such account");
            return self.refuse(tools, number, SessionRefusal::new(why));
        };
        // The login's own account has to be in use too: the helper will see the command's alone.
        if let Err(why) = helper_checks::account_in_use_without_shell(&pending.grant, &pending.account) {
            return self.refuse(tools, number, why);
        }
        session.uid = account.ids.uid;
        pending.account = account;
        self.find_context(tools, number);
    }

    fn find_context(&mut self, tools: &mut Tools, number: u64) {
        let needs_one = |session: &&Session| self.selinux && !session.in_container;
        let Some(session) = self.all.get(&number).filter(needs_one) else {
            return self.run_xauth(tools, number);
        };
        let user = text(session.runs_as.as_deref().unwrap_or(&session.login));
        let about = Question::Context { user };
        tools.names.ask(Lane::IN, about, key(number, About::Context));
    }

    fn context_found(&mut self, tools: &mut Tools, number: u64, found: Found) {
        let Some(Session {
            state: State::Pending(pending),
            ..
        }) = self.all.get_mut(&number)
        else {
            return;
        };
        match found {
            Found::Context { context } => {
                pending.context = context;
                self.run_xauth(tools, number);
            }
            // In a system that has contexts nobody runs without his own.
            other => {
                tracing::error!("the SELinux context of a session is not known: {other:?}");
                self.refuse(
                    tools,
                    number,
                    SessionRefusal::new("the session's SELinux context is not known"),
                );
            }
        }
    }

    /// xauth first, then the program.
    fn run_xauth(&mut self, tools: &mut Tools, number: u64) {
        let Some(session) = self.all.get(&number) else {
            return;
        };
        let State::Pending(pending) = &session.state else {
            return;
        };
        let script = match (&pending.start.x11, pending.display) {
            (Some(x11), Some(display)) => Some(fleetgate_orders::xauth_script(x11, display)),
            _ => None,
        };
        match script {
            Some(Err(why)) => self.refuse(tools, number, why),
            Some(Ok(script)) => {
                let xauth = x11::launch(session.id, &pending.account, &tools.config.xauth, &script);
                let launch = xauth.map_err(|e| e.to_string()).and_then(|launch| {
                    let submitted = tools.launches.submit(launch, key(number, About::Xauth));
                    submitted.map_err(|e| e.to_string())
                });
                if let Err(why) = launch {
                    tracing::warn!("xauth is not run: {why}; X11 clients of this session are refused");
                    self.launch(tools, number);
                }
            }
            None => self.launch(tools, number),
        }
    }

    pub(super) fn xauth_launched(&mut self, tools: &mut Tools, number: u64, outcome: LaunchOutcome) {
        let session = self.all.get_mut(&number);
        match (session.map(|s| &mut s.state), outcome) {
            (Some(State::Pending(pending)), Ok((running, _))) => {
                let watched = tools
                    .wakes
                    .watch(&running.pidfd, READ, key(number, About::XauthEnded));
                let timer = tools.timers.after(x11::PATIENCE, key(number, About::XauthLate));
                pending.xauth = Some((running.pidfd, timer));
                if watched.is_err() {
                    self.xauth_ended(tools, number);
                }
            }
            (None, Ok((running, _))) => tools.zombies.take(running.pidfd),
            (_, outcome) => {
                if let Err(e) = outcome {
                    tracing::warn!("xauth is not run: {e}; X11 clients of this session are refused");
                }
                self.launch(tools, number);
            }
        }
    }

    pub(super) fn xauth_ended(&mut self, tools: &mut Tools, number: u64) {
        let Some(Session {
            state: State::Pending(pending),
            ..
        }) = self.all.get_mut(&number)
        else {
            return;
        };
        let Some((pidfd, timer)) = pending.xauth.take() else {
            return;
        };
        tools.timers.cancel(timer);
        match process::wait(&pidfd, false) {
            Ok(Some(process::Exit::Code(0))) => {}
            exit => tracing::warn!(
                "xauth failed ({exit:?}); X11 clients of this session may be refused. Is {} there?",
                tools.config.xauth.display()
            ),
        }
        self.launch(tools, number);
    }

    pub(super) fn xauth_late(&mut self, number: u64) {
        if let Some(Session {
            state: State::Pending(pending),
            ..
        }) = self.all.get(&number)
            && let Some((pidfd, _)) = &pending.xauth
        {
            let _ = process::signal(pidfd, process::SIGKILL);
        }
    }
}
