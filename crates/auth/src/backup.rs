//! Backups: the state and the audit log in a directory of their own, made while the service runs, and put back while it
//! does not.

use crate::audit::Event;
use crate::caller::Caller;
use crate::error::{Refused, Result};
use crate::service::Service;
use fleetgate_proto::v1;

impl Service {
    /// Copies the audit log to a file that is made for it.
    pub async fn backup(&self, caller: &Caller, path: &str) -> Result<v1::BackupReply> {
        let to = std::path::Path::new(path);
        if !to.is_absolute() {
            return Err(Refused::invalid(
                "a backup's path is an absolute one, on the auth service's machine",
            ));
        }
        self.ledger.audit().copy(to).await?;
        let event: Event = self.event("backup", caller).with("path", path);
        self.ledger.tell(event).await?;
        let bytes = std::fs::metadata(to).map_or(0, |m| m.len());
        Ok(v1::BackupReply { bytes })
    }
}
