//! The text of a recording, a line a line.

use crate::clock;
use crate::source::Source;
use crate::text::each;
use fleetgate_policy::text::printable_lines;
use std::io::{self, Read, Write};

/// Writes it; with the time before each line where it is wanted.
pub fn text<R: Read>(source: &mut Source<R>, has_times: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut result = Ok(());
    each(source, &mut |line| {
        if result.is_err() {
            return;
        }
        let text = printable_lines(line.text);
        result = match has_times {
            true => writeln!(out, "{:>8}  {text}", clock::short(line.at)),
            false => writeln!(out, "{text}"),
        };
    })?;
    result
}
