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

/// A signature block's bytes.
pub fn encode(statement: &Statement, signature: &[u8]) -> Vec<u8> {
    let text = statement.text();
    let mut bytes = Vec::with_capacity(4 + text.len() + signature.len());
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(signature);
    bytes
}

/// From a signature block: the statement and the signature over its text.
pub fn decode(bytes: &[u8]) -> Result<(Statement, &[u8]), Fault> {
    parse(bytes).ok_or(Fault::Signature)
}

fn parse(bytes: &[u8]) -> Option<(Statement, &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let text = std::str::from_utf8(rest.get(..len)?).ok()?;
    let mut lines = text.lines();
    let mut next = |name: &str| lines.next()?.strip_prefix(name);
    next("fleetgate recording")?;
    let statement = Statement {
        session: from_hex(next("session ")?)?,
        blocks: next("blocks ")?.parse().ok()?,
        chain: from_hex(next("chain ")?)?,
        signed: next("signed ")?.to_owned(),
    };
    // One text has one form.
    (statement.text() == text).then_some((statement, &rest[len..]))
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}
