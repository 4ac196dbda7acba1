//! The seam between what a call means and whoever writes it down: arguments and result in one form, text or JSON.

use crate::catch::Enter;
use fleetgate_calls::memory::Memory;

/// Puts calls into words.
pub trait Words {
    /// What it has to remember of a call from its beginning to its end.
    type CallProgress: Copy;

    /// The arguments that are known when a call begins, from the bracket on.
    fn begin(&mut self, enter: &Enter, memory: &dyn Memory, into: &mut Vec<u8>) -> Self::CallProgress;

    /// Whether these were all.
    fn is_whole(&self, begun: Self::CallProgress) -> bool;

    /// The rest of them when it ends, and its result. Text has the result in this column of `into`.
    fn finish(
        &mut self,
        call: EndingCall<'_, Self::CallProgress>,
        result: i64,
        memory: &dyn Memory,
        into: &mut Vec<u8>,
    );

    /// The same where its end will not be seen.
    fn abandon(&mut self, call: EndingCall<'_, Self::CallProgress>, memory: &dyn Memory, into: &mut Vec<u8>);
}

/// A call that ends.
#[derive(Clone, Copy, Debug)]
pub struct EndingCall<'a, B> {
    /// How it began.
    pub enter: &'a Enter,
    /// What was remembered of it.
    pub begun: B,
    /// The column of its result, from where `into` begins.
    pub column: usize,
}

/// The bracket that ends the arguments, and room up to the result's column.
pub fn align(column: usize, into: &mut Vec<u8>) {
    into.extend_from_slice(b") ");
    if into.len() < column {
        into.resize(column, b' ');
    }
}
