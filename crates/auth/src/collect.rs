//! Audit records of nodes and proxies: verified by the key that the machine is known by, kept once, acknowledged when they
//! are on the disk. And asking for events.

use crate::audit::{Batch, Found, MAX_BATCH, Mark, Query, Teller, lines};
use crate::caller::Caller;
use crate::documents::Kind;
use crate::error::{Refused, Result};
use crate::service::Service;
use fleetgate_net::x509;
use fleetgate_policy::Invalid;
use fleetgate_policy::cluster::SESSION_DIGITS;
use fleetgate_proto::{signed, v1};

/// The most kinds of events that one request names.
const MAX_EVENTS: usize = 32;
/// The longest name of a log.
const MAX_LOG: usize = 128;

/// An answer to a query that is read page by page.
pub struct Reading {
    query: Query,
    mark: Mark,
    follow: bool,
}

impl Service {
    /// Keeps records.
    pub async fn audit(&self, caller: &Caller, request: v1::AuditFrom) -> Result<v1::AuditPosition> {
        let now = self.now();
        caller.proxy(self)?;
        let batch = request
            .batch
            .ok_or_else(|| Refused::invalid("no records were sent"))?;
        if batch.lines.len() > MAX_BATCH {
            return Err(Refused::invalid(format!(
                "a batch of records has at most {MAX_BATCH} bytes"
            )));
        }
        if batch.log.is_empty() || batch.log.len() > MAX_LOG || batch.offset > 1 << 62 {
            return Err(Refused::invalid(format!(
                "records name their log by 1 to {MAX_LOG} bytes, and where in it they begin"
            )));
        }
        let (kind, name, _) = self.member_of(&request.source, &batch.certificate, now)?;
        let key = x509::Certificate::read(&batch.certificate).and_then(|c| c.public_key());
        let signs = key.and_then(|key| key.verify(&signed::audit(name.as_str(), &batch), &batch.signature));
        signs.map_err(|e| Refused::unproven(format!("the records of {name}: {e}")))?;
        let is_sshd = |name: &str| {
            let cache = self.cache();
            let member = cache.nodes.get(name);
            member.is_some_and(|member| member.document.address.is_some())
        };
        let teller = match kind {
            Kind::Node => Teller::Node(name.as_str()),
            Kind::Proxy => Teller::Proxy(name.as_str(), &is_sshd),
        };
        let batch = Batch {
            source: format!("{} {name}", kind.name()),
            lines: lines(&batch.lines, batch.offset, teller, self.ledger.millis()),
            log: batch.log,
            offset: batch.offset,
        };
        let log = batch.log.clone();
        let offset = self.ledger.audit().write(batch).await?;
        Ok(v1::AuditPosition { log, offset })
    }

    /// Begins to read events.
    pub async fn events(&self, request: v1::EventsRequest) -> Result<Reading> {
        let mut events = request.events;
        if !request.event.is_empty() {
            events.push(request.event);
        }
        if events.len() > MAX_EVENTS {
            return Err(Refused::invalid(format!(
                "at most {MAX_EVENTS} kinds of events are asked for at once"
            )));
        }
        if request.session.len() > SESSION_DIGITS || !request.session.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Refused::invalid(format!(
                "a session is named by at most {SESSION_DIGITS} hexadecimal digits"
            )));
        }
        let query = Query {
            user: request.user,
            node: request.node,
            events,
            session: request.session.to_ascii_lowercase(),
            connection: request.connection,
            present: request.present,
            from: request.from,
            until: request.until,
            limit: request.limit,
        };
        let mark = match &*request.after {
            "" => self.ledger.audit().begin(&query).await?,
            after => after.parse().map_err(|why: Invalid| Refused::invalid(why))?,
        };
        Ok(Reading {
            mark,
            query,
            follow: request.follow,
        })
    }

    /// The next events with the mark behind each; none: that was all. Whoever follows waits for more.
    pub async fn read_on(&self, reading: &mut Reading) -> Result<Vec<(Found, Mark)>> {
        let mut last = self.ledger.audit().last();
        loop {
            last.mark_unchanged();
            let found = self.ledger.audit().page(&reading.query, reading.mark).await?;
            if let Some(newest) = found.last() {
                let before = reading.mark;
                reading.mark = before.behind(newest);
                let marked = |found: Found| {
                    let mark = before.behind(&found);
                    (found, mark)
                };
                return Ok(found.into_iter().map(marked).collect());
            }
            if let Mark::Time { newest, .. } = reading.mark
                && reading.follow
            {
                reading.mark = Mark::Arrival(newest);
                continue;
            }
            if !reading.follow || last.changed().await.is_err() {
                return Ok(Vec::new());
            }
        }
    }
}
