//! The threads that read, each on a connection of its own that cannot write: a range does not wait for a commit, nor a
//! look at one key for a long range.

use super::{fault, rows, writer::To};
use crate::{Entry, Error, Key, Page, Range};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

/// What is asked of a reader.
#[derive(Debug)]
pub enum Question {
    /// What a key holds.
    Get(Key, To<Option<Entry>>),
    /// A page of a range.
    Range(Range, To<Page>),
}

/// The questions that wait, taken by whichever reader is free.
pub type Questions = Arc<Mutex<Receiver<Question>>>;

/// Answers until nobody can ask any more.
pub fn run(path: PathBuf, mut database: Connection, questions: Questions) {
    loop {
        let next = questions.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(Question::Get(key, to)) => {
                let _ = to.send(rows::entry(&database, &key).map_err(|e| fault::told(&path, &e)));
            }
            Ok(Question::Range(range, to)) => {
                let _ = to.send(page(&path, &mut database, &range));
            }
            Err(_) => return,
        }
    }
}

/// A page in a transaction of its own: entries and revision of one moment.
fn page(path: &Path, database: &mut Connection, range: &Range) -> Result<Page, Error> {
    let told = |e| fault::told(path, &e);
    let moment = database.transaction().map_err(told)?;
    rows::page(&moment, range).map_err(told)
}
