//! Recordings of simulated nodes, as a real node sends them: each node makes one when it is told so, in blocks of 64 KB that it
//! signs one by one, and sends the next when auth has acknowledged the one before. A recording is the same whenever it is made, so
//! a stream that is opened anew goes on where auth is.

#[path = "../recordings/shell.rs"]
mod shell;

use crate::{Result, said, ssh};
use fleetgate_proto::v1::{RecordingKept, RecordingPart};
use fleetgate_record::block::file_head;
use fleetgate_record::compress::Compressor;
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::signature::{NAMESPACE, Statement, encode};
use fleetgate_record::writer::{Position, Writer};
use fleetgate_ssh::sshsig;
use shell::Shell;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};

/// Blocks of a recording, without the first and the last.
const BLOCKS: u64 = 8;
/// The most bytes of a part.
const PART: usize = 64 << 10;
const STARTED: &str = "2026-01-01T00:00:00.000000Z";

/// Which nodes record what: in this round, all below this number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    pub number: u64,
    pub count: usize,
}

/// What all nodes share.
#[derive(Clone)]
pub struct Rounds {
    pub now: watch::Sender<Round>,
    /// Hears of each recording that is kept whole, with its bytes.
    pub whole: mpsc::UnboundedSender<u64>,
}

/// A node's recording, from its beginning.
struct Recording {
    session: [u8; 16],
    writer: Writer,
    compressor: Compressor,
    shell: Shell,
    at: u64,
    made: u64,
}

impl Recording {
    fn new(round: Round, node: usize) -> Result<Recording> {
        let mut session = [0; 16];
        session[..8].copy_from_slice(&round.number.to_be_bytes());
        session[8..].copy_from_slice(&(node as u64).to_be_bytes());
        let mut shell = Shell::new(round.number << 32 | node as u64);
        shell.says("Last login: Thu Jan  1 00:00:00 2026\r\n");
        Ok(Recording {
            session,
            writer: Writer::at(Position::start(&session)),
            compressor: Compressor::new().ok_or("no memory")?,
            shell,
            at: 0,
            made: 0,
        })
    }

    /// The next bytes, with a signature over all before it; how many are before it; and whether they are the last.
    fn next(&mut self, node: usize, identity: &ssh::Identity) -> Result<(Vec<u8>, u64, bool)> {
        let mut bytes = Vec::new();
        let is_last = self.made > BLOCKS;
        if self.made == 0 {
            bytes.extend(file_head(&self.session));
            let id: String = self.session.iter().map(|b| format!("{b:02x}")).collect();
            let begin = format!(
                r#"{{"version":1,"session":"{id}","node":"{}","started":"{STARTED}","user":"ada","login":"root","client":"192.0.2.7:1","kind":"shell","terminal":{{"term":"xterm","columns":120,"rows":40}},"recording":"output","roles":["everything"]}}"#,
                crate::name(node)
            );
            self.push(Kind::Begin, begin.as_bytes());
            bytes.extend(self.writer.close(None).unwrap_or_default());
        } else if is_last {
            let end = format!(r#"{{"ended":"{STARTED}","status":0}}"#);
            bytes.extend(
                self.writer
                    .end(Some(&mut self.compressor), self.at, end.as_bytes()),
            );
        } else {
            loop {
                let (pause, shown) = self.shell.next();
                self.at += pause;
                if self.push(Kind::Output, &shown) {
                    break;
                }
            }
            bytes.extend(self.writer.close(Some(&mut self.compressor)).unwrap_or_default());
        }
        self.made += 1;
        let at = self.writer.position();
        let statement = Statement {
            session: self.session,
            blocks: at.blocks,
            chain: at.chain,
            signed: "2026-01-01T00:00:00Z".to_owned(),
        };
        let signed = bytes.len() as u64;
        let signature = identity.sign_text(NAMESPACE, statement.text().as_bytes())?;
        bytes.extend(self.writer.sign(&encode(&statement, &signature)));
        Ok((bytes, signed, is_last))
    }

    fn push(&mut self, kind: Kind, bytes: &[u8]) -> bool {
        let at = self.at;
        self.writer.push(&Frame { kind, at, bytes })
    }
}

impl ssh::Identity {
    fn sign_text(&self, namespace: &str, text: &[u8]) -> Result<Vec<u8>> {
        let message = sshsig::message(namespace, text);
        let signature = self.key().sign("ssh-ed25519", &message).map_err(said)?;
        Ok(sshsig::encode(self.key().public().blob(), namespace, &signature))
    }
}

type Parts = mpsc::Sender<std::result::Result<RecordingPart, Status>>;

/// Serves one stream of a node, for as long as it lives.
pub async fn serve(
    node: usize,
    identity: Arc<ssh::Identity>,
    rounds: Rounds,
    mut kept: Streaming<RecordingKept>,
    parts: Parts,
) {
    let mut now = rounds.now.subscribe();
    loop {
        let round = *now.borrow_and_update();
        if node < round.count {
            match send(node, &identity, round, &mut kept, &parts).await {
                Ok(Some(bytes)) => drop(rounds.whole.send(bytes)),
                // The stream has ended: another one goes on.
                Ok(None) => return,
                Err(why) => {
                    eprintln!("bench-fleet: the recording of {}: {why}", crate::name(node));
                    std::process::exit(1);
                }
            }
        }
        tokio::select! {
            changed = now.changed() => if changed.is_err() { return },
            // Nothing is said without being asked for.
            _ = kept.message() => return,
        }
    }
}

/// Sends one recording: its bytes when all of it is kept.
async fn send(
    node: usize,
    identity: &ssh::Identity,
    round: Round,
    kept: &mut Streaming<RecordingKept>,
    parts: &Parts,
) -> Result<Option<u64>> {
    let mut recording = Recording::new(round, node)?;
    let session = bytes::Bytes::copy_from_slice(&recording.session);
    let part = |offset, bytes: &[u8], whole| RecordingPart {
        session: session.clone(),
        offset,
        bytes: bytes::Bytes::copy_from_slice(bytes),
        whole,
    };
    let (mut at, mut known) = (0, None);
    loop {
        let (bytes, signed, is_last) = match known {
            // How much is kept of what an earlier stream sent?
            None => (Vec::new(), 0, false),
            Some(_) => recording.next(node, identity)?,
        };
        // No signature covers itself.
        let signed = at + signed;
        while known.is_none_or(|known| known < signed) || is_last {
            let skipped = usize::try_from(known.unwrap_or(0).saturating_sub(at)).unwrap_or(0);
            let mut from = at + skipped as u64;
            let mut rest = &bytes[skipped.min(bytes.len())..];
            loop {
                let (piece, behind) = rest.split_at(rest.len().min(PART));
                let whole = is_last && behind.is_empty();
                if parts.send(Ok(part(from, piece, whole))).await.is_err() {
                    return Ok(None);
                }
                (from, rest) = (from + piece.len() as u64, behind);
                if rest.is_empty() {
                    break;
                }
            }
            // Of each piece something is said; what counts is that the signature came through.
            loop {
                let Ok(Some(answer)) = kept.message().await else {
                    return Ok(None);
                };
                if !answer.refused.is_empty() {
                    return Err(format!("auth refuses it: {}", answer.refused));
                }
                if answer.whole {
                    return Ok(Some(answer.offset));
                }
                known = Some(answer.offset);
                if answer.wait > 0 {
                    tokio::time::sleep(Duration::from_secs(answer.wait.into())).await;
                    break;
                }
                if answer.offset >= signed && !is_last {
                    break;
                }
            }
            if known >= Some(signed) && !is_last {
                break;
            }
        }
        at += bytes.len() as u64;
    }
}
