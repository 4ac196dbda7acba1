//! Recordings whose heads and hashes are right, whatever their blocks hold.

use fleetgate_record::block::{Chain, Head, Holds, file_head, first_chain};

/// A recording made of `data`: for each block what it holds, how long it says that its frames are, its length, its time, and
/// its bytes. Also where it ends, and what is left of the data.
pub fn sealed(data: &[u8]) -> (Vec<u8>, Chain, &[u8]) {
    let head = file_head(&[7; 16]);
    let (mut file, mut chain) = (head.to_vec(), first_chain(&head));
    let mut rest = data;
    let mut number = 0;
    while let Some((&[holds, plain, len, time], behind)) = rest.split_first_chunk::<4>() {
        if holds == 0xff {
            return (file, chain, behind);
        }
        let (stored, behind) = behind.split_at(usize::from(len).min(behind.len()));
        let continues = holds & 0x80 != 0;
        let holds = match holds % 5 {
            0 => Holds::Frames,
            1 => Holds::Compressed,
            2 => Holds::Signature,
            3 => Holds::End,
            _ => Holds::Encrypted,
        };
        let head = Head {
            holds,
            continues: continues && !matches!(holds, Holds::Signature | Holds::End),
            stored: stored.len(),
            plain: match holds {
                Holds::Frames | Holds::End => stored.len(),
                _ => usize::from(plain) << 9,
            },
            number,
            first: u64::from(time) << 56,
            last: 0,
        };
        let (head, next) = head.seal(&chain, stored);
        file.extend_from_slice(&head);
        file.extend_from_slice(stored);
        (chain, number, rest) = (next, number + 1, behind);
    }
    (file, chain, rest)
}
