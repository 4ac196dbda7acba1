//! Calls without their meaning: arguments as the registers have them, in hexadecimal (`-e raw=all`). Nothing is read.

use super::words::Words;
use crate::catch::Enter;
use crate::decode::Memory;
use crate::tables::errno;
use std::io::Write;

/// Undecoded.
pub struct Raw;

impl Words for Raw {
    type Begun = ();

    fn begin(&mut self, enter: &Enter, _: &dyn Memory, line: &mut Vec<u8>) {
        for (at, argument) in enter.arguments.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(line, "{comma}{argument:#x}");
        }
    }

    fn finish(&mut self, (): &(), _: i64, _: &dyn Memory, _: &mut Vec<u8>) {}

    fn abandon(&mut self, (): &(), _: &mut Vec<u8>) {}

    fn result(&mut self, (): &(), result: i64, _: &dyn Memory, line: &mut Vec<u8>) {
        let _ = match errno::of_result(result) {
            None => write!(line, "{result:#x}"),
            Some(error) => super::words::error(error, line),
        };
    }
}
