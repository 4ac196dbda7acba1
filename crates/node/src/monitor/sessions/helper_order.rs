//! What a session's helper is given: its order, and the descriptors that go with it beside the streams.

use super::helper_checks;
use crate::monitor::names;
use crate::monitor::tools::Tools;
use fleetgate_launch::SessionToClose;
use fleetgate_orders::{OrderFacts, ProgramChoice, SessionRefusal};
use fleetgate_policy::{Audit, Watching};
use fleetgate_sys::{Errno, Fd, clock, socket};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::exec::{Exec, Program, Watch};
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::order::{Role, Work};

/// An order for the helper, and what is noted of it.
pub(super) struct HelperOrder {
    pub(super) work: Work,
    /// Beside the streams.
    pub(super) given: Vec<(Role, Fd)>,
    /// For the session reaper.
    pub(super) record: SessionToClose,
    /// Where the file server reports.
    pub(super) events: Option<Fd>,
    /// How closely it is watched.
    pub(super) audit: Option<&'static str>,
}

/// What watches a session from its first instruction on.
pub(super) struct WatchGiven {
    watch: Watch,
    /// On which the filter's listener goes to the watcher.
    watcher: Fd,
    level: &'static str,
}

impl HelperOrder {
    /// For the file server.
    pub(super) fn file_server(
        facts: &OrderFacts<'_>,
        arguments: &[u8],
        resolver: &Fd,
    ) -> Result<HelperOrder, SessionRefusal> {
        // A forced `internal-sftp` has no place for `passwd`.
        if facts.grant.must_change_password {
            return Err(SessionRefusal::new(
                "the password has expired, and file transfer cannot change it",
            ));
        }
        let order = fleetgate_orders::sftp(facts, arguments)?;
        if facts.root && facts.grant.login.container().is_none() {
            let today = clock::wall().sec.div_euclid(86_400);
            helper_checks::account_in_use(facts.account, !facts.pam, today)?;
        }
        if let Some(root) = &order.chroot {
            helper_checks::safe_root(root)?;
        }
        let (events, theirs) = socket::pair().map_err(failed("making a socket"))?;
        let mut given = vec![(Role::Events, theirs)];
        // Without one the listing shows numbers alone.
        let names = match facts.grant.login.container() {
            // Its accounts are not this machine's.
            Some(_) => None,
            None => names::fresh_socket(resolver),
        };
        given.extend(names.map(|names| (Role::Resolver, names)));
        let plain = Exec::new(facts.session, facts.account.clone(), Program::Shell);
        Ok(HelperOrder {
            work: Work::Sftp(order),
            given,
            record: SessionToClose::of(&plain, 0),
            events: Some(events),
            audit: None,
        })
    }

    /// For a shell, a command line or a named command.
    pub(super) fn program(
        facts: &OrderFacts<'_>,
        decided: &ProgramChoice,
        watched: Option<WatchGiven>,
    ) -> Result<HelperOrder, SessionRefusal> {
        let mut order = fleetgate_orders::exec(facts, decided)?;
        let (mut given, mut audit) = (Vec::new(), None);
        if let Some(watched) = watched {
            order.watch = Some(watched.watch);
            given.push((Role::Watcher, watched.watcher));
            audit = Some(watched.level);
        }
        let record = SessionToClose::of(&order, 0);
        Ok(HelperOrder {
            work: Work::Exec(order),
            given,
            record,
            events: None,
            audit,
        })
    }
}

/// Has a session watched; none: nobody wants that. The file server is not: it reports its own operations.
pub(super) fn begin_watching(
    tools: &mut Tools,
    (connection, login, session): (ConnectionNumber, &str, SessionId),
    wanted: Watching,
) -> Result<Option<WatchGiven>, SessionRefusal> {
    if wanted.audit == Audit::None {
        return Ok(None);
    }
    if tools.user_mode {
        return Err(SessionRefusal::new(
            "the session is to be watched, and only a node that runs as root can do that",
        ));
    }
    let begun = tools.watching.begin(connection, login, session, wanted);
    let begun = begun.map_err(|why| for_the_log(format_args!("watching it: {why}")))?;
    Ok(begun.map(|(watch, watcher)| WatchGiven {
        watch,
        watcher,
        level: wanted.audit.name(),
    }))
}

/// Something that a session needs was not to be had. The user reads no more of it than that.
pub(super) fn failed(doing: &'static str) -> impl Fn(Errno) -> SessionRefusal {
    move |e| for_the_log(format_args!("{doing}: {e}"))
}

fn for_the_log(why: std::fmt::Arguments<'_>) -> SessionRefusal {
    tracing::error!("a session is not started: {why}");
    SessionRefusal::new("the session could not be started; the host's log says why")
}
