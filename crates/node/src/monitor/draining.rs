//! A monitor that drains goes on with its connections, and no proxy sends it the cluster's state any more. It follows the
//! monitor that took its place by the files which that one keeps, and believes them for their signatures alone, as it does a
//! proxy. It writes none of them, tells the cluster nothing, and dials nobody.

use super::Monitor;
use super::cluster::FOLLOW;
use super::wakes::{Key, Owner};
use crate::config::cluster::{Change, SignedState, StateChange, StateFiles};
use std::time::Duration;

/// How often the files are looked at. A proxy ends the connections of a user who is locked a second after it told the nodes:
/// what they run is to be ended before that.
const LOOK: Duration = Duration::from_millis(100);

/// What the monitor that took its place learns.
pub(crate) struct NextMonitor {
    files: StateFiles,
}

impl Monitor {
    /// Looks at it now, and again and again from now on.
    pub(crate) fn follow_next(&mut self) {
        if self.next.is_none() {
            let home = self.tunnel.as_ref().map(|tunnel| tunnel.home.clone());
            self.next = home.map(|home| NextMonitor {
                files: StateFiles::new(home),
            });
        }
        self.look_at_next();
        if self.next.is_some() {
            self.tools.timers.after(LOOK, Key::new(Owner::Cluster, FOLLOW));
        }
    }

    /// The last sign that the state still holds, where the monitor that took its place keeps one.
    pub(crate) fn refresh_by_next(&mut self) {
        let fresh = self.next.as_ref().and_then(|next| next.files.fresh());
        if let Some((fresh, cluster)) = fresh.zip(self.tools.cluster.as_mut()) {
            // Of another state, it says nothing.
            let _ = cluster.receive_fresh(&fresh.document, &fresh.signature);
        }
    }

    /// Looks at it once. A monitor that does not drain has nobody to look at.
    pub(crate) fn look_at_next(&mut self) {
        let Some(next) = &mut self.next else { return };
        match next.files.look() {
            Ok(StateChange::None) => {}
            Ok(StateChange::State(signed)) => {
                self.take_next(&signed);
                self.refresh_by_next();
            }
            Ok(StateChange::Gone) => self.leave_cluster(),
            Err(why) => tracing::error!("the state that the next monitor keeps: {why}"),
        }
    }

    /// A state that the other one keeps.
    fn take_next(&mut self, signed: &SignedState) {
        let Some(cluster) = &mut self.tools.cluster else {
            return;
        };
        if cluster.signed() == signed {
            return;
        }
        match cluster.receive_state(&signed.document, &signed.signature) {
            Ok(change) => {
                let serial = cluster.state().serial;
                self.say_age();
                if change == Change::State {
                    tracing::info!(serial, "the cluster's state was replaced");
                    self.look_for_locks();
                }
            }
            // It joined another cluster.
            Err(_) if self.next.as_ref().is_some_and(|next| !next.files.is_ours()) => self.leave_cluster(),
            Err(why) => {
                let serial = cluster.state().serial;
                tracing::error!(
                    serial,
                    "the state that the next monitor keeps is not taken: {why}"
                );
            }
        }
    }

    /// The machine is of another cluster, or of none: nothing more is begun for those whom this one let in.
    fn leave_cluster(&mut self) {
        self.next = None;
        if self.tools.cluster.take().is_some() {
            tracing::info!("the node is not of this cluster any more");
        }
    }
}
