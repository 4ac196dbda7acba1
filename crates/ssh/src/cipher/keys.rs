//! The keys of one direction at work. A packet is sealed and opened where it stands, without a copy and without an
//! allocation. Keys are kept beside what is made of them, so that they can move to another process, and wiped with it.

use super::{Cipher, Mac};
use aes::{Aes128, Aes256};
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit, StreamCipher};
use ring::aead::chacha20_poly1305_openssh::{OpeningKey, SealingKey};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hmac;
use zeroize::Zeroizing;

/// The length of a packet's length field.
pub(crate) const LENGTH: usize = 4;
/// The longest tag: that of hmac-sha2-512.
pub(crate) const TAG_MAX: usize = 64;

/// What a direction's keys are made of. `iv` is that of the next packet.
pub(crate) struct Secrets {
    pub(crate) cipher: Cipher,
    pub(crate) mac: Option<Mac>,
    pub(crate) key: Zeroizing<Vec<u8>>,
    pub(crate) iv: Zeroizing<Vec<u8>>,
    pub(crate) mac_key: Zeroizing<Vec<u8>>,
}

/// One direction's keys.
pub(crate) struct Keys {
    engine: Engine,
    secrets: Option<Secrets>,
}

/// A packet that its sender did not make, or that somebody altered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadTag;

enum Engine {
    /// Before the first key exchange.
    Plain,
    Gcm {
        /// Boxed, as the others are: their schedules and tables are large.
        key: Box<LessSafeKey>,
        nonce: GcmNonce,
    },
    ChaCha(Box<(SealingKey, OpeningKey)>),
    Ctr {
        stream: Stream,
        /// Blocks done, for moving the IV on.
        blocks: u64,
        mac: hmac::Key,
    },
}

/// RFC 5647 §7.1: the nonce of a packet is four fixed bytes and a counter.
struct GcmNonce {
    fixed: [u8; 4],
    counter: u64,
}

enum Stream {
    Aes128(Box<Ctr128BE<Aes128>>),
    Aes256(Box<Ctr128BE<Aes256>>),
}

impl Cipher {
    /// Bytes of its key.
    pub(crate) fn key_len(self) -> usize {
        match self {
            Cipher::Aes128Gcm | Cipher::Aes128Ctr => 16,
            Cipher::Aes256Gcm | Cipher::Aes256Ctr => 32,
            Cipher::ChaCha20Poly1305 => 64,
        }
    }

    /// Bytes of its IV.
    pub(crate) fn iv_len(self) -> usize {
        match self {
            Cipher::Aes128Gcm | Cipher::Aes256Gcm => 12,
            Cipher::Aes128Ctr | Cipher::Aes256Ctr => 16,
            Cipher::ChaCha20Poly1305 => 0,
        }
    }
}

impl Mac {
    /// Bytes of its key, and of its tag.
    pub(crate) fn len(self) -> usize {
        match self {
            Mac::HmacSha256Etm => 32,
            Mac::HmacSha512Etm => 64,
        }
    }
}

impl Keys {
    /// None yet.
    pub(crate) fn plain() -> Keys {
        Keys {
            engine: Engine::Plain,
            secrets: None,
        }
    }

    /// Keys of these secrets; none where their lengths do not fit the cipher.
    pub(crate) fn new(secrets: Secrets) -> Option<Keys> {
        let Secrets { cipher, mac, .. } = secrets;
        if secrets.key.len() != cipher.key_len()
            || secrets.iv.len() != cipher.iv_len()
            || mac.is_some() == cipher.authenticates()
            || secrets.mac_key.len() != mac.map_or(0, Mac::len)
        {
            return None;
        }
        let engine = match (cipher, mac) {
            (Cipher::Aes128Gcm | Cipher::Aes256Gcm, _) => {
                let algorithm = if cipher == Cipher::Aes128Gcm {
                    &AES_128_GCM
                } else {
                    &AES_256_GCM
                };
                Engine::Gcm {
                    key: Box::new(LessSafeKey::new(UnboundKey::new(algorithm, &secrets.key).ok()?)),
                    nonce: GcmNonce::new(&secrets.iv)?,
                }
            }
            (Cipher::ChaCha20Poly1305, _) => {
                let key: Zeroizing<[u8; 64]> = Zeroizing::new(secrets.key[..].try_into().ok()?);
                Engine::ChaCha(Box::new((SealingKey::new(&key), OpeningKey::new(&key))))
            }
            (Cipher::Aes128Ctr | Cipher::Aes256Ctr, mac) => {
                let (key, iv) = (&secrets.key[..], &secrets.iv[..]);
                let stream = if cipher == Cipher::Aes128Ctr {
                    Stream::Aes128(Box::new(Ctr128BE::new_from_slices(key, iv).ok()?))
                } else {
                    Stream::Aes256(Box::new(Ctr128BE::new_from_slices(key, iv).ok()?))
                };
                let algorithm = match mac? {
                    Mac::HmacSha256Etm => hmac::HMAC_SHA256,
                    Mac::HmacSha512Etm => hmac::HMAC_SHA512,
                };
                Engine::Ctr {
                    stream,
                    blocks: 0,
                    mac: hmac::Key::new(algorithm, &secrets.mac_key),
                }
            }
        };
        Some(Keys {
            engine,
            secrets: Some(secrets),
        })
    }

    /// No keys yet.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.engine, Engine::Plain)
    }

    /// What they are made of, the IV moved on to the next packet.
    pub(crate) fn secrets(&mut self) -> Option<&Secrets> {
        let secrets = self.secrets.as_mut()?;
        match &mut self.engine {
            Engine::Gcm { nonce, .. } => secrets.iv.copy_from_slice(&nonce.bytes()),
            Engine::Ctr { blocks, .. } => {
                let iv = u128::from_be_bytes(secrets.iv[..].try_into().ok()?);
                let moved = iv.wrapping_add(u128::from(std::mem::take(blocks)));
                secrets.iv.copy_from_slice(&moved.to_be_bytes());
            }
            Engine::Plain | Engine::ChaCha(_) => {}
        }
        Some(secrets)
    }

    /// Bytes behind a packet.
    pub(crate) fn tag_len(&self) -> usize {
        match &self.engine {
            Engine::Plain => 0,
            Engine::Gcm { .. } | Engine::ChaCha(_) => 16,
            Engine::Ctr { mac, .. } => mac.algorithm().digest_algorithm().output_len(),
        }
    }

    /// What the padded part is a multiple of.
    pub(crate) fn block(&self) -> usize {
        match &self.engine {
            Engine::Plain | Engine::ChaCha(_) => 8,
            Engine::Gcm { .. } | Engine::Ctr { .. } => 16,
        }
    }

    /// Whether the length field counts towards that multiple: only where it is encrypted with the rest (RFC 4253 §6),
    /// which is never so with keys here.
    pub(crate) fn length_is_padded(&self) -> bool {
        self.is_plain()
    }

    /// Seals `packet`, which begins with its length field; its tag goes to `tag`.
    pub(crate) fn seal(&mut self, sequence: u32, packet: &mut [u8], tag: &mut [u8]) {
        match &mut self.engine {
            Engine::Plain => {}
            Engine::Gcm { key, nonce } => {
                let (length, body) = packet.split_at_mut(LENGTH);
                let sealed = key
                    .seal_in_place_separate_tag(nonce.next(), Aad::from(&*length), body)
                    .expect("a packet is far shorter than GCM's bound");
                tag.copy_from_slice(sealed.as_ref());
            }
            Engine::ChaCha(both) => {
                let tag = tag.try_into().expect("the tag of this cipher has 16 bytes");
                both.0.seal_in_place(sequence, packet, tag);
            }
            Engine::Ctr { stream, blocks, mac } => {
                stream.apply(&mut packet[LENGTH..]);
                *blocks += (packet.len() - LENGTH) as u64 / 16;
                tag.copy_from_slice(sign(mac, sequence, packet).as_ref());
            }
        }
    }

    /// The length in a packet's first bytes. Nothing vouches for it yet.
    pub(crate) fn length(&self, sequence: u32, field: [u8; LENGTH]) -> u32 {
        u32::from_be_bytes(match &self.engine {
            Engine::ChaCha(both) => both.1.decrypt_packet_length(sequence, field),
            _ => field,
        })
    }

    /// Opens `packet`, which begins with its length field as it was received.
    pub(crate) fn open(&mut self, sequence: u32, packet: &mut [u8], tag: &[u8]) -> Result<(), BadTag> {
        match &mut self.engine {
            Engine::Plain => Ok(()),
            Engine::Gcm { key, nonce } => {
                let (length, body) = packet.split_at_mut(LENGTH);
                let tag = Tag::try_from(tag).map_err(|_| BadTag)?;
                key.open_in_place_separate_tag(nonce.next(), Aad::from(&*length), tag, body, 0..)
                    .map_err(|_| BadTag)?;
                Ok(())
            }
            Engine::ChaCha(both) => {
                let tag = tag.try_into().map_err(|_| BadTag)?;
                both.1.open_in_place(sequence, packet, tag).map_err(|_| BadTag)?;
                Ok(())
            }
            Engine::Ctr { stream, blocks, mac } => {
                // `verify` takes the message in one piece, and the sequence number does not stand before it. So the
                // tag is made and compared, in constant time, as the MAC of a MAC.
                let ours = sign(mac, sequence, packet);
                let again = hmac::sign(mac, ours.as_ref());
                hmac::verify(mac, tag, again.as_ref()).map_err(|_| BadTag)?;
                stream.apply(&mut packet[LENGTH..]);
                *blocks += (packet.len() - LENGTH) as u64 / 16;
                Ok(())
            }
        }
    }
}

impl GcmNonce {
    fn new(iv: &[u8]) -> Option<GcmNonce> {
        let (&fixed, counter) = iv.split_first_chunk()?;
        let counter = u64::from_be_bytes(counter.try_into().ok()?);
        Some(GcmNonce { fixed, counter })
    }

    fn bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.fixed);
        bytes[4..].copy_from_slice(&self.counter.to_be_bytes());
        bytes
    }

    /// This packet's, and the counter moved on.
    fn next(&mut self) -> Nonce {
        let this = Nonce::assume_unique_for_key(self.bytes());
        self.counter = self.counter.wrapping_add(1);
        this
    }
}

impl Stream {
    fn apply(&mut self, bytes: &mut [u8]) {
        match self {
            Stream::Aes128(c) => c.apply_keystream(bytes),
            Stream::Aes256(c) => c.apply_keystream(bytes),
        }
    }
}

/// Encrypt-then-MAC: over the sequence number, the length in clear and the encrypted rest.
fn sign(key: &hmac::Key, sequence: u32, packet: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(&sequence.to_be_bytes());
    context.update(packet);
    context.sign()
}
