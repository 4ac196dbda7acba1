//! The audit log as the spool of what goes out of the house. How it goes is the crate `export`'s.

use crate::audit::Log;
use fleetgate_export::{BATCH_BYTES, Event, Sink, Spool, run};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

struct AuditLog(Log);

impl Spool for AuditLog {
    async fn begin(&self, sink: &str) -> Result<i64, String> {
        self.0.exported(sink).await.map_err(|e| e.to_string())
    }

    async fn after(&self, id: i64, most: usize) -> Result<Vec<Event>, String> {
        let events = self.0.behind(id, most, BATCH_BYTES).await;
        let events = events.map_err(|e| e.to_string())?.into_iter();
        let event = |event: crate::audit::Exported| Event {
            id: event.id,
            time: event.time,
            line: event.line,
        };
        Ok(events.map(event).collect())
    }

    async fn acknowledged(&self, sink: &str, id: i64) -> Result<(), String> {
        self.0.acknowledged(sink, id).await.map_err(|e| e.to_string())
    }

    fn last(&self) -> watch::Receiver<i64> {
        self.0.last()
    }
}

/// Begins to send each sink what it has not. A disk that is full now keeps nobody from starting: how far each is stays as it
/// was written down.
pub(crate) async fn start(sinks: &[Sink], log: &Log, tasks: &mut JoinSet<&'static str>) {
    let names = sinks.iter().map(|sink| sink.name().to_owned()).collect();
    if let Err(e) = log.set_sinks(names).await {
        tracing::error!("the names of the sinks of [[auth.export]] were not written down: {e}");
    }
    let spool = Arc::new(AuditLog(log.clone()));
    for sink in sinks {
        let (sink, spool) = (sink.clone(), spool.clone());
        tasks.spawn(async move {
            run(sink, spool).await;
            "exports audit events"
        });
    }
}
