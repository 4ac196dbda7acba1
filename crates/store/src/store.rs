//! The trait that every store is behind, and what can be said with it alone. It holds no state.

use crate::{Entry, Error, Key, LeaseId, Outcome, Page, Prefix, Range, Revision, Step, Value, Watch};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// An answer that will come. A request is under way as soon as its method was called; who drops the answer may not
/// assume that nothing was done.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A store of keys and values with one revision over all of them.
///
/// A change that was answered is durable: it survives the machine's power. Who was answered sees it in every later
/// read; all see the same changes in the same order.
pub trait Store: Send + Sync {
    /// What `key` holds.
    fn get(&self, key: &Key) -> Answer<'_, Option<Entry>>;

    /// Does all steps at one revision, or none. A key may be in one step only.
    fn transact(&self, steps: Vec<Step>) -> Answer<'_, Outcome>;

    /// A page of a range, read in one moment.
    fn range(&self, range: Range) -> Answer<'_, Page>;

    /// Every change under `prefix` after the revision `after`, in order, each once. [`Error::Compacted`] when they are
    /// not known any more: read the range again, and watch after its revision.
    fn watch(&self, prefix: Prefix, after: Revision) -> Answer<'_, Watch>;

    /// A new lease: without [`Store::keep_alive`] within `ttl` it ends, and the keys under it are deleted.
    ///
    /// It says who is there, not what is still allowed: a store that was away gives every lease its whole time again.
    /// What must not be used after a time carries that time in its value.
    fn grant(&self, ttl: Duration) -> Answer<'_, LeaseId>;

    /// Begins a lease's time anew. [`Error::NoLease`] when it has ended.
    fn keep_alive(&self, lease: LeaseId) -> Answer<'_, ()>;

    /// Ends a lease now.
    fn revoke(&self, lease: LeaseId) -> Answer<'_, ()>;

    /// Puts `value` at `key`, whatever was there; with a lease it ends with that.
    fn put(&self, key: Key, value: Value, lease: Option<LeaseId>) -> Answer<'_, Revision> {
        let mut step = Step::put(key, value);
        if let Some(lease) = lease {
            step = step.under(lease);
        }
        unconditional(self.transact(vec![step]))
    }

    /// Deletes `key`, if it is there.
    fn delete(&self, key: Key) -> Answer<'_, Revision> {
        unconditional(self.transact(vec![Step::delete(key)]))
    }

    /// Does one step, if its key is as expected.
    fn compare_and_set(&self, step: Step) -> Answer<'_, Outcome> {
        self.transact(vec![step])
    }
}

/// All entries under `prefix`, page by page, and the revision of the first page. Between two pages the store may change;
/// a watch after this revision tells all of that, perhaps once more than was seen already.
pub async fn all(store: &dyn Store, prefix: &Prefix) -> Result<(Vec<Entry>, Revision), Error> {
    let mut page = store.range(Range::prefix(prefix)).await?;
    let revision = page.revision;
    let mut entries = page.entries;
    while let (true, Some(last)) = (page.more, entries.last()) {
        page = store.range(Range::prefix(prefix).after(last.key.clone())).await?;
        entries.append(&mut page.entries);
    }
    Ok((entries, revision))
}

fn unconditional(answer: Answer<'_, Outcome>) -> Answer<'_, Revision> {
    Box::pin(async {
        match answer.await? {
            Outcome::Done(revision) => Ok(revision),
            // No step of these expects anything.
            Outcome::Conflict(_) => Err(Error::Broken("a conflict without a condition")),
        }
    })
}
