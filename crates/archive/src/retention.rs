//! For how long recordings are kept, and how many bytes of them. Time counts from when the last of a recording came, by auth's
//! clock: a machine that was away for a month, or whose clock is wrong, does not lose what it brings.

use crate::catalogue::{Row, Sums};
use crate::entry::Key;
use crate::error::Error;

/// Those that came so lately never go for want of room: a flood of recordings shall not push out the ones that tell of it.
pub const NEVER_FOR_SIZE: u64 = 7 * DAY;
const DAY: u64 = 86_400;
/// The most that are removed by one decision.
const MOST: usize = 256;

/// What an administrator wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Days; 0: for ever. A recording whose role says for how long is kept for so long instead.
    pub keep_days: u64,
    /// Bytes, in the directory and the object store together; 0: no bound.
    pub max_size: u64,
}

/// Recordings that have to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// `age` or `size`.
    pub reason: &'static str,
    /// Which.
    pub recordings: Vec<Key>,
    /// Their bytes.
    pub bytes: u64,
}

impl Retention {
    /// What has to go; `rows` finds rows, and `sums` sums them.
    pub(crate) fn due(
        &self,
        now: u64,
        rows: impl Fn(&str) -> Result<Vec<Row>, Error>,
        sums: impl Fn() -> Result<Sums, Error>,
    ) -> Result<Vec<Removal>, Error> {
        let days = self.keep_days;
        let of_role = format!("arrived + keep_days * {DAY} <= {now}");
        let by_age = format!(
            "removed = 0 AND (keep_days > 0 AND {of_role} OR keep_days = 0 AND {days} > 0 AND arrived + {days} * {DAY} <= {now}) \
             ORDER BY arrived, session LIMIT {MOST}"
        );
        let mut due = Vec::from_iter(removal("age", rows(&by_age)?));
        if self.max_size == 0 {
            return Ok(due);
        }
        let freed = due.iter().map(|removal| removal.bytes).sum::<u64>();
        let mut over = sums()?.bytes.saturating_sub(freed).saturating_sub(self.max_size);
        let by_size = format!(
            "removed = 0 AND arrived + {NEVER_FOR_SIZE} <= {now} AND (keep_days = 0 OR {of_role}) \
             ORDER BY arrived, session LIMIT {}",
            2 * MOST
        );
        if over == 0 {
            return Ok(due);
        }
        let gone: Vec<Key> = due
            .iter()
            .flat_map(|removal| removal.recordings.clone())
            .collect();
        let mut chosen = rows(&by_size)?;
        chosen.retain(|row| {
            let goes = over > 0 && !gone.contains(&row.entry.key());
            over -= if goes { row.entry.bytes.min(over) } else { 0 };
            goes
        });
        due.extend(removal("size", chosen));
        Ok(due)
    }
}

fn removal(reason: &'static str, rows: Vec<Row>) -> Option<Removal> {
    (!rows.is_empty()).then(|| Removal {
        reason,
        bytes: rows.iter().map(|row| row.entry.bytes).sum(),
        recordings: rows.iter().map(|row| row.entry.key()).collect(),
    })
}
