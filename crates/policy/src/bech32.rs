//! Bech32 (BIP 173), in which age writes keys: `age1…` and `AGE-SECRET-KEY-1…`. Only for keys of 32 bytes.

const LETTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
/// 32 bytes in groups of five bits, and the checksum's six groups.
const GROUPS: usize = 52;
const CHECKSUM: usize = 6;

/// The key as a text, in lower case.
pub fn encode(prefix: &str, key: &[u8; 32]) -> String {
    let mut groups = [0_u8; GROUPS + CHECKSUM];
    for (at, group) in groups.iter_mut().enumerate().take(GROUPS) {
        for bit in 5 * at..5 * at + 5 {
            let byte = key.get(bit / 8).copied().unwrap_or(0);
            *group = *group << 1 | byte >> (7 - bit % 8) & 1;
        }
    }
    let sum = checksum(prefix, &groups) ^ 1;
    for (at, group) in groups[GROUPS..].iter_mut().enumerate() {
        *group = (sum >> (5 * (5 - at)) & 31) as u8;
    }
    let letters = groups
        .iter()
        .map(|group| char::from(LETTERS[usize::from(*group)]));
    format!("{prefix}1{}", letters.collect::<String>())
}

/// The key that a text is, in upper or lower case and not in both; `prefix` is in lower case.
pub fn decode(prefix: &str, text: &str) -> Option<[u8; 32]> {
    if text.bytes().any(|b| b.is_ascii_lowercase()) && text.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let letters = lower.strip_prefix(prefix)?.strip_prefix('1')?.as_bytes();
    let mut groups = [0; GROUPS + CHECKSUM];
    if letters.len() != groups.len() {
        return None;
    }
    for (group, letter) in groups.iter_mut().zip(letters) {
        *group = u8::try_from(LETTERS.iter().position(|of| of == letter)?).ok()?;
    }
    // The last group has four bits more than there are.
    if checksum(prefix, &groups) != 1 || groups[GROUPS - 1] & 15 != 0 {
        return None;
    }
    let mut key = [0_u8; 32];
    for bit in 0..256 {
        let is_set = groups[bit / 5] >> (4 - bit % 5) & 1;
        key[bit / 8] = key[bit / 8] << 1 | is_set;
    }
    Some(key)
}

fn checksum(prefix: &str, groups: &[u8]) -> u32 {
    const MASKS: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let prefix = prefix.bytes();
    let expanded = prefix
        .clone()
        .map(|b| b >> 5)
        .chain([0])
        .chain(prefix.map(|b| b & 31))
        .chain(groups.iter().copied());
    expanded.fold(1, |sum, group| {
        let top = sum >> 25;
        let sum = (sum & 0x01ff_ffff) << 5 ^ u32::from(group);
        MASKS
            .iter()
            .enumerate()
            .filter(|(bit, _)| top >> bit & 1 == 1)
            .fold(sum, |sum, (_, mask)| sum ^ mask)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pair that age-keygen 1.1.1 made.
    const PUBLIC: &str = "age1dc3xeggyp2p9556c0r8nplujq2tga0rguvtcp9hz97kwywghd4pqycqsp2";
    const SECRET: &str = "AGE-SECRET-KEY-16KT6RRED5N7GFDY8VCWS4DA2CJZ7R6D6PRVAYR5Q4TQLL7V87P7S824KNZ";

    #[test]
    fn a_key_is_read_and_written_and_a_mistake_is_noticed() {
        let key = decode("age", PUBLIC).expect("a key");
        assert_eq!(encode("age", &key), PUBLIC);
        let secret = decode("age-secret-key-", SECRET).expect("a key");
        assert_eq!(encode("age-secret-key-", &secret).to_ascii_uppercase(), SECRET);
        for at in 0..PUBLIC.len() {
            for letter in ['q', 'p', '1', 'b', 'Q', 'é'] {
                let wrong: String = PUBLIC
                    .chars()
                    .enumerate()
                    .map(|(n, own)| if n == at { letter } else { own })
                    .collect();
                assert!(wrong == PUBLIC || decode("age", &wrong).is_none(), "{wrong}");
            }
            assert!(decode("age", &PUBLIC[..at]).is_none());
        }
        assert!(decode("age", SECRET).is_none() && decode("age-secret-key-", PUBLIC).is_none());
    }
}
