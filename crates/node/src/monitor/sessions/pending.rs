//! A session on its way, from its admission to its launch.

use crate::monitor::containers::Entry;
use crate::monitor::timers::Timer;
use fleetgate_launch::SessionToClose;
use fleetgate_launch::within_pam::SharedPam;
use fleetgate_orders::{ClusterUser, ProgramChoice};
use fleetgate_policy::recording::{Recipient, Recording, RecordingFailure};
use fleetgate_policy::{Grant, Watching};
use fleetgate_recorder::recordings::Prepared;
use fleetgate_sys::Fd;
use fleetgate_wire::common::Account;
use fleetgate_wire::node::ConnectionAddresses;
use fleetgate_wire::node::front::Start;
use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

/// A session on its way.
pub(super) struct PendingSession {
    pub(super) grant: Grant,
    pub(super) addresses: ConnectionAddresses,
    pub(super) start: Start,
    pub(super) account: Account,
    pub(super) decided: ProgramChoice,
    /// The container that it is to run in.
    pub(super) container: Option<Entry>,
    pub(super) agent: Option<CString>,
    pub(super) display: Option<u16>,
    pub(super) context: Option<CString>,
    pub(super) watching: Watching,
    /// How much of it is recorded, and what happens where that cannot be.
    pub(super) recording: (Recording, RecordingFailure),
    /// For how long the cluster keeps the recording, where a role says.
    pub(super) recording_keep: Option<Duration>,
    /// For whom the recording is encrypted, if it is.
    pub(super) recipients: Vec<Recipient>,
    /// The roles that let it in, for the recording.
    pub(super) roles: Vec<String>,
    pub(super) cluster_user: ClusterUser,
    /// The connection's PAM session, for its first session.
    pub(super) shared_pam: Option<Arc<SharedPam>>,
    pub(super) pam: bool,
    pub(super) xauth: Option<(Fd, Timer)>,
    /// Made and under way: what the front will be given, and what the session reaper will note.
    pub(super) under_way: Option<PendingLaunch>,
}

/// A launch under way.
pub(super) struct PendingLaunch {
    pub(super) ours: Vec<Fd>,
    pub(super) is_socket: bool,
    pub(super) record: SessionToClose,
    pub(super) events: Option<Fd>,
    /// How closely it is watched.
    pub(super) audit: Option<&'static str>,
    pub(super) is_direct: bool,
    /// The files of its recording, or why there are none.
    pub(super) recording: Option<Result<Prepared, String>>,
    /// The terminal is still to come, from inside a container.
    pub(super) awaits_terminal: bool,
}
