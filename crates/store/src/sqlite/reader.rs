//! The threads that read, each on a connection of its own that cannot write: a range does not wait for a commit, nor a
//! look at one key for a long range.

use super::connect::{self, Connected};
use super::work::To;
use super::{fault, rows};
use crate::{Entry, Error, Key, Page, Range};
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// A reader's connection: taken away by the writer while it opens the file anew, made again by the next question.
pub type Desk = Arc<Mutex<Option<Connected>>>;

/// A thread's state.
pub struct Reader {
    /// The database.
    pub path: PathBuf,
    /// By what it reads.
    pub desk: Desk,
    /// Whom it answers.
    pub questions: Questions,
}

impl Reader {
    /// Answers until nobody can ask any more, and closes its connection.
    pub fn run(self) {
        while let Some(next) = self.next() {
            match next {
                Question::Get(key, to) => {
                    let _ = to.send(self.told(|database| rows::entry(database, &key)));
                }
                Question::Range(range, to) => {
                    let _ = to.send(self.told(|database| page(database, &range)));
                }
            }
        }
        // The writer has the desk too, and would keep it open.
        *locked(&self.desk) = None;
    }

    fn next(&self) -> Option<Question> {
        locked(&self.questions).recv().ok()
    }

    fn told<T>(&self, read: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let mut desk = locked(&self.desk);
        let connected = match desk.take() {
            Some(connected) => Ok(connected),
            None => connect::open_to_read(&self.path),
        };
        let result = connected.and_then(|mut connected| {
            let result = read(&mut connected.database);
            // A file that was taken for one that never changes is looked at anew each time, should it change after all.
            *desk = connected.frozen.is_none().then_some(connected);
            result
        });
        result.map_err(|e| fault::told(&self.path, &e))
    }
}

/// A lock whose holder panicked protects nothing that could be half done: a question, a connection.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A page in a transaction of its own: entries and revision of one moment.
fn page(database: &mut Connection, range: &Range) -> rusqlite::Result<Page> {
    let moment = database.transaction()?;
    rows::page(&moment, range)
}
