//! Writes refusals into the audit log: a line, or at the end of a minute a sum.

use crate::audit::{Event, event};
use crate::caller::Caller;
use crate::error::{Refused, Result};
use crate::service::Service;

impl Service {
    /// Writes down that a caller was refused. `is_known`: he has proven who he is.
    pub(crate) async fn tell_refusal(&self, caller: &Caller, is_known: bool, event: Event) -> Result<()> {
        let has_line = caller.address.is_none_or(|address| {
            let (millis, uptime) = (self.ledger.millis(), self.ledger.uptime());
            self.refusals
                .has_line(address.ip(), event.name(), is_known, millis, uptime)
        });
        match has_line {
            true => self.ledger.tell(event).await,
            false => {
                self.ledger.counts().event(event.name());
                Ok(())
            }
        }
    }

    /// The same, with the reason; answers what the caller is told.
    pub(crate) async fn refuse(
        &self,
        caller: &Caller,
        is_known: bool,
        event: Event,
        refused: Refused,
    ) -> Refused {
        let event = event.with("reason", refused.words.as_str());
        match self.tell_refusal(caller, is_known, event).await {
            Ok(()) => refused,
            Err(failed) => failed,
        }
    }

    /// Writes the sums of the minutes that are over, or, when the service stops, all.
    pub(crate) async fn tell_sums(&self, all: bool) -> Result<()> {
        let mut sums = self.refusals.take(self.ledger.uptime(), all);
        while let Some(sum) = sums.pop_front() {
            let source = sum.source.map_or_else(String::new, |source| source.short());
            let event = Event::new(event::STRANGERS, self.ledger.millis())
                .with("of", sum.what)
                .with("source", source)
                .with("count", sum.count)
                .with("first", crate::clock::rfc3339(sum.first))
                .with("last", crate::clock::rfc3339(sum.last));
            if let Err(failed) = self.ledger.tell(event).await {
                sums.push_front(sum);
                self.refusals.put_back(sums);
                return Err(failed);
            }
        }
        Ok(())
    }
}
