//! What goes from a log that is too large. The oldest events do, unless one machine has told more than its share of the log:
//! then the oldest of its own. So a machine that was taken over, or runs wild, does not push out what others have told.

use super::exports::count_lost;
use super::log::{own, put};
use super::{Event, event};
use rusqlite::{Connection, OptionalExtension, params};

/// One part in so many of the largest size is cut off.
const CUT: u64 = 10;
/// A machine that has told more than one part in so many of all loses its own events first.
const SHARE: u64 = 4;

/// The shares are those of one line in so many, from a place that nobody can know before.
const SAMPLE: u32 = 16;

/// Who told it: whose lines a machine's are by the names that auth has put into them. What auth itself did is nobody's, or
/// the machine's that had it done.
struct Teller {
    proxy: Option<String>,
    node: Option<String>,
}

/// Cuts events off a log that is too large, and says so in it. It looks through all of the log, once for each tenth of it that came.
pub(super) fn cut(db: &Connection, size: u64, now: u64) -> Result<(), rusqlite::Error> {
    let number = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    let used = (number("page_count")? - number("freelist_count")?) * number("page_size")?;
    if used <= size {
        return Ok(());
    }
    let greediest = greediest(db)?;
    let count = match &greediest {
        Some(teller) => cut_of(db, teller, size / CUT)?,
        None => cut_oldest(db)?,
    };
    let mut event = Event::new(event::AUDIT_CUT, now)
        .with("count", count)
        .with("size", used)
        .with("most", size);
    if let Some(teller) = greediest {
        event = event.with("source", teller.source());
    }
    put(db, &own(event, now, None))
}

/// Of all events.
fn cut_oldest(db: &Connection) -> Result<usize, rusqlite::Error> {
    let (first, last): (i64, i64) = db.query_row("SELECT min(id), max(id) FROM events", [], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    let until = first + ((last - first) / CUT.cast_signed()).max(1);
    count_lost(db, "id < ?1", &[&until])?;
    db.execute("DELETE FROM events WHERE id < ?1", [until])
}

/// The machine that has told most, if that is more than its share.
fn greediest(db: &Connection) -> Result<Option<Teller>, rusqlite::Error> {
    let mut shares = db.prepare(
        "SELECT CAST(json_extract(line, '$.proxy') AS TEXT) AS proxy,
                iif(json_extract(line, '$.proxy') IS NULL, node, NULL) AS teller, sum(length(line)) AS bytes
             FROM events WHERE id % ?1 = (SELECT abs(random() % ?1)) GROUP BY proxy, teller ORDER BY bytes DESC",
    )?;
    let shares: Vec<(Teller, u64)> = shares
        .query_map([SAMPLE], |row| {
            let (proxy, node) = (row.get(0)?, row.get(1)?);
            Ok((Teller { proxy, node }, row.get(2)?))
        })?
        .collect::<Result<_, _>>()?;
    let all: u64 = shares.iter().map(|(_, bytes)| bytes).sum();
    let is_machine = |(teller, _): &(Teller, u64)| teller.proxy.is_some() || teller.node.is_some();
    let greediest = shares.into_iter().find(is_machine);
    Ok(greediest
        .filter(|(_, bytes)| bytes * SHARE > all)
        .map(|(teller, _)| teller))
}

impl Teller {
    /// As events name it.
    fn source(&self) -> String {
        match (&self.proxy, &self.node) {
            (Some(proxy), _) => format!("proxy {proxy}"),
            (None, node) => format!("node {}", node.as_deref().unwrap_or_default()),
        }
    }
}

/// Of one machine's events, those before as many bytes as `bytes`, and one at least.
fn cut_of(db: &Connection, teller: &Teller, bytes: u64) -> Result<usize, rusqlite::Error> {
    // Parsing is what takes time: the column is compared first.
    let (is_its, name) = match (&teller.proxy, &teller.node) {
        (Some(proxy), _) => (
            "instr(line, '\"proxy\":') > 0 AND CAST(json_extract(line, '$.proxy') AS TEXT) = ?1",
            proxy.as_str(),
        ),
        (None, node) => (
            "node = ?1 AND json_extract(line, '$.proxy') IS NULL",
            node.as_deref().unwrap_or_default(),
        ),
    };
    let until: Option<i64> = db
        .query_row(
            &format!(
                "SELECT id FROM (SELECT id, sum(length(line)) OVER (ORDER BY id) AS so_far FROM events NOT INDEXED
                     WHERE {is_its}) WHERE so_far > ?2 LIMIT 1"
            ),
            params![name, bytes],
            |row| row.get(0),
        )
        .optional()?;
    let until = until.unwrap_or(i64::MAX);
    count_lost(db, &format!("id <= ?2 AND {is_its}"), &[&name, &until])?;
    db.execute(
        &format!("DELETE FROM events NOT INDEXED WHERE id <= ?2 AND {is_its}"),
        params![name, until],
    )
}
