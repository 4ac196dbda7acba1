//! What is done with recordings beside taking them in: those whose time is over go, and the audit log says so before they do.
//! What is due, the crate `archive` knows.

use crate::audit::{Event, event};
use crate::error::{Refused, Result};
use crate::service::Service;
use fleetgate_archive::{Archive, Removal};
use std::time::{Duration, Instant};

/// How often the archive looks what time has done.
const TURN: Duration = Duration::from_secs(5);
/// How often it is looked what is due. Where there is no room for more, at each turn.
const DUE: Duration = Duration::from_secs(300);

impl Service {
    /// Looks after recordings for as long as this runs.
    pub(crate) async fn keep_recordings(&self, archive: Archive) {
        let mut turns = tokio::time::interval(TURN);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut looked: Option<Instant> = None;
        loop {
            turns.tick().await;
            if let Err(e) = archive.turn().await {
                tracing::error!("recordings: {e}");
            }
            let is_due = looked.is_none_or(|at| at.elapsed() >= DUE) || archive.counts().full() > 0;
            if is_due {
                looked = Some(Instant::now());
                if let Err(refused) = self.remove_recordings(&archive).await {
                    tracing::error!("recordings that are to go: {refused}");
                }
            }
        }
    }

    /// Removes what is due. Without its event nothing goes.
    pub(crate) async fn remove_recordings(&self, archive: &Archive) -> Result<()> {
        if !self.is_clock_steady() {
            // A clock that was set far ahead by mistake would cost all of them.
            return Ok(());
        }
        let failed = |e: fleetgate_archive::Error| Refused::unavailable(e.to_string());
        for removal in archive.due().await.map_err(failed)? {
            self.ledger.tell(self.removal(&removal)).await?;
            archive.remove(removal).await.map_err(failed)?;
        }
        Ok(())
    }

    fn removal(&self, removal: &Removal) -> Event {
        Event::new(event::RECORDINGS_REMOVED, self.ledger.millis())
            .with("reason", removal.reason)
            .with("count", removal.recordings.len() as u64)
            .with("bytes", removal.bytes)
    }
}
