//! Tests of the lines of events, and of the file that they are written to.

mod lines;
mod writer;

use super::Event;
use fleetgate_sys::clock::Time;

pub(crate) const AT: Time = Time {
    sec: 1_700_000_000,
    nsec: 123_456_789,
};
pub(crate) const ID: [u8; 16] = [0xab; 16];

pub(crate) fn line(event: &Event) -> String {
    let mut line = Vec::new();
    event.write_line(AT, &mut line);
    String::from_utf8(line)
        .expect("text")
        .strip_suffix('\n')
        .expect("a whole line")
        .to_owned()
}
