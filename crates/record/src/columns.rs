//! A block's frames in another order, before they are compressed: all kinds and lengths, then all times, then all bytes. What is
//! alike is then side by side, which saves a twentieth, and the text has nothing between its pieces.

use crate::frame::{Kind, MAX_BYTES, number, put_number};

/// The frames in this order; nothing where they are none.
pub(crate) fn arrange(plain: &[u8]) -> Option<Vec<u8>> {
    let (mut count, mut heads, mut times, mut bytes) = (0, Vec::new(), Vec::new(), Vec::new());
    let mut rest = plain;
    while let Some((&kind, behind)) = rest.split_first() {
        Kind::of(kind)?;
        let (passed, behind) = number(behind)?;
        let (len, behind) = number(behind)?;
        let (piece, behind) = behind.split_at_checked(usize::try_from(len).ok()?)?;
        heads.push(kind);
        put_number(len, &mut heads);
        put_number(passed, &mut times);
        bytes.extend_from_slice(piece);
        rest = behind;
        count += 1;
    }
    let mut arranged = Vec::with_capacity(plain.len() + 10);
    put_number(count, &mut arranged);
    for part in [&heads, &times, &bytes] {
        arranged.extend_from_slice(part);
    }
    Some(arranged)
}

/// The frames one behind the other, in `plain`; nothing where they are not `len` bytes.
pub(crate) fn restore(arranged: &[u8], len: usize, plain: &mut Vec<u8>) -> Option<()> {
    plain.clear();
    plain.reserve_exact(len);
    let (count, heads) = number(arranged)?;
    let count = usize::try_from(count).ok()?;
    // Where the heads end, and then where the times do.
    let mut times = heads;
    for _ in 0..count {
        times = number(times.get(1..)?)?.1;
    }
    let mut bytes = times;
    for _ in 0..count {
        bytes = number(bytes)?.1;
    }
    let (mut heads, mut times) = (heads, times);
    for _ in 0..count {
        let (&kind, behind) = heads.split_first()?;
        let (size, behind) = number(behind)?;
        let (passed, later) = number(times)?;
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_BYTES)?;
        let (piece, left) = bytes.split_at_checked(size)?;
        plain.push(kind);
        put_number(passed, plain);
        put_number(size as u64, plain);
        if plain.len() + size > len {
            return None;
        }
        plain.extend_from_slice(piece);
        (heads, times, bytes) = (behind, later, left);
    }
    (plain.len() == len && bytes.is_empty()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;

    #[test]
    fn frames_come_back_and_nothing_else_does() {
        let mut plain = Vec::new();
        for n in 0..300_u64 {
            let bytes = vec![b'x'; (n as usize * 37) % 200];
            let kind = if n % 3 == 0 { Kind::Output } else { Kind::Event };
            Frame {
                kind,
                at: n * 90_000,
                bytes: &bytes,
            }
            .encode(n / 2 * 90_000, &mut plain);
        }
        let arranged = arrange(&plain).expect("frames");
        let mut back = Vec::new();
        assert!(restore(&arranged, plain.len(), &mut back).is_some());
        assert_eq!(back, plain);
        assert!(restore(&arranged, plain.len() - 1, &mut back).is_none());
        assert!(restore(&arranged, plain.len() + 1, &mut back).is_none());
        for cut in 0..arranged.len() {
            assert!(
                restore(&arranged[..cut], plain.len(), &mut back).is_none(),
                "{cut}"
            );
        }
        assert!(arrange(&plain[..plain.len() - 1]).is_none() && arrange(&[99]).is_none());
        assert_eq!(arrange(&[]), Some(vec![0]));
    }
}
