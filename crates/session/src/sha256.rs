//! SHA-256 (FIPS 180-4), for one purpose: saying which build this image is. Nothing is trusted because of it, and
//! whoever verifies an image uses a library; here a dependency would weigh more than these lines.

/// A digest being made.
pub struct Sha256 {
    state: [u32; 8],
    block: [u8; 64],
    filled: usize,
    bytes: u64,
}

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
const K: [u32; 64] = constants();
/// The same of the square roots of the first 8.
const START: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// Computed, so that no table can have a typing error: the cube root of p, scaled by 2^32, is the largest r with
/// r^3 <= p * 2^96, and K is its low 32 bits. Found bit by bit in 36-bit roots with 128-bit cubes.
const fn constants() -> [u32; 64] {
    let mut out = [0u32; 64];
    let (mut n, mut candidate) = (0, 2u128);
    while n < 64 {
        let (mut divisor, mut prime) = (2, true);
        while divisor * divisor <= candidate {
            if candidate % divisor == 0 {
                prime = false;
            }
            divisor += 1;
        }
        if prime {
            let (mut root, mut bit) = (0u128, 1u128 << 35);
            while bit > 0 {
                let tried = root | bit;
                if tried * tried * tried <= candidate << 96 {
                    root = tried;
                }
                bit >>= 1;
            }
            out[n] = root as u32;
            n += 1;
        }
        candidate += 1;
    }
    out
}

impl Sha256 {
    /// Of nothing yet.
    pub const fn new() -> Sha256 {
        Sha256 {
            state: START,
            block: [0; 64],
            filled: 0,
            bytes: 0,
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
        for &byte in bytes {
            self.push(byte);
        }
    }

    /// The digest of all of them.
    pub fn finish(mut self) -> [u8; 32] {
        let bits = self.bytes.wrapping_mul(8);
        self.push(0x80);
        while self.filled != 56 {
            self.push(0);
        }
        for byte in bits.to_be_bytes() {
            self.push(byte);
        }
        let mut out = [0; 32];
        for (four, word) in out.chunks_exact_mut(4).zip(self.state) {
            four.copy_from_slice(&word.to_be_bytes());
        }
        out
    }

    fn push(&mut self, byte: u8) {
        self.block[self.filled] = byte;
        self.filled += 1;
        if self.filled == 64 {
            self.filled = 0;
            compress(&mut self.state, &self.block);
        }
    }
}

fn compress(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut w = [0u32; 64];
    for (word, four) in w.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes([four[0], four[1], four[2], four[3]]);
    }
    for i in 16..64 {
        let (a, b) = (w[i - 15], w[i - 2]);
        let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        w[i] = w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for i in 0..64 {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let t1 = h
            .wrapping_add(s1)
            .wrapping_add(choice)
            .wrapping_add(K[i])
            .wrapping_add(w[i]);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        let t2 = s0.wrapping_add(majority);
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(t1), c, b, a, t1.wrapping_add(t2));
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *old = old.wrapping_add(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> alloc::string::String {
        let mut sum = Sha256::new();
        for part in bytes.chunks(7) {
            sum.update(part);
        }
        sum.finish().iter().map(|b| alloc::format!("{b:02x}")).collect()
    }

    /// The standard's examples, and the lengths around a block's end.
    #[test]
    fn known_answers() {
        assert_eq!((K[0], K[63]), (0x428a2f98, 0xc67178f2));
        for (text, want) in [
            (
                &b""[..],
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            (
                b"abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
            (
                &[0; 64],
                "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b",
            ),
        ] {
            assert_eq!(hex(text), want);
        }
    }
}
