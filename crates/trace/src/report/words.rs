//! The seam between what a call means and the lines that say so: a call's name, arguments and result in one form.

use crate::catch::Enter;
use crate::decode::Memory;

/// Puts calls into words.
pub trait Words {
    /// What it has to remember of a call from its beginning to its end.
    type Begun;

    /// The arguments that are known when a call begins, without a bracket.
    fn begin(&mut self, enter: &Enter, memory: &dyn Memory, line: &mut Vec<u8>) -> Self::Begun;

    /// The rest of them when it ends.
    fn finish(&mut self, begun: &Self::Begun, result: i64, memory: &dyn Memory, line: &mut Vec<u8>);

    /// The rest of them where its end will not be seen.
    fn abandon(&mut self, begun: &Self::Begun, line: &mut Vec<u8>);

    /// The result, and what an error means.
    fn result(&mut self, begun: &Self::Begun, result: i64, memory: &dyn Memory, line: &mut Vec<u8>);
}
