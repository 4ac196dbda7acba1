//! Asking the audit log: page by page, each with a connection of its own, so that a long answer holds up neither the
//! writer nor the service.

use super::schema::{alone, reader, said};
use super::{AuditError, Log};
use rusqlite::types::Value;

/// The most events of one page.
const PAGE: u32 = 500;
/// The most bytes of its lines; one line is always in it.
const PAGE_BYTES: usize = 1 << 20;

/// What is asked for; what is empty or 0 is not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Of this user.
    pub user: String,
    /// Of this node.
    pub node: String,
    /// Of this kind.
    pub event: String,
    /// From this second on.
    pub from: u64,
    /// Before this second.
    pub until: u64,
    /// Only the last so many.
    pub limit: u32,
}

/// An event that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub id: i64,
    /// JSON.
    pub line: String,
}

impl Query {
    fn conditions(&self) -> (String, Vec<Value>) {
        let mut text = String::from("id > ?1");
        let mut values = Vec::new();
        let mut and = |condition: &str, value: Value| {
            values.push(value);
            text.push_str(&format!(" AND {condition} ?{}", values.len() + 1));
        };
        for (column, wanted) in [
            ("user =", &self.user),
            ("node =", &self.node),
            ("event =", &self.event),
        ] {
            if !wanted.is_empty() {
                and(column, Value::Text(wanted.clone()));
            }
        }
        let millis = |seconds: u64| Value::Integer(seconds.min(1 << 40) as i64 * 1000);
        if self.from > 0 {
            and("time >=", millis(self.from));
        }
        if self.until > 0 {
            and("time <", millis(self.until));
        }
        (text, values)
    }
}

impl Log {
    /// The number behind which the answer to `query` begins: 0, unless only the last ones are wanted.
    pub async fn begin(&self, query: &Query) -> Result<i64, AuditError> {
        if query.limit == 0 {
            return Ok(0);
        }
        let (conditions, values) = query.conditions();
        let limit = query.limit;
        self.read(move |db| {
            let sql = format!(
                "SELECT coalesce(min(id), 1) - 1 FROM
                     (SELECT id FROM events WHERE {conditions} ORDER BY id DESC LIMIT {limit})"
            );
            let mut all = vec![Value::Integer(0)];
            all.extend(values);
            db.query_row(&sql, rusqlite::params_from_iter(all), |row| row.get(0))
        })
        .await
    }

    /// The next events behind the number `after`; none: there are no more now.
    pub async fn page(&self, query: &Query, after: i64) -> Result<Vec<Found>, AuditError> {
        let (conditions, values) = query.conditions();
        self.read(move |db| {
            let sql = format!("SELECT id, line FROM events WHERE {conditions} ORDER BY id LIMIT {PAGE}");
            let mut all = vec![Value::Integer(after)];
            all.extend(values);
            let mut statement = db.prepare(&sql)?;
            let mut rows = statement.query(rusqlite::params_from_iter(all))?;
            let (mut found, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let line: String = row.get(1)?;
                bytes += line.len();
                found.push(Found {
                    id: row.get(0)?,
                    line,
                });
                if bytes > PAGE_BYTES {
                    break;
                }
            }
            Ok(found)
        })
        .await
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, AuditError> {
        let permit = self.readers.clone().acquire_owned().await;
        let path = self.path().to_owned();
        let read = move || {
            let _permit = permit.map_err(|_| AuditError::Closed)?;
            let db = reader(&path)?;
            alone(&db).and_then(|()| work(&db)).map_err(|e| said(&path, &e))
        };
        tokio::task::spawn_blocking(read)
            .await
            .unwrap_or(Err(AuditError::Closed))
    }
}
