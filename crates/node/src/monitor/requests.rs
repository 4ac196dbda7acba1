//! What fronts ask for on open connections: it waits for what has to be known, is decided about again, and goes to `sessions` or
//! `network`, which hold it against the grant.
//!
//! What has to be known is the account as it is now, and the containers where a role looks at their labels or a client asks for a
//! list of them. Both are read elsewhere (the resolver; a thread), and wake the monitor; later requests of the same connection
//! wait behind the first.

use super::Monitor;
use super::cluster::decide_request_again;
use super::connections::{PendingRequest, Stage};
use super::container_list::{self, ListForm};
use super::containers::{LabelsOf, SeenLabels};
use super::live;
use super::login::viewer;
use super::names::Lane;
use super::open_login::OpenLogin;
use super::sessions::Sessions;
use super::tools::Tools;
use super::wakes::{Key, Owner};
use fleetgate_containers::{ContainerRecord, find_among};
use fleetgate_orders::SessionRefusal;
use fleetgate_policy::VIEWER;
use fleetgate_policy::cluster::ContainerLabels;
use fleetgate_wire::Reason;
use fleetgate_wire::common::Account;
use fleetgate_wire::names::Found;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::{Program, Start};
use std::ffi::CString;
use std::sync::Arc;

/// The most sessions and sockets of one connection that wait until its account is looked up.
const MAX_WAITING_REQUESTS: usize = 64;

/// What is told of an account that somebody logged in as.
const NO_ACCOUNT: &str = "there is no such account any more";
/// What is told of containers that could not be looked at.
const NOT_LOOKED: &str = "the containers of this node cannot be looked at now; the host's log says why";

impl Monitor {
    /// Requests to see sessions: the login is decided about again as for any other, and then whether it may see them.
    fn do_views(
        &mut self,
        number: ConnectionNumber,
        account: &Result<Account, SessionRefusal>,
        views: Vec<PendingRequest>,
    ) {
        let Some(Stage::Open(open_login, _)) = self.connections.get(number).map(|known| &mut known.stage)
        else {
            return;
        };
        let unseen = ContainerLabels::before_looking(&open_login.grant.login);
        let decided = match account {
            Ok(_) => decide_request_again(open_login, &self.tools, &self.trust, unseen),
            Err(why) => Err(why.clone()),
        };
        for one in views {
            let PendingRequest::Session(ticket, start) = &one else {
                continue;
            };
            match (&decided, live::asked(start)) {
                (Ok(()), Some(asked)) => live::ask(
                    &mut self.tools,
                    (&self.sessions, &self.trust),
                    open_login,
                    *ticket,
                    asked,
                ),
                (Err(why), _) => {
                    open_login.tell_denied(&self.tools.audit, &self.tools.metrics, why.words.clone());
                    refuse(&mut self.tools, number, one, why);
                }
                _ => {}
            }
        }
    }

    /// A request waits for the account as it is now, and for the requests before it.
    pub(super) fn request(&mut self, number: ConnectionNumber, request: PendingRequest) {
        let Some(known) = self.connections.get(number) else {
            return;
        };
        if known.waiting.len() >= MAX_WAITING_REQUESTS {
            let why = SessionRefusal::new("too many requests wait for the name service");
            return refuse(&mut self.tools, number, request, &why);
        }
        known.waiting.push(request);
        if known.waiting.len() > 1 {
            // The account is being looked up for the one before it.
            return;
        }
        let Some(name) = known.open_login().map(|o| o.grant.login.account().to_owned()) else {
            return;
        };
        if name == VIEWER {
            return self.account_ready(number, Ok(viewer()));
        }
        let name = CString::new(name).unwrap_or_default();
        if let Some(account) = self
            .tools
            .names
            .account(Lane::IN, &name, Key::new(Owner::Connections, number))
        {
            self.account_ready(number, account.ok_or(NO_ACCOUNT));
        }
    }

    /// The account, for the requests that wait for it.
    pub(crate) fn account_known(&mut self, number: ConnectionNumber, found: Found) {
        let account = match found {
            Found::User { account } => Ok(account),
            Found::TimedOut => Err("the name service did not answer in time"),
            Found::Failed { .. } => Err("the name service failed"),
            _ => Err(NO_ACCOUNT),
        };
        self.account_ready(number, account);
    }

    /// The account is known; the containers may have to be looked at.
    fn account_ready(&mut self, number: ConnectionNumber, account: Result<Account, &'static str>) {
        let Some(known) = self.connections.get(number) else {
            return;
        };
        let wants_list = known.waiting.iter().any(|one| list_form(one).is_some());
        let Some(open_login) = known.open_login() else {
            return;
        };
        open_login.container_labels = None;
        let labels = match wants_list {
            true => Some(LabelsOf::All),
            false => labelled(open_login, &self.tools).map(LabelsOf::Container),
        };
        match (account, labels) {
            (Ok(account), Some(labels)) => {
                if let Err(e) = self.tools.launches.containers().look(number, account, labels) {
                    tracing::error!("containers are not looked at: {e}");
                    self.do_requests(number, Err(NOT_LOOKED), &[]);
                }
            }
            (account, _) => self.do_requests(number, account, &[]),
        }
    }

    /// Somebody looked which containers run.
    pub(crate) fn containers_seen(&mut self) {
        for (number, (account, seen)) in self.tools.launches.containers().take_seen() {
            self.do_requests(number, Ok(account), &seen);
        }
    }

    /// Everything is known: `seen` are the containers, where they had to be looked at.
    fn do_requests(
        &mut self,
        number: ConnectionNumber,
        account: Result<Account, &str>,
        seen: &[ContainerRecord],
    ) {
        let Some(known) = self.connections.get(number) else {
            return;
        };
        let requests = std::mem::take(&mut known.waiting);
        let Stage::Open(open_login, _) = &mut known.stage else {
            return;
        };
        let (lists, requests): (Vec<_>, Vec<_>) = requests
            .into_iter()
            .partition(|one| list_form(one).is_some_and(|_| open_login.grant.permits.forced().is_none()));
        let unseen = ContainerLabels::before_looking(&open_login.grant.login);
        let is_into_container = open_login.grant.login.container().is_some();
        let account = account.map_err(SessionRefusal::new);
        if !lists.is_empty() {
            let decided = decide_request_again(open_login, &self.tools, &self.trust, unseen);
            let decided = decided.inspect_err(|why| {
                open_login.tell_denied(&self.tools.audit, &self.tools.metrics, why.words.clone());
            });
            for one in lists {
                let PendingRequest::Session(ticket, start) = &one else {
                    continue;
                };
                match (&account, &decided, ListForm::of(start)) {
                    (Ok(_), Ok(()), Some(form)) => {
                        let text = container_list::of(open_login, &self.tools, &self.trust, seen, form);
                        let list = (text, form == ListForm::Json);
                        self.sessions
                            .answer_containers(&mut self.tools, open_login, *ticket, list);
                    }
                    (Err(why), _, _) => refuse(&mut self.tools, number, one, why),
                    (_, Err(why), _) => refuse(&mut self.tools, number, one, why),
                    (_, _, None) => {}
                }
            }
        }
        let (views, requests): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|one| is_view(one, open_login));
        if !views.is_empty() {
            self.do_views(number, &account, views);
        }
        let Some(Stage::Open(open_login, _)) = self.connections.get(number).map(|known| &mut known.stage)
        else {
            return;
        };
        if requests.is_empty() {
            return;
        }
        let account = account.and_then(|account| {
            let decided = note_labels(open_login, &self.tools, seen).and_then(|missing| {
                let labels = open_login.container_labels.clone();
                let container = labels
                    .as_deref()
                    .map_or(unseen, |seen| seen.known(missing.as_deref()));
                decide_request_again(open_login, &self.tools, &self.trust, container)
            });
            decided.inspect_err(|why| {
                open_login.tell_denied(&self.tools.audit, &self.tools.metrics, why.words.clone());
            })?;
            Ok(account)
        });
        for request in requests {
            match (request, &account) {
                (PendingRequest::Session(ticket, start), Ok(account)) => {
                    self.sessions.start(
                        &mut self.tools,
                        &self.networks,
                        open_login,
                        account.clone(),
                        ticket,
                        start,
                    );
                }
                (PendingRequest::Network(ticket, what), Ok(account)) if account.ids.uid == open_login.uid => {
                    self.networks
                        .ask(&mut self.tools, open_login, &account.ids, ticket, what);
                }
                (request, Ok(_)) => {
                    let why = SessionRefusal::new("the account is not the one that logged in");
                    refuse(&mut self.tools, number, request, &why);
                }
                (request, Err(why)) if is_into_container => {
                    refuse_openly(&mut self.sessions, &mut self.tools, number, request, why);
                }
                (request, Err(why)) => refuse(&mut self.tools, number, request, why),
            }
        }
    }
}

/// Whether it asks to see a session. With a forced command it is one's own program, as any request is.
fn is_view(request: &PendingRequest, open_login: &OpenLogin) -> bool {
    let asks = matches!(request, PendingRequest::Session(_, start) if live::asked(start).is_some());
    asks && open_login.grant.permits.forced().is_none()
}

fn is_sftp(start: &Start) -> bool {
    matches!(&start.program, Program::Subsystem { name } if name == b"sftp")
}

/// The container that the login leads into, where a role looks at its labels.
fn labelled(open_login: &OpenLogin, tools: &Tools) -> Option<String> {
    let login = &open_login.grant.login;
    let looks = |cluster| {
        let mut all = open_login.cluster_logins.iter();
        all.any(|one| one.looks_at_labels(cluster, login.as_str()))
    };
    let container = login.container()?;
    tools
        .cluster
        .as_ref()
        .is_some_and(looks)
        .then(|| container.to_owned())
}

/// Notes the labels of the login's container, where roles look at them. Why some are missing, if some are.
fn note_labels(
    open_login: &mut OpenLogin,
    tools: &Tools,
    seen: &[ContainerRecord],
) -> Result<Option<String>, SessionRefusal> {
    let Some(name) = labelled(open_login, tools) else {
        return Ok(None);
    };
    let found =
        find_among(seen, &name).map_err(|e| SessionRefusal::new(e.without_others().to_string()).finally())?;
    open_login.container_labels = Some(Arc::new(SeenLabels::of(found)));
    Ok(found.labels_missing.clone())
}

/// Whether it asks for a list of containers, and in which form.
fn list_form(request: &PendingRequest) -> Option<ListForm> {
    match request {
        PendingRequest::Session(_, start) => ListForm::of(start),
        PendingRequest::Network(..) => None,
    }
}

/// It is not done.
fn refuse(tools: &mut Tools, connection: ConnectionNumber, request: PendingRequest, why: &SessionRefusal) {
    match request {
        PendingRequest::Session(ticket, _) => tools.to_fronts.not_started(connection, ticket, why),
        PendingRequest::Network(ticket, _) => {
            let why = CString::new(&*why.words).unwrap_or_default();
            tools.to_fronts.no_socket(connection, ticket, Reason::Denied, why);
        }
    }
}

/// The same into a container: a user has to hear why not, with scp and forwards too, where SSH's own refusals have no room for it.
fn refuse_openly(
    sessions: &mut Sessions,
    tools: &mut Tools,
    connection: ConnectionNumber,
    request: PendingRequest,
    why: &SessionRefusal,
) {
    match request {
        PendingRequest::Session(ticket, start) if is_sftp(&start) => {
            sessions.answer_failure(tools, connection, ticket, &why.words);
        }
        PendingRequest::Network(ticket, _) => {
            let why = CString::new(&*why.words).unwrap_or_default();
            tools.to_fronts.no_socket(connection, ticket, Reason::System, why);
        }
        request => refuse(tools, connection, request, why),
    }
}
