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

/// An error as a result: `-1 ENOENT (No such file or directory)`. Those that the kernel keeps to itself have no number that a
/// program would see.
pub fn error(number: i32, line: &mut Vec<u8>) -> std::io::Result<()> {
    use crate::tables::errno;
    use std::io::Write;
    match (errno::name(number), errno::text(number)) {
        (Some(name), Some(text)) if number < 512 => write!(line, "-1 {name} ({text})"),
        (Some(name), Some(text)) => write!(line, "? {name} ({text})"),
        _ => write!(line, "-1 (errno {number})"),
    }
}
