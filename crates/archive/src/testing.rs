//! Signatures of recordings as their makers write them, for tests here and elsewhere.

use fleetgate_record::signature::{NAMESPACE, Statement, encode};
use fleetgate_record::writer::Writer;
use fleetgate_ssh::key::HostKey;
use fleetgate_ssh::sshsig;

/// The signature of this text.
pub fn signature_of(text: &str, key: &HostKey) -> Vec<u8> {
    let message = sshsig::message(NAMESPACE, text.as_bytes());
    let signature = key.sign("ssh-ed25519", &message).expect("a signature");
    sshsig::encode(key.public().blob(), NAMESPACE, &signature)
}

/// The block with a signature over all that was written of a recording.
pub fn sign(writer: &mut Writer, session: [u8; 16], key: &HostKey) -> Vec<u8> {
    let at = writer.position();
    let statement = Statement {
        session,
        blocks: at.blocks,
        chain: at.chain,
        signed: "2026-11-29T10:00:01Z".to_owned(),
    };
    let signature = signature_of(&statement.text(), key);
    writer.sign(&encode(&statement, &signature))
}
