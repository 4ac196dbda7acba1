//! Any call of a watched session, with any registers and memory: never a panic, an event that is known, fields within their
//! bounds, and nothing that the caller could write is called the kernel's.
#![no_main]

use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::audit::{
    AuditEvent, Caller, Calls, Image, Level, MAX_ARGV, MAX_PATH, MAX_WORDS, Source, Value, Who, event, tell,
    tell_socketcall,
};
use fleetgate_calls::memory::Memory;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// Where the memory begins.
const HERE: u64 = 0x1000;
/// What the kernel says of this caller: no byte of it is the caller's own.
const KERNELS: &[u8] = b"/kernel/says";

static CALLS: LazyLock<Calls> = LazyLock::new(Calls::new);

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

    fn descriptor(&self, fd: i32) -> Option<Vec<u8>> {
        (fd % 2 == 0).then(|| KERNELS.to_vec())
    }

    fn directory(&self) -> Option<Vec<u8>> {
        Some(KERNELS.to_vec())
    }
}

impl Caller for Piece<'_> {
    fn who(&self) -> Option<Who> {
        self.0.first().map(|_| Who::default())
    }

    fn image(&self) -> Option<Image> {
        Some(Image {
            path: KERNELS.to_vec(),
            ..Image::default()
        })
    }
}

fn check(told: &AuditEvent) {
    assert_eq!(event(told.event), Some(told.event));
    for fact in &told.facts {
        match &fact.value {
            Value::Text(bytes, _) => {
                assert!(bytes.len() <= MAX_PATH, "{}", fact.name);
                assert!(fact.source != Source::Kernel || bytes == KERNELS, "{}", fact.name);
            }
            Value::Words(words, _) => {
                assert!(words.len() <= MAX_WORDS, "{}", fact.name);
                assert!(
                    words.iter().map(Vec::len).sum::<usize>() <= MAX_ARGV,
                    "{}",
                    fact.name
                );
            }
            Value::Number(_) => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    // Two bytes of the call, one of its numbering and level, one of what leads into memory; then six registers, memory.
    let Some((head, rest)) = data.split_at_checked(4 + 6 * 8) else {
        return;
    };
    let words: Vec<u64> = head[4..]
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let abi = Abi::ALL[usize::from(head[2]) % Abi::ALL.len()];
    let number = u32::from(u16::from_le_bytes([head[0], head[1]])) % 600;
    let level = [Level::Commands, Level::Files, Level::Full][usize::from(head[2] >> 4) % 3];
    let arguments = std::array::from_fn(|at| match head[3] >> at & 1 {
        0 => words[at],
        _ => HERE + words[at] % (rest.len() as u64 + 8),
    });
    let caller = Piece(rest);
    let call = Call { abi, number };
    let told = match CALLS.row(call, &arguments) {
        Some(row) => tell(row, abi, &arguments, level, &caller),
        None => tell_socketcall(&arguments, level, &caller),
    };
    told.iter().for_each(check);
    check(&AuditEvent::executed(&caller));
});
