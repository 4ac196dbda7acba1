//! Writes audit events into the spool, and delivers them to auth in signed batches.

use crate::audit::spool::{ADOPT, PLACES, Spool, directory, wait_for_spool};
use crate::audit::{Events, WAITING};
use crate::auth;
use crate::shared::Shared;
use fleetgate_proto::signed;
use fleetgate_proto::v1::AuditBatch;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;

/// After auth refused a batch.
const AGAIN: Duration = Duration::from_secs(5);

/// Writes and delivers. When it is to close it writes what it was told by then, and ends; the next process delivers that.
pub(crate) async fn run(shared: Arc<Shared>, mut events: Events, mut closing: oneshot::Receiver<()>) {
    let mut spool = tokio::select! {
        spool = wait_for_spool(&shared.config.state_directory) => spool,
        _ = &mut closing => {
            tracing::error!("{} audit events are lost: there is no place to keep them", events.waiting());
            return;
        }
    };
    let mut lines = Vec::new();
    let adopting = adopt(&shared, spool.place);
    tokio::pin!(adopting);
    // One batch at a time, until it is answered: each that is given up is a stream that auth sees reset, and auth ends a
    // connection with too many of them.
    let mut delivery = None;
    loop {
        if delivery.is_none() && spool.delivered < spool.length {
            delivery = Some(Box::pin(deliver(
                &shared,
                spool.name(),
                spool.delivered,
                spool.batch(),
            )));
        }
        let answered = async {
            match &mut delivery {
                Some(delivery) => delivery.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            got = events.from_all.recv_many(&mut lines, WAITING) => {
                if got == 0 {
                    return;
                }
                write(&shared, &mut spool, &events, &mut lines);
            }
            () = &mut adopting => {}
            _ = &mut closing => {
                while let Ok(line) = events.from_all.try_recv() {
                    lines.push(line);
                }
                write(&shared, &mut spool, &events, &mut lines);
                if let Err(error) = spool.file.sync_data() {
                    tracing::error!("the last audit events are perhaps not on the disk: {error}");
                }
                return;
            }
            kept = answered => {
                delivery = None;
                note(&mut spool, kept);
            }
        }
    }
}

fn write(shared: &Shared, spool: &mut Spool, events: &Events, lines: &mut Vec<String>) {
    let lost = events.lost.swap(0, Relaxed);
    if lost > 0 {
        lines.insert(0, shared.audit.line("audit_lost", &[&json!({ "count": lost })]));
    }
    if lines.is_empty() {
        return;
    }
    if let Err(error) = spool.write(lines) {
        events
            .lost
            .fetch_add(lost + lines.len() as u64 - u64::from(lost > 0), Relaxed);
        tracing::error!("audit events are lost: {error}");
    }
    lines.clear();
}

/// Delivers what processes that have ended left behind. It does not end.
async fn adopt(shared: &Shared, own: usize) {
    loop {
        for place in (0..PLACES).filter(|place| *place != own) {
            let directory = directory(&shared.config.state_directory, place);
            if !directory.exists() {
                continue;
            }
            match Spool::open(directory, place) {
                Ok(Some(mut spool)) => {
                    while spool.delivered < spool.length {
                        let kept = deliver(shared, spool.name(), spool.delivered, spool.batch()).await;
                        note(&mut spool, kept);
                    }
                }
                // Its process lives.
                Ok(None) => {}
                Err(error) => tracing::error!("audit events that were left behind cannot be read: {error}"),
            }
        }
        tokio::time::sleep(ADOPT).await;
    }
}

/// Notes up to where auth has the log, if it said so.
fn note(spool: &mut Spool, kept: Option<u64>) {
    if let Some(kept) = kept
        && let Err(error) = spool.note(kept)
    {
        tracing::error!("how far audit events are delivered cannot be noted: {error}");
    }
}

/// Delivers one batch of a log, from `offset` on, and answers up to where auth has the log. When it does not work it waits
/// for a while; what was not noted is sent again, and auth knows the offset.
async fn deliver(
    shared: &Shared,
    log: String,
    offset: u64,
    lines: Result<Vec<u8>, std::io::Error>,
) -> Option<u64> {
    let lines = match lines {
        Ok(lines) => lines,
        Err(error) => {
            tracing::error!("audit events cannot be read back: {error}");
            tokio::time::sleep(AGAIN).await;
            return None;
        }
    };
    let mut batch = AuditBatch {
        log: log.clone(),
        offset,
        lines: lines.into(),
        ..AuditBatch::default()
    };
    let own = shared.identity.borrow().clone();
    batch.certificate = own.credentials.certificate().der().to_vec().into();
    batch.signature = own.key.sign(&signed::audit(own.name.as_str(), &batch)).into();
    match auth::deliver(shared, &own.name, batch, || true).await {
        Some(kept) if kept.log == log && kept.offset > offset => Some(kept.offset),
        _ => {
            tokio::time::sleep(AGAIN).await;
            None
        }
    }
}
