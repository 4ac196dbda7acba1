//! What a node says about a chain, and signs: which session it is, up to which block, and when. The signature is in the form
//! of `ssh-keygen -Y sign` (PROTOCOL.sshsig of OpenSSH), so that the signed text can be checked by that program alone.
//! This crate knows neither keys nor algorithms.

use crate::Fault;
use crate::block::Chain;
use std::fmt::Write as _;

/// What the signature is for; `ssh-keygen -Y verify -n`.
pub const NAMESPACE: &str = "recording@fleetgate";
/// The most bytes of a signature block.
pub const MAX: usize = 16 << 10;

/// A signature stands at most so many blocks behind those that it covers: others may be written while it is made.
pub const MAX_LATE: usize = 64;

/// What stands before what is signed: the form, how many blocks, the length of the time.
const HEAD: usize = 1 + 8 + 1;
const AS_IT_IS: u8 = 0;
const SHORT: u8 = 1;
/// As [`SHORT`], and without the key, which is that of the last short one before it.
const SAME_KEY: u8 = 2;
/// The longest time.
const MAX_SIGNED: usize = 64;
/// What each SSHSIG blob of ours begins with, and what stands between its key and the signature itself: the namespace, nothing, and
/// the hash.
const START: &[u8] = b"SSHSIG\0\0\0\x01";
const MIDDLE: &[u8] = b"\0\0\0\x13recording@fleetgate\0\0\0\0\0\0\0\x06sha512";

/// What is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The session.
    pub session: [u8; 16],
    /// How many blocks are covered.
    pub blocks: u64,
    /// What the last of them ends with.
    pub chain: Chain,
    /// When it was signed (RFC 3339).
    pub signed: String,
}

impl Statement {
    /// The text that is signed.
    pub fn text(&self) -> String {
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut out, byte| {
                let _ = write!(out, "{byte:02x}");
                out
            })
        };
        format!(
            "fleetgate recording\nsession {}\nblocks {}\nchain {}\nsigned {}\n",
            hex(&self.session),
            self.blocks,
            hex(&self.chain),
            self.signed
        )
    }
}

/// A signature block's bytes: what the chain before it does not say already. Of a signature in the usual form, what is the same in
/// each of ours is left out; another one is kept as it is.
pub fn encode(statement: &Statement, signature: &[u8]) -> Vec<u8> {
    let (form, kept) = match shortened(signature) {
        Some(kept) => (SHORT, kept),
        None => (AS_IT_IS, signature.to_vec()),
    };
    let signed = &statement.signed.as_bytes()[..statement.signed.len().min(MAX_SIGNED)];
    let mut bytes = Vec::with_capacity(HEAD + signed.len() + kept.len());
    bytes.push(form);
    bytes.extend_from_slice(&statement.blocks.to_le_bytes());
    bytes.push(u8::try_from(signed.len()).unwrap_or(0));
    bytes.extend_from_slice(signed);
    bytes.extend_from_slice(&kept);
    bytes
}

/// How many blocks a signature block covers, as it says.
pub fn covers(bytes: &[u8]) -> Option<u64> {
    let (_, rest) = bytes.split_first()?;
    Some(u64::from_le_bytes(*rest.first_chunk()?))
}

/// The key of the last signature of a recording that has one: of the others it is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastKey(Option<Vec<u8>>);

impl LastKey {
    /// This one, as SSH encodes it (a public key's blob).
    pub fn of(blob: &[u8]) -> LastKey {
        let length = u32::try_from(blob.len()).unwrap_or(u32::MAX);
        LastKey(Some([&length.to_be_bytes(), blob].concat()))
    }

    /// Whether it is not known, and a signature block leaves it out.
    pub fn is_missing(&self, bytes: &[u8]) -> bool {
        self.0.is_none() && bytes.first() == Some(&SAME_KEY)
    }
}

/// A signature block's bytes as they go into a recording, behind those that were written or read with the same `last`.
pub(crate) fn without_key(bytes: &[u8], last: &mut LastKey) -> Vec<u8> {
    let parts = parse(bytes).filter(|(form, ..)| *form == SHORT);
    let Some((key, own)) = parts.and_then(|(_, _, kept)| string(kept)) else {
        return bytes.to_vec();
    };
    if last.0.as_deref() != Some(key) {
        last.0 = Some(key.to_vec());
        return bytes.to_vec();
    }
    let head = bytes.len() - key.len() - own.len();
    [&[SAME_KEY], &bytes[1..head], own].concat()
}

/// From a signature block of this session: the statement, and the signature over its text. `chain_of` says what so many blocks end
/// with, if it knows that; `last` is that of the blocks before it.
pub fn decode(
    bytes: &[u8],
    session: &[u8; 16],
    chain_of: impl FnOnce(u64) -> Option<Chain>,
    last: &mut LastKey,
) -> Result<(Statement, Vec<u8>), Fault> {
    let (form, signed, kept) = parse(bytes).ok_or(Fault::Signature)?;
    // What could be short is.
    let signature = match form {
        AS_IT_IS if shortened(kept).is_none() => Some(kept.to_vec()),
        SHORT => {
            last.0 = string(kept).map(|(key, _)| key.to_vec());
            lengthened(kept)
        }
        SAME_KEY => last.0.as_ref().and_then(|key| lengthened(&[key, kept].concat())),
        _ => None,
    };
    let signature = signature.ok_or(Fault::Signature)?;
    let blocks = covers(bytes).ok_or(Fault::Signature)?;
    let statement = Statement {
        session: *session,
        blocks,
        chain: chain_of(blocks).ok_or(Fault::OtherChain)?,
        signed: signed.to_owned(),
    };
    Ok((statement, signature))
}
fn parse(bytes: &[u8]) -> Option<(u8, &str, &[u8])> {
    let (&form, rest) = bytes.split_first()?;
    let (&len, rest) = rest.get(8..)?.split_first()?;
    let (signed, kept) = rest.split_at_checked(usize::from(len))?;
    Some((
        form,
        std::str::from_utf8(signed)
            .ok()
            .filter(|_| signed.len() <= MAX_SIGNED)?,
        kept,
    ))
}

/// The key and the signature itself, of a signature with our namespace and hash.
fn shortened(signature: &[u8]) -> Option<Vec<u8>> {
    let (key, rest) = string(signature.strip_prefix(START)?)?;
    let own = rest.strip_prefix(MIDDLE)?;
    let (_, rest) = string(own)?;
    rest.is_empty().then(|| [key, own].concat())
}

fn lengthened(kept: &[u8]) -> Option<Vec<u8>> {
    let (key, own) = string(kept)?;
    let (_, rest) = string(own)?;
    rest.is_empty().then(|| [START, key, MIDDLE, own].concat())
}

/// A string of SSH with its length before it, and what follows.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = u32::from_be_bytes(*bytes.first_chunk()?);
    bytes.split_at_checked(usize::try_from(len).ok()?.checked_add(4)?)
}
