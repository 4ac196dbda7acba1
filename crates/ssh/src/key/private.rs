//! Private keys: OpenSSH's file format (PROTOCOL.key) read and written without a passphrase, and signatures made. What
//! was read is wiped; what ring keeps lives as long as the key does. Nothing of it is ever shown.

use super::algorithm::{Algorithm, KeyType};
use super::public::{Parts, PublicKey, bits};
use super::{Certificate, KeyError, text};
use crate::codec::{Malformed, Reader, Write};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature as rs;
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

/// The largest private key file.
pub const MAX_FILE: usize = 64 * 1024;
/// The longest RSA key that ring signs with.
pub const MAX_RSA_SIGNING_BITS: usize = 4096;

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// PROTOCOL.key: the private part is filled up to the cipher's block, and that of none is 8.
const BLOCK: usize = 8;

/// A private key that signs.
pub struct PrivateKey {
    public: PublicKey,
    pair: Pair,
}

enum Pair {
    Ed25519(rs::Ed25519KeyPair),
    Ecdsa(rs::EcdsaKeyPair),
    Rsa(Box<rs::RsaKeyPair>),
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({:?})", self.public)
    }
}

impl PrivateKey {
    /// From a file's text and its mode. One that others may read, and one with a passphrase, are refused.
    pub fn read(file: &[u8], mode: u32) -> Result<PrivateKey, KeyError> {
        if mode & 0o077 != 0 {
            return Err(KeyError::Mode(mode));
        }
        PrivateKey::parse(file)
    }

    /// From a file's text.
    pub fn parse(file: &[u8]) -> Result<PrivateKey, KeyError> {
        let binary = unwrap(file)?;
        let (public, private) = halves(&binary)?;
        PrivateKey::private(public, private.ok_or(KeyError::Encrypted)?)
    }

    /// The public half alone, which a file has in the clear also where it has a passphrase or is a security key's.
    pub fn public_half(file: &[u8]) -> Result<PublicKey, KeyError> {
        Ok(halves(&unwrap(file)?)?.0)
    }

    /// Makes one, with the text for its file. Ed25519 and ECDSA.
    pub fn generate(kind: KeyType, comment: &str) -> Result<(PrivateKey, Zeroizing<String>), KeyError> {
        let random = SystemRandom::new();
        // Large enough: a buffer that grows leaves a copy behind.
        let mut private = Zeroizing::new(Vec::with_capacity(512 + comment.len()));
        let mut check = [0; 4];
        random.fill(&mut check).map_err(|_| KeyError::Random)?;
        private.put(&check);
        private.put(&check);
        let public = match kind {
            KeyType::Ed25519 => {
                let mut seed = Zeroizing::new([0; 32]);
                random.fill(&mut *seed).map_err(|_| KeyError::Random)?;
                let pair = rs::Ed25519KeyPair::from_seed_unchecked(&*seed).map_err(|_| KeyError::Random)?;
                let key = public_of(&pair);
                let mut both = Zeroizing::new([0; 64]);
                both[..32].copy_from_slice(&*seed);
                both[32..].copy_from_slice(&key);
                private.put_string(kind.name());
                private.put_string(key);
                private.put_string(&both[..]);
                PublicKey::new(Parts::Ed25519(key))
            }
            KeyType::EcdsaP256 => {
                let made = rs::EcdsaKeyPair::generate_pkcs8(&rs::ECDSA_P256_SHA256_FIXED_SIGNING, &random);
                let made = made.map_err(|_| KeyError::Random)?;
                // ring's document is of one fixed form (RFC 5915 within RFC 5958); reading it back below checks it.
                let (_, rest) = made.as_ref().split_at_checked(36).ok_or(KeyError::Random)?;
                let (scalar, rest) = rest.split_at_checked(32).ok_or(KeyError::Random)?;
                let point = rest
                    .len()
                    .checked_sub(65)
                    .map(|at| &rest[at..])
                    .ok_or(KeyError::Random)?;
                private.put_string(kind.name());
                private.put_string("nistp256");
                private.put_string(point);
                private.put_mpint(scalar);
                PublicKey::new(Parts::EcdsaP256(point.to_vec()))
            }
            _ => return Err(KeyError::Type(kind.name().to_string())),
        };
        private.put_string(comment);
        for n in 1.. {
            if private.len() % BLOCK == 0 {
                break;
            }
            private.put_u8(n);
        }
        let key = PrivateKey::private(public, &private)?;
        let file = wrap(&key.public, &private);
        Ok((key, file))
    }

    /// What an agent is given to keep this key, alone or with its certificate: its type, the certificate and the private
    /// fields, as draft-miller-ssh-agent §3.2 has them. What an agent needs is not kept here, so it is read from the
    /// file's text.
    pub fn for_agent(file: &[u8], certificate: Option<&Certificate>) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let key = PrivateKey::parse(file)?;
        if certificate.is_some_and(|c| c.key() != key.public()) {
            return Err(KeyError::OtherKey);
        }
        let binary = unwrap(file)?;
        let mut r = Reader::new(binary.strip_prefix(MAGIC).ok_or(KeyError::OldFormat)?);
        r.text("cipher")?;
        r.text("key derivation")?;
        r.string("key derivation")?;
        r.u32("number of keys")?;
        r.string("public key")?;
        let mut private = Reader::new(r.string("private key")?);
        private.u64("check")?;
        private.text("type")?;
        let kind = key.public.key_type();
        let mut out = Zeroizing::new(Vec::with_capacity(
            binary.len() + certificate.map_or(0, |c| c.blob().len()),
        ));
        // Of each type's fields, those of the public half, which a certificate has already, stand first.
        let (fields, public) = match kind {
            KeyType::Ed25519 => (2, 0),
            KeyType::Rsa => (6, 2),
            _ => (3, 2),
        };
        match certificate {
            Some(certificate) => {
                out.put_string(kind.certificate_name());
                out.put_string(certificate.blob());
            }
            None => out.put_string(kind.name()),
        }
        for at in 0..fields {
            let field = private.string("private key")?;
            if certificate.is_none() || at >= public {
                out.put_string(field);
            }
        }
        Ok(out)
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The names of signatures that it makes, best first.
    pub fn algorithms(&self) -> Vec<&'static str> {
        let own = |a: &&Algorithm| a.key_type() == self.public.key_type() && !a.is_certificate();
        Algorithm::all().iter().filter(own).map(|a| a.name()).collect()
    }

    /// A signature blob over `message`. The name may be that of a certificate's algorithm.
    pub fn sign(&self, algorithm: &str, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let cannot = || KeyError::CannotSign(algorithm.chars().take(64).collect());
        let algorithm = Algorithm::parse(algorithm)
            .filter(|a| a.key_type() == self.public.key_type())
            .ok_or_else(cannot)?;
        let random = SystemRandom::new();
        let body = match &self.pair {
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Pair::Ecdsa(pair) => {
                let fixed = pair.sign(&random, message).map_err(|_| KeyError::Random)?;
                let (a, b) = fixed.as_ref().split_at(fixed.as_ref().len() / 2);
                let mut body = Vec::with_capacity(fixed.as_ref().len() + 10);
                body.put_mpint(a);
                body.put_mpint(b);
                body
            }
            Pair::Rsa(pair) => {
                let padding: &dyn rs::RsaEncoding = match algorithm.signature_name() {
                    "rsa-sha2-256" => &rs::RSA_PKCS1_SHA256,
                    _ => &rs::RSA_PKCS1_SHA512,
                };
                let mut body = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &random, message, &mut body)
                    .map_err(|_| KeyError::Inconsistent)?;
                body
            }
        };
        let mut out = Vec::with_capacity(body.len() + 32);
        out.put_string(algorithm.signature_name());
        out.put_string(&body);
        Ok(out)
    }

    /// The private part: two equal numbers (a wrong passphrase would show here), the key, a comment, the filling.
    fn private(public: PublicKey, bytes: &[u8]) -> Result<PrivateKey, KeyError> {
        let mut r = Reader::new(bytes);
        if r.u32("check")? != r.u32("check")? || r.text("type")? != public.key_type().name() {
            return Err(KeyError::Inconsistent);
        }
        let pair = read_pair(&public, &mut r)?;
        r.string("comment")?;
        let filled = r.rest();
        if filled.len() >= BLOCK || filled.iter().zip(1..).any(|(&b, n): (_, u8)| b != n) {
            return Err(Malformed::Invalid("padding").into());
        }
        Ok(PrivateKey { public, pair })
    }
}

fn read_pair(public: &PublicKey, r: &mut Reader<'_>) -> Result<Pair, KeyError> {
    let inconsistent = |_| KeyError::Inconsistent;
    match public.parts() {
        Parts::Ed25519(key) => {
            let same = r.string("public key")? == key;
            let both = r.string("private key")?;
            if !same || both.len() != 64 || both[32..] != key[..] {
                return Err(KeyError::Inconsistent);
            }
            let pair = rs::Ed25519KeyPair::from_seed_and_public_key(&both[..32], key);
            Ok(Pair::Ed25519(pair.map_err(inconsistent)?))
        }
        Parts::EcdsaP256(point) => {
            let pair = read_ecdsa(r, "nistp256", 32, point, &rs::ECDSA_P256_SHA256_FIXED_SIGNING)?;
            Ok(Pair::Ecdsa(pair))
        }
        Parts::EcdsaP384(point) => {
            let pair = read_ecdsa(r, "nistp384", 48, point, &rs::ECDSA_P384_SHA384_FIXED_SIGNING)?;
            Ok(Pair::Ecdsa(pair))
        }
        Parts::Rsa { e, n } => read_rsa(r, e, n).map(|pair| Pair::Rsa(Box::new(pair))),
        Parts::SkEd25519 { .. } | Parts::SkEcdsaP256 { .. } => Err(KeyError::SecurityKey),
    }
}

/// What a file has: the public half and, unless a passphrase locks it, the private one.
fn halves(binary: &[u8]) -> Result<(PublicKey, Option<&[u8]>), KeyError> {
    let mut r = Reader::new(binary.strip_prefix(MAGIC).ok_or(KeyError::OldFormat)?);
    let open = [r.text("cipher")?, r.text("key derivation")?] == ["none"; 2];
    r.string("key derivation")?;
    if r.u32("number of keys")? != 1 {
        return Err(Malformed::Invalid("number of keys").into());
    }
    let public = PublicKey::parse(r.string("public key")?)?;
    let private = r.string("private key")?;
    if !open {
        // A cipher's tag may stand behind it.
        return Ok((public, None));
    }
    r.end()?;
    Ok((public, Some(private)))
}

fn read_ecdsa(
    r: &mut Reader<'_>,
    curve: &str,
    len: usize,
    point: &[u8],
    algorithm: &'static rs::EcdsaSigningAlgorithm,
) -> Result<rs::EcdsaKeyPair, KeyError> {
    if r.text("curve")? != curve || r.string("point")? != point {
        return Err(KeyError::Inconsistent);
    }
    let magnitude = r.mpint("private key")?;
    let mut scalar = Zeroizing::new(vec![0; len]);
    let start = len.checked_sub(magnitude.len()).ok_or(KeyError::Inconsistent)?;
    scalar[start..].copy_from_slice(magnitude);
    let random = SystemRandom::new();
    rs::EcdsaKeyPair::from_private_key_and_public_key(algorithm, &scalar, point, &random)
        .map_err(|_| KeyError::Inconsistent)
}

/// PROTOCOL.key has n, e, d, iqmp, p, q; ring also wants d mod p−1 and d mod q−1.
fn read_rsa(r: &mut Reader<'_>, e: &[u8], n: &[u8]) -> Result<rs::RsaKeyPair, KeyError> {
    if r.mpint("modulus")? != n || r.mpint("exponent")? != e {
        return Err(KeyError::Inconsistent);
    }
    if bits(n) > MAX_RSA_SIGNING_BITS {
        return Err(KeyError::RsaBits(bits(n)));
    }
    let (d, q_inverse) = (r.mpint("private exponent")?, r.mpint("inverse")?);
    let (p, q) = (r.mpint("first prime")?, r.mpint("second prime")?);
    let whole = [d, q_inverse, p, q]
        .iter()
        .all(|part| !part.is_empty() && part.len() <= n.len());
    if !whole || p.last().is_none_or(|b| b & 1 == 0) || q.last().is_none_or(|b| b & 1 == 0) {
        return Err(KeyError::Inconsistent);
    }
    let (d_p, d_q) = (modulo_less_one(d, p), modulo_less_one(d, q));
    let components = ring::rsa::KeyPairComponents {
        public_key: rs::RsaPublicKeyComponents { n, e },
        d,
        p,
        q,
        dP: &d_p,
        dQ: &d_q,
        qInv: q_inverse,
    };
    rs::RsaKeyPair::from_components(&components).map_err(|_| KeyError::Inconsistent)
}

/// `d mod (prime − 1)`, without leading zeros. Bit by bit, and the same steps whatever the bits are: made once, when a
/// key is loaded. `prime` is odd, so taking one from it only clears its last bit.
fn modulo_less_one(d: &[u8], prime: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut modulus = Zeroizing::new(prime.to_vec());
    if let Some(last) = modulus.last_mut() {
        *last &= 0xfe;
    }
    // One byte longer, for the bit that doubling shifts out.
    let mut rest = Zeroizing::new(vec![0u8; modulus.len() + 1]);
    let mut less = Zeroizing::new(vec![0u8; modulus.len() + 1]);
    for bit in (0..d.len() * 8).map(|i| d[i / 8] >> (7 - i % 8) & 1) {
        let mut carry = bit;
        for byte in rest.iter_mut().rev() {
            (*byte, carry) = (*byte << 1 | carry, *byte >> 7);
        }
        let mut borrow = 0u8;
        for i in (0..rest.len()).rev() {
            let taken = if i == 0 { 0 } else { modulus[i - 1] };
            let difference = 0x100 + u16::from(rest[i]) - u16::from(taken) - u16::from(borrow);
            let [high, low] = difference.to_be_bytes();
            less[i] = low;
            borrow = 1 - high;
        }
        // All ones where nothing was borrowed: the difference is taken, else what was there stays.
        let mask = borrow.wrapping_sub(1);
        for (kept, new) in rest.iter_mut().zip(less.iter()) {
            *kept = *kept & !mask | new & mask;
        }
    }
    let zeros = rest.iter().take_while(|&&b| b == 0).count();
    Zeroizing::new(rest[zeros..].to_vec())
}

fn public_of(pair: &rs::Ed25519KeyPair) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(rs::KeyPair::public_key(pair).as_ref());
    key
}

/// The base64 between the two lines.
fn unwrap(file: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    if file.len() > MAX_FILE {
        return Err(KeyError::TooLarge {
            what: "the bytes of a private key file",
            most: MAX_FILE,
        });
    }
    let file = std::str::from_utf8(file).map_err(|_| KeyError::OldFormat)?;
    let body = file.trim().strip_prefix(BEGIN).ok_or(KeyError::OldFormat)?;
    let body = body
        .strip_suffix(END)
        .ok_or(KeyError::Text("the private key file ends too early"))?;
    let mut joined = Zeroizing::new(String::with_capacity(body.len()));
    joined.extend(body.chars().filter(|c| !c.is_ascii_whitespace()));
    text::decode(&joined).map(Zeroizing::new)
}

/// The file for a private part.
fn wrap(public: &PublicKey, private: &[u8]) -> Zeroizing<String> {
    let mut binary = Zeroizing::new(Vec::with_capacity(private.len() + 512));
    binary.put(MAGIC);
    binary.put_string("none");
    binary.put_string("none");
    binary.put_string("");
    binary.put_u32(1);
    binary.put_string(public.blob());
    binary.put_string(private);
    let mut encoded = text::encode(&binary);
    let mut file = Zeroizing::new(String::with_capacity(encoded.len() * 2));
    file.push_str(BEGIN);
    for (i, c) in encoded.chars().enumerate() {
        if i % 70 == 0 {
            file.push('\n');
        }
        file.push(c);
    }
    encoded.zeroize();
    file.push('\n');
    file.push_str(END);
    file.push('\n');
    file
}
