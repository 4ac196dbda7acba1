//! Any call with any registers and memory: never a panic, text that can be printed, JSON that can be read, and an end.
#![no_main]

use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::memory::Memory;
use fleetgate_trace::catch::Enter;
use fleetgate_trace::decode::{self, Limits, Out};
use fleetgate_trace::report::json::Json;
use fleetgate_trace::report::text::{COLUMN, Text};
use libfuzzer_sys::fuzz_target;

/// Where the memory begins.
const HERE: u64 = 0x1000;

struct Piece<'a>(&'a [u8]);

impl Memory for Piece<'_> {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let from = at.checked_sub(HERE).and_then(|at| usize::try_from(at).ok());
        let Some(bytes) = from.and_then(|from| self.0.get(from..)) else {
            return 0;
        };
        let length = bytes.len().min(into.len());
        into[..length].copy_from_slice(&bytes[..length]);
        length
    }

    fn descriptor(&self, _: i32) -> Option<Vec<u8>> {
        self.0.first().map(|_| self.0.to_vec())
    }

    fn directory(&self) -> Option<Vec<u8>> {
        None
    }
}

fn run(enter: &Enter, memory: &Piece, limits: &Limits, result: Option<i64>, out: &mut dyn Out) {
    let begun = decode::begin(enter, memory, limits, out);
    match result {
        Some(result) => decode::finish(enter, begun, result, memory, limits, out),
        None => decode::abandon(enter, begun, memory, limits, out),
    }
}

fuzz_target!(|data: &[u8]| {
    // Two bytes of the call, one of its numbering, one of what is shown; then the result, six registers, memory.
    let Some((head, rest)) = data.split_at_checked(4 + 7 * 8) else {
        return;
    };
    let words: Vec<u64> = head[4..]
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let abi = Abi::ALL[usize::from(head[2]) % Abi::ALL.len()];
    let number = u32::from(u16::from_le_bytes([head[0], head[1]])) % 600;
    let enter = Enter {
        tid: 1,
        call: Some(Call { abi, number }),
        audit: abi.audit(),
        number,
        // Most addresses lead into the memory, or nothing of it would ever be read.
        arguments: std::array::from_fn(|at| match head[3] >> at & 1 {
            0 => words[at + 1],
            _ => HERE + words[at + 1] % (rest.len() as u64 + 8),
        }),
        instruction: 0,
    };
    let limits = Limits {
        abbreviate: head[3] & 0x40 == 0,
        descriptors: head[3] & 0x80 != 0,
        ..Limits::default()
    };
    let result = (head[2] & 0x80 == 0).then_some(words[0] as i64);
    let memory = Piece(rest);
    let mut text = Vec::new();
    run(
        &enter,
        &memory,
        &limits,
        result,
        &mut Text::new(&mut text, 0, COLUMN),
    );
    assert!(
        text.iter().all(|byte| (b' '..=b'~').contains(byte)),
        "{}",
        text.escape_ascii()
    );
    let mut json = b"{".to_vec();
    run(&enter, &memory, &limits, result, &mut Json::new(&mut json));
    json.push(b'}');
    let read: Result<serde_json::Value, _> = serde_json::from_slice(&json);
    assert!(read.is_ok(), "{}", json.escape_ascii());
    // A descriptor is described each time that it is named.
    let most = 2 * Limits::ALTOGETHER + 4096 * (1 + 6 * rest.len());
    assert!(
        text.len() < most && json.len() < most,
        "{} {}",
        text.len(),
        json.len()
    );
});
