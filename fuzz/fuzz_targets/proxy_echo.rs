//! Any keys and any output: each key is recorded or hidden, once and in its order, and no text is recorded that was not shown.
#![no_main]

use fleetgate_proxy::recorder::echo::{Echo, Typed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut echo = Echo::default();
    let (mut keys, mut shown, mut known) = (Vec::new(), Vec::new(), Vec::new());
    // The first bit of the first byte of a part says which of the two it is.
    for part in data.chunks(7) {
        let Some((first, bytes)) = part.split_first() else {
            continue;
        };
        known.extend(match first & 1 {
            0 => {
                keys.extend_from_slice(bytes);
                echo.typed(bytes)
            }
            _ => {
                shown.extend_from_slice(bytes);
                echo.shown(bytes)
            }
        });
    }
    known.extend(echo.finish());
    let (mut at, mut output) = (0, shown.iter());
    for typed in known {
        match typed {
            Typed::Input(bytes) => {
                assert_eq!(keys[at..at + bytes.len()], bytes);
                at += bytes.len();
                // Bytes above 127 are text wherever they stand.
                assert!(
                    bytes
                        .iter()
                        .filter(|byte| **byte > 127)
                        .all(|byte| output.any(|shown| shown == byte))
                );
            }
            Typed::Hidden(count) => at += usize::try_from(count).expect("not more than was typed"),
        }
    }
    assert_eq!(at, keys.len());
});
