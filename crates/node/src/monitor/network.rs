//! Sockets for a connection: a networking helper of its own, launched with the first request and running as the user,
//! opens them and hands them back; they go on to the front. Every request is checked against the grant and given its
//! bounds here (`orders::sockets`), whatever the front says. It never connects or listens by itself, and never sees what travels.
//!
//! A front's tickets are not the helper's ids: a front that uses one twice is refused, and cannot end the helper with it.

mod helper;

use super::audit::Event;
use super::login::pam;
use super::metrics::Process;
use super::names::Lane;
use super::open_login::OpenLogin;
use super::timers::now;
use super::tools::Tools;
use super::wakes::{Key, Owner};
use fleetgate_launch::within_pam::PamEntry;
use fleetgate_launch::{Launch, LaunchError, LaunchOutcome};
use fleetgate_orders::sockets;
use fleetgate_sys::Fd;
use fleetgate_sys::poll::READ;
use fleetgate_wire::Reason;
use fleetgate_wire::common::Ids;
use fleetgate_wire::names::{About, Found};
use fleetgate_wire::net::{Done, Networking, Request, Response, What};
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::{Ticket, ToFront};
use fleetgate_wire::order::{Role, Work};
use helper::{Helper, ListenerName, PendingRequest};
use std::collections::HashMap;
use std::ffi::CString;
use std::net::SocketAddr;

/// The most requests of one connection that may be unanswered at once.
pub const MAX_UNANSWERED: usize = 256;
/// Where SSH servers listen.
const SSH_PORT: u16 = 22;
/// The most answers of one helper that are taken in one turn of the loop: others have a turn between.
const AT_ONCE: usize = 32;
/// What is told where the log says more.
const NOT_OPENED: &str = "the host could not open the socket; its log says why";

/// All networking helpers, one per connection that asked for a socket.
#[derive(Default)]
pub struct Networks {
    helpers: HashMap<ConnectionNumber, Helper>,
    /// Each helper needs a SELinux context.
    selinux: bool,
}

impl Networks {
    /// None yet. `selinux`: each helper needs a SELinux context.
    pub fn new(selinux: bool) -> Networks {
        Networks {
            selinux,
            ..Networks::default()
        }
    }

    /// A front asks for a socket. `ids`: the account's, as the name service has it now.
    pub fn ask(
        &mut self,
        tools: &mut Tools,
        open_login: &mut OpenLogin,
        ids: &Ids,
        ticket: Ticket,
        what: What,
    ) {
        let connection = open_login.connection;
        let (login, container) = (open_login.grant.login.clone(), open_login.entry());
        let allowed = match (&what, open_login.refuses_onward_ssh()) {
            // What listens on other ports the front finds out.
            (What::Connect { port: SSH_PORT, .. }, Some(role)) => Err(format!(
                "role {role} refuses connections on to SSH servers (`onward_ssh`)"
            )),
            _ => sockets::allow(&open_login.grant, now(), &tools.config, what),
        };
        let what = match allowed {
            Ok(what) => what,
            Err(why) => {
                open_login.tell_denied(&tools.audit, &tools.metrics, why.clone());
                return fail(tools, connection, ticket, Reason::Denied, &why);
            }
        };
        // What has the container's name now may be another one than the helper is in, and was let in for other reasons.
        let is_elsewhere =
            |helper: &Helper| helper.labels() != container.as_ref().and_then(|c| c.labels.as_ref());
        if self.helpers.get(&connection).is_some_and(is_elsewhere) {
            self.gone(tools, connection, "the container has been replaced");
        }
        let helper = self
            .helpers
            .entry(connection)
            .or_insert_with(|| Helper::new(connection, login, container));
        if let Err((reason, why)) = helper.accept(ticket, what, tools.config.limits.listeners as usize) {
            return fail(tools, connection, ticket, reason, &why);
        }
        if helper.wants_launch() {
            let user = CString::new(helper.login().account()).unwrap_or_default();
            // Forwards are where the connection's first session is.
            let is_in_pam = tools.pam && helper.container().is_none();
            let pam = is_in_pam.then(|| PamEntry {
                shared: Some(open_login.pam.clone()),
                start: pam::start_again(&tools.config, &open_login.grant, &user, c"ssh"),
            });
            helper.launching(ids.clone(), pam);
            if self.selinux && helper.container().is_none() {
                tools
                    .names
                    .ask(Lane::IN, About::Context { user }, key(connection));
            } else {
                self.launch(tools, connection, None);
            }
            return;
        }
        self.flush(tools, connection);
    }

    /// A name was found: a helper's SELinux context.
    pub fn named(&mut self, tools: &mut Tools, id: u64, found: Found) {
        match found {
            Found::Context { context } => self.launch(tools, id, context),
            // In a system that has contexts nothing runs without its own.
            other => {
                tracing::error!("the SELinux context of a networking helper is not known: {other:?}");
                self.gone(tools, id, "the SELinux context for the socket is not known");
            }
        }
    }

    /// Launches the connection's helper, unless it is gone meanwhile.
    fn launch(&mut self, tools: &mut Tools, connection: ConnectionNumber, selinux: Option<CString>) {
        let Some(helper) = self.helpers.get_mut(&connection) else {
            return;
        };
        let Some(whom) = helper.launched_as() else {
            return;
        };
        if let Err(why) = launch(tools, helper, whom, selinux) {
            tracing::error!("a networking helper is not started: {why}");
            self.gone(tools, connection, NOT_OPENED);
        }
    }

    /// The socket's path of a forwarded agent that was asked for with `ticket`.
    pub fn agent(&self, connection: ConnectionNumber, ticket: Ticket) -> Option<CString> {
        match self.helpers.get(&connection)?.listening(ticket)? {
            ListenerName::Path(path) => Some(path.clone()),
            ListenerName::Display(_) => None,
        }
    }

    /// The number of a display that was asked for with `ticket`.
    pub fn display(&self, connection: ConnectionNumber, ticket: Ticket) -> Option<u16> {
        match self.helpers.get(&connection)?.listening(ticket)? {
            ListenerName::Display(number) => Some(*number),
            ListenerName::Path(_) => None,
        }
    }

    /// The process that opens sockets for `connection`, if one runs.
    pub fn helper_of(&self, connection: ConnectionNumber) -> Option<i32> {
        self.helpers
            .get(&connection)
            .map(Helper::pid)
            .filter(|pid| *pid != 0)
    }

    /// The helper's launch came to something.
    pub fn launched(&mut self, tools: &mut Tools, id: u64, outcome: LaunchOutcome) {
        let connection = id;
        match (self.helpers.get_mut(&connection), outcome) {
            (Some(helper), Ok((running, _))) => {
                tools.metrics.launched(running.strategy);
                let watched = tools.wakes.watch(&running.control, READ, key(connection));
                helper.run(running.pid, running.control);
                tools.zombies.take(running.pidfd);
                match watched {
                    Ok(()) => self.flush(tools, connection),
                    Err(e) => {
                        tracing::error!("a networking helper cannot be listened to: {e}");
                        self.gone(tools, connection, NOT_OPENED);
                    }
                }
            }
            // The connection ended meanwhile: closing its socket ends the helper.
            (None, Ok((running, _))) => tools.zombies.take(running.pidfd),
            (_, Err(e)) => {
                tools.metrics.launch_failed();
                tracing::error!("a networking helper is not started: {e}");
                match e {
                    LaunchError::Pam(_) => {
                        let why = "PAM refused the forwarding; the host's log says why";
                        self.gone(tools, connection, why);
                    }
                    // What is wrong with a container is for its user to read.
                    LaunchError::Container(why) | LaunchError::Replaced(why) => {
                        self.gone(tools, connection, &why)
                    }
                    _ => self.gone(tools, connection, NOT_OPENED),
                }
            }
        }
    }

    /// A helper has answers, or ended.
    pub fn woken(&mut self, tools: &mut Tools, id: u64) {
        let connection = id;
        for _ in 0..AT_ONCE {
            let Some(helper) = self.helpers.get_mut(&connection) else {
                return;
            };
            match helper.hear() {
                Ok(None) => break,
                Ok(Some((response, fds))) => answer(tools, helper, response, fds),
                Err(how) => {
                    tools.metrics.died(Process::Networking);
                    tools.audit.tell(Event::ProcessDied {
                        process: "networking".to_owned(),
                        pid: helper.pid(),
                        how,
                    });
                    return self.gone(tools, connection, "the process that opens sockets ended");
                }
            }
        }
        self.flush(tools, connection);
    }

    /// The connection is gone: its helper sees its socket's end, removes what it made and ends.
    pub fn connection_ended(&mut self, connection: ConnectionNumber) {
        self.helpers.remove(&connection);
    }

    /// Sends what waits.
    fn flush(&mut self, tools: &mut Tools, connection: ConnectionNumber) {
        if let Some(helper) = self.helpers.get_mut(&connection)
            && let Err(e) = helper.flush()
        {
            tracing::warn!("a networking helper cannot be asked: {e}");
            self.gone(tools, connection, "the process that opens sockets ended");
        }
    }

    /// The helper is no more: whatever it owes is answered for it, and the next request starts another.
    fn gone(&mut self, tools: &mut Tools, connection: ConnectionNumber, why: &str) {
        let Some(helper) = self.helpers.remove(&connection) else {
            return;
        };
        for ticket in helper.unanswered() {
            fail(tools, connection, ticket, Reason::System, why);
        }
    }
}

fn key(connection: ConnectionNumber) -> Key {
    Key::new(Owner::Networks, connection)
}

fn launch(
    tools: &mut Tools,
    helper: &Helper,
    (ids, pam): (Ids, Option<PamEntry>),
    selinux: Option<CString>,
) -> Result<(), String> {
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    let order = Networking {
        ids,
        max_pending: MAX_UNANSWERED as u32,
        selinux,
    };
    let names = super::names::fresh_socket(&tools.resolver);
    let fds = names.into_iter().map(|fd| (Role::Resolver, fd)).collect();
    let launch = Launch {
        deadline: tools.config.limits.launch.0,
        ..Launch::new(Work::Networking(order), fds)
    };
    let key = key(helper.connection());
    let resolver = tools.resolver.clone();
    match (helper.container().cloned(), pam) {
        (Some(container), _) => tools.launches.submit_in_container(container, launch, key),
        (None, Some(pam)) => tools.launches.submit_in_pam(resolver, pam, (launch, 0), key),
        (None, None) => tools.launches.submit(launch, key),
    }
    .map_err(|e| e.to_string())
}

/// An answer, with the front's number on it.
fn answer(tools: &mut Tools, helper: &mut Helper, response: Response, fds: Vec<Fd>) {
    let Response { id, done } = response;
    let Some(PendingRequest { ticket, what, .. }) = helper.answered(id, &done) else {
        return;
    };
    let connection = helper.connection();
    let on = match (&done, &what) {
        (Done::Listening { local }, What::Accept { .. }) => {
            let on = local
                .iter()
                .map(|end| SocketAddr::new(end.ip(), end.port).to_string());
            Some(on.collect::<Vec<_>>().join(" "))
        }
        (Done::UnixListening { path }, What::ListenUnix { .. }) => Some(path.to_string_lossy().into_owned()),
        _ => None,
    };
    if let Some(on) = on {
        tools.audit.tell(Event::Listening {
            connection,
            login: helper.login().to_string(),
            on,
        });
    }
    let message = ToFront::Network {
        connection,
        ticket,
        done,
    };
    tools.to_fronts.say(connection, message, fds);
}

fn fail(tools: &mut Tools, connection: ConnectionNumber, ticket: Ticket, reason: Reason, why: &str) {
    let why = CString::new(why).unwrap_or_default();
    tools.to_fronts.no_socket(connection, ticket, reason, why);
}

/// A request as it goes to the helper.
fn frame(id: u32, what: &What) -> Vec<u8> {
    fleetgate_wire::encode(&Request {
        id,
        what: what.clone(),
    })
}
