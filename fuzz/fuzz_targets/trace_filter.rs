//! Any bytes as a selection and calls: the program that is compiled for it stops what the definition says, and what the
//! kernel would let go on unasked never stops. The listing of any program can be written.
#![no_main]

use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::filter::{Answers, Data, MAX_INSTRUCTIONS, compile, constant, run, show};
use fleetgate_calls::select::{Is, Selection, Test, When};
use libfuzzer_sys::fuzz_target;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    /// 0 behind the end.
    fn byte(&mut self) -> u8 {
        let [first, rest @ ..] = self.0 else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn value(&mut self) -> u64 {
        let shape = self.byte();
        let small = u64::from(self.byte());
        match shape % 6 {
            0 => small,
            1 => small << (shape / 6),
            2 => !(small << (shape / 6)),
            3 => small << 32 | u64::from(self.byte()),
            4 => u64::from(u32::MAX) + small,
            _ => (0..8).fold(0, |value, _| value << 8 | u64::from(self.byte())),
        }
    }

    fn abi(&mut self) -> Abi {
        Abi::ALL[usize::from(self.byte() & 3)]
    }

    fn test(&mut self) -> Test {
        let what = self.byte();
        let value = self.value();
        let is = match what & 3 {
            0 => Is::AnyOf(value),
            1 => Is::AtLeast(value),
            2 => Is::Not(value),
            _ => Is::Masked {
                mask: self.value(),
                value,
            },
        };
        Test {
            argument: (what >> 3) & 7,
            wide: what & 4 != 0,
            is,
        }
    }

    fn when(&mut self) -> When {
        let shape = self.byte();
        if shape & 1 == 0 {
            return When::Always;
        }
        let groups = 0..(shape >> 1) & 3;
        let tests = (shape >> 3) & 3;
        When::Any(
            groups
                .map(|_| (0..tests).map(|_| self.test()).collect())
                .collect(),
        )
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let mut selection = Selection::none();
    let mut calls = Vec::new();
    for _ in 0..bytes.byte() {
        let abi = bytes.abi();
        if bytes.byte() > 250 {
            selection.add_all(abi);
            continue;
        }
        let number = bytes.value() as u32;
        if bytes.byte() > 200 {
            selection.remove(Call { abi, number });
        }
        selection.add(Call { abi, number }, bytes.when());
        calls.push((abi.audit(), Call { abi, number }.register()));
    }
    let answers = Answers::trace(u16::from(bytes.byte()));
    let program = match compile(&selection, &answers) {
        Ok(program) => program,
        Err(error) => {
            assert!(error.instructions > MAX_INSTRUCTIONS);
            return;
        }
    };
    assert!(!show(&program, &|_| Some("call")).is_empty());
    let arguments: [u64; 6] = std::array::from_fn(|_| bytes.value());
    calls.push((bytes.value() as u32, bytes.value() as u32));
    for (arch, number) in calls {
        for nr in [number.wrapping_sub(1), number, number.wrapping_add(1)] {
            for args in [arguments, [arguments[0]; 6], [bytes.value(); 6]] {
                let data = Data {
                    nr,
                    arch,
                    instruction: arguments[1],
                    args,
                };
                let stops = selection.stops(arch, nr, &args);
                let answer = if stops {
                    answers.selected
                } else {
                    answers.otherwise
                };
                assert_eq!(run(&program, &data), Ok(answer), "{data:x?} {selection:x?}");
                assert!(
                    !stops || !constant(&program, arch, nr),
                    "{data:x?} {selection:x?}"
                );
            }
        }
    }
});
