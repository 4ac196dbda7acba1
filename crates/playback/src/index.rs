//! The index of a recording's text: which groups of three bytes are in which part of it, so that a search can pass over
//! recordings that cannot have what it looks for. It lies beside the recording, is at most a twentieth of the text, and is
//! only a hint: what it does not fit is searched without it.
//!
//! A part is about 512 KB of lines. Its groups are in a Bloom filter; text is folded to lower case first. The larger a part is, the
//! more often a group is in it twice, and the more bits are left for each.

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// A file begins with these.
pub const MAGIC: &[u8; 16] = b"fleetgate-idx 1\n";
/// The length of a file's head.
pub const HEAD: usize = 64;
/// The length of a part's head.
const PART_HEAD: usize = 16;
/// A part has so many bytes of text, and the rest of its last line.
const PART: usize = 512 << 10;
/// A text that is shorter has no index: it is read as fast.
const WORTH_IT: u64 = 4 << 10;
/// The index is at most the text's length divided by this.
const SHARE: usize = 20;
/// The largest index; a longer text has none.
pub const MAX: usize = 64 << 20;
/// How many bits of a filter one group sets, at most.
const MAX_BITS: u8 = 4;

/// Three bytes of text.
pub type Group = u32;

/// The same text without the difference of upper and lower case. Each character by itself, so that a part of a text is
/// folded to a part of what the text is folded to.
pub fn fold(text: &str, out: &mut String) {
    out.clear();
    if text.is_ascii() {
        out.push_str(text);
        out.make_ascii_lowercase();
        return;
    }
    out.extend(text.chars().flat_map(char::to_lowercase));
}

/// The groups of a folded text.
pub fn groups(folded: &str) -> BTreeSet<Group> {
    folded.as_bytes().windows(3).map(group).collect()
}

fn group(bytes: &[u8]) -> Group {
    bytes.iter().fold(0, |group, byte| group << 8 | u32::from(*byte))
}

/// Makes an index of lines.
pub struct Builder {
    /// A bit for each group that there can be: those of the part so far.
    seen: Vec<u64>,
    found: Vec<Group>,
    folded: String,
    /// Bytes of the part's text, and of all.
    part: usize,
    all: u64,
    parts: u32,
    out: Vec<u8>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            seen: vec![0; 1 << 18],
            found: Vec::new(),
            folded: String::new(),
            part: 0,
            all: 0,
            parts: 0,
            out: vec![0; HEAD],
        }
    }
}

impl Builder {
    /// Takes a line.
    pub fn line(&mut self, text: &str) {
        let mut folded = std::mem::take(&mut self.folded);
        fold(text, &mut folded);
        for bytes in folded.as_bytes().windows(3) {
            let group = group(bytes);
            let (word, bit) = (group as usize >> 6, 1 << (group & 63));
            if self.seen[word] & bit == 0 {
                self.seen[word] |= bit;
                self.found.push(group);
            }
        }
        self.folded = folded;
        // With the end of the line.
        self.part += text.len() + 1;
        self.all += text.len() as u64 + 1;
        if self.part >= PART {
            self.close();
        }
    }

    fn close(&mut self) {
        // The first part pays for the head, and for a last part that is too short for its own.
        let before = if self.parts == 0 { HEAD + PART_HEAD } else { 0 };
        let room = (self.part / SHARE).saturating_sub(PART_HEAD + before);
        let bits = Bits::best(room, self.found.len());
        let mut filter = vec![0_u8; room];
        for group in self.found.drain(..) {
            self.seen[group as usize >> 6] = 0;
            for bit in bits.of(group) {
                filter[bit / 8] |= 1 << (bit % 8);
            }
        }
        for len in [self.part, room] {
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            self.out.extend_from_slice(&len.to_le_bytes());
        }
        self.out.extend_from_slice(&[bits.count, 0, 0, 0, 0, 0, 0, 0]);
        self.out.extend_from_slice(&filter);
        self.part = 0;
        self.parts = self.parts.saturating_add(1);
    }

    /// The index's file, of a recording with this session and length; nothing where it is not worth it.
    pub fn finish(mut self, session: &[u8; 16], length: u64) -> Option<Vec<u8>> {
        if self.all < WORTH_IT {
            return None;
        }
        if self.part > 0 {
            self.close();
        }
        let mut out = self.out;
        if out.len() > MAX {
            return None;
        }
        out[..16].copy_from_slice(MAGIC);
        out[16..32].copy_from_slice(session);
        out[32..40].copy_from_slice(&length.to_le_bytes());
        out[40..48].copy_from_slice(&self.all.to_le_bytes());
        out[48..52].copy_from_slice(&self.parts.to_le_bytes());
        let check = check(&out);
        out[56..64].copy_from_slice(&check);
        Some(out)
    }
}

/// Which bits of a filter belong to a group.
#[derive(Clone, Copy)]
struct Bits {
    count: u8,
    all: u64,
}

impl Bits {
    /// So many bits a group that the filter is about half full.
    fn best(bytes: usize, groups: usize) -> Bits {
        let all = bytes as u64 * 8;
        let best = all * 7 / (10 * groups.max(1) as u64);
        Bits {
            count: match all {
                0 => 0,
                _ => u8::try_from(best).unwrap_or(MAX_BITS).clamp(1, MAX_BITS),
            },
            all,
        }
    }

    fn of(self, group: Group) -> impl Iterator<Item = usize> {
        // The finish of splitmix64: every bit of the group reaches every bit of the hash.
        let mut hash = (u64::from(group) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        let (start, step) = (hash >> 32, hash & 0xffff_ffff | 1);
        (0..u64::from(self.count)).map(move |n| {
            let point = (start + n * step) & 0xffff_ffff;
            // Below `all`, which is a filter's length in bits.
            usize::try_from((point * self.all) >> 32).unwrap_or(0)
        })
    }
}

/// An index that was read.
pub struct Index<'a> {
    /// How long the text of each is, and its filter.
    parts: Vec<(u64, Bits, &'a [u8])>,
    text: u64,
}

impl<'a> Index<'a> {
    /// From a file's bytes; nothing where it is not the index of a recording with this session and length.
    pub fn decode(bytes: &'a [u8], session: &[u8; 16], length: u64) -> Option<Index<'a>> {
        let (head, mut rest) = bytes.split_at_checked(HEAD)?;
        let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        if head[..16] != MAGIC[..] || head[16..32] != session[..] || long(32)? != length {
            return None;
        }
        if bytes.len() > MAX || head[56..64] != check(bytes) {
            return None;
        }
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let (head, behind) = rest.split_at_checked(PART_HEAD)?;
            let part = u32::from_le_bytes(head[..4].try_into().ok()?);
            let room = u32::from_le_bytes(head[4..8].try_into().ok()?) as usize;
            let (filter, behind) = behind.split_at_checked(room)?;
            let bits = Bits {
                count: head[8].min(MAX_BITS),
                all: room as u64 * 8,
            };
            if (bits.count == 0) != (room == 0) {
                return None;
            }
            parts.push((part.into(), bits, filter));
            rest = behind;
        }
        let count = u32::from_le_bytes(head[48..52].try_into().ok()?);
        (parts.len() == count as usize).then_some(Index {
            parts,
            text: long(40)?,
        })
    }

    /// How long the text is.
    pub fn text(&self) -> u64 {
        self.text
    }

    /// Where the last part of the text ends in which a line can have all of these groups; nothing: no line can.
    pub fn last(&self, groups: &BTreeSet<Group>) -> Option<u64> {
        let has = |bits: &Bits, filter: &[u8]| {
            groups
                .iter()
                .all(|group| bits.of(*group).all(|bit| filter[bit / 8] >> (bit % 8) & 1 == 1))
        };
        let (mut end, mut last) = (0, None);
        for (length, bits, filter) in &self.parts {
            end += length;
            if has(bits, filter) {
                last = Some(end);
            }
        }
        last
    }
}

/// The first bytes of the hash of all but themselves: a damaged index is none.
fn check(bytes: &[u8]) -> [u8; 8] {
    let mut hash = Sha256::new();
    hash.update(&bytes[..56]);
    hash.update(&bytes[HEAD..]);
    let mut check = [0; 8];
    check.copy_from_slice(&hash.finalize()[..8]);
    check
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: u32) -> Vec<String> {
        let mut seed = 7_u32;
        let mut word = move || {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            format!("w{:x} ", seed >> 20)
        };
        (0..count)
            .map(|n| format!("Line {n} ") + &(0..6).map(|_| word()).collect::<String>() + "Größe")
            .collect()
    }

    #[test]
    fn what_is_in_the_text_is_found_and_most_of_the_rest_is_not() {
        let lines = lines(20_000);
        let mut builder = Builder::default();
        lines.iter().for_each(|line| builder.line(line));
        let text: usize = lines.iter().map(|line| line.len() + 1).sum();
        let bytes = builder.finish(&[7; 16], 1234).unwrap();
        assert!(bytes.len() <= text / SHARE, "{} of {text}", bytes.len());
        let index = Index::decode(&bytes, &[7; 16], 1234).unwrap();
        assert_eq!(index.text(), text as u64);
        assert!(index.parts.len() > 1);
        let every = groups("");
        assert_eq!(index.last(&every), Some(text as u64));
        let mut first = String::new();
        fold(&lines[0], &mut first);
        let end = index.last(&groups(&first)).expect("the first part has it");
        assert!(end < text as u64 && end > PART as u64, "{end} of {text}");
        let may = |text: &str| {
            let mut folded = String::new();
            fold(text, &mut folded);
            index.last(&groups(&folded)).is_some()
        };
        for line in lines.iter().step_by(37) {
            assert!(may(line) && may(&line[3..20]), "{line}");
        }
        assert!(may("GRÖSSE".replace("SS", "ß").as_str()) && may("li") && may(""));
        let wrong = (0..500).filter(|n| may(&format!("zq{n}xyq")));
        assert!(wrong.count() < 10);
        assert!(Index::decode(&bytes, &[8; 16], 1234).is_none());
        assert!(Index::decode(&bytes, &[7; 16], 1235).is_none());
    }

    #[test]
    fn a_damaged_index_is_none() {
        let mut builder = Builder::default();
        lines(200).iter().for_each(|line| builder.line(line));
        let bytes = builder.finish(&[0; 16], 9).unwrap();
        assert!(Index::decode(&bytes, &[0; 16], 9).is_some());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Index::decode(&changed, &[0; 16], 9).is_none(), "{at}");
            assert!(Index::decode(&bytes[..at], &[0; 16], 9).is_none(), "{at}");
        }
        let mut short = Builder::default();
        short.line("too short to be worth it");
        assert!(short.finish(&[0; 16], 9).is_none());
    }
}
