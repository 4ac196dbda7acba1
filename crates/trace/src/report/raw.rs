//! Calls without their meaning: arguments as the registers have them, in hexadecimal (`-e raw=all`). Nothing is read.

use super::words::{Ended, Words, align};
use crate::catch::Enter;
use crate::decode::Memory;
use crate::tables::errno;
use std::io::Write;

/// Undecoded.
pub struct Raw;

impl Words for Raw {
    type Begun = ();

    fn begin(&mut self, enter: &Enter, _: &dyn Memory, into: &mut Vec<u8>) {
        into.push(b'(');
        for (at, argument) in enter.arguments.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(into, "{comma}{argument:#x}");
        }
    }

    fn finish(&mut self, call: Ended<'_, ()>, result: i64, _: &dyn Memory, into: &mut Vec<u8>) {
        align(call.column, into);
        let _ = match errno::of_result(result) {
            None => write!(into, "= {result:#x}"),
            Some(error) => write!(into, "= -1 (errno {error})"),
        };
    }

    fn abandon(&mut self, call: Ended<'_, ()>, _: &dyn Memory, into: &mut Vec<u8>) {
        align(call.column, into);
        into.extend_from_slice(b"= ?");
    }
}
