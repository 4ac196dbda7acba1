//! What is said at the holder's socket before HTTP/2: a word of who asks, for which login; a word of what he gets. Words have
//! their length before them, since what follows the answer is HTTP/2's already.

use crate::error::ClientError;
use crate::profile::Home;
use crate::timings::Step;
use crate::transport::LEG;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The longest word.
pub const MAX_WORD: usize = 4096;
/// The longest reason: JSON may write six bytes for one.
pub const MAX_WHY: usize = MAX_WORD / 8;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MasterRequest {
    /// The connection that belongs to this key.
    Use(String),
    /// That nobody gets it any more.
    End,
}

/// What is had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MasterReply {
    /// HTTP/2 begins behind this word. The steps of making the connection, for whom it was made.
    Lent { steps: Vec<StepReport> },
    /// There is no connection, for this reason.
    Failed { why: String },
    /// The holder has another login's connection, and now lends it to nobody.
    Other,
}

/// One of the holder's steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepReport {
    what: StepKind,
    start: u64,
    end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StepKind {
    Tcp,
    Tls,
}

impl MasterRequest {
    /// With its length.
    pub(super) fn word(&self) -> Vec<u8> {
        match self {
            MasterRequest::Use(key) => word(&format!("use {key}")),
            MasterRequest::End => word("end"),
        }
    }

    pub(crate) fn parse(word: &str) -> Option<MasterRequest> {
        match word.split_once(' ') {
            Some(("use", key)) => Some(MasterRequest::Use(key.to_owned())),
            None if word == "end" => Some(MasterRequest::End),
            _ => None,
        }
    }
}

impl MasterReply {
    /// There is no connection, for this reason, cut to what a word has room for.
    pub(super) fn failed(why: &str) -> MasterReply {
        MasterReply::Failed {
            why: why[..why.floor_char_boundary(MAX_WHY)].to_owned(),
        }
    }
}

impl StepReport {
    /// What another process is told of a step; none of a step that only its own process has.
    pub(super) fn of(step: &Step) -> Option<StepReport> {
        let what = match step.name {
            "tcp" => StepKind::Tcp,
            "tls" => StepKind::Tls,
            _ => return None,
        };
        Some(StepReport {
            what,
            start: step.start,
            end: step.end,
        })
    }

    pub(crate) fn step(&self) -> Step {
        let (name, request) = match self.what {
            StepKind::Tcp => ("tcp", "connect"),
            StepKind::Tls => ("tls", "handshake"),
        };
        Step {
            name,
            leg: LEG,
            start: self.start,
            end: self.end,
            round_trips: 1,
            requests: vec![request],
        }
    }
}

/// What a connection belongs to: this version of the program, a proxy, and the login as its files have it.
pub(super) fn key(home: &Home, address: &str) -> Result<String, ClientError> {
    let mut digest = Context::new(&SHA256);
    for part in [env!("CARGO_PKG_VERSION"), address] {
        digest.update(part.as_bytes());
        digest.update(&[0]);
    }
    for file in ["tls.crt", "state.json"] {
        digest.update(&home.read(file)?);
    }
    Ok(fleetgate_policy::text::hex(digest.finish().as_ref()))
}

/// Asks for the connection of `key`.
pub(super) async fn ask(mut stream: UnixStream, key: &str) -> io::Result<(UnixStream, MasterReply)> {
    stream
        .write_all(&MasterRequest::Use(key.to_owned()).word())
        .await?;
    let reply = serde_json::from_str(&hear(&mut stream).await?)?;
    Ok((stream, reply))
}

/// Answers.
pub(super) async fn answer(stream: &mut UnixStream, reply: &MasterReply) -> io::Result<()> {
    stream.write_all(&word(&serde_json::to_string(reply)?)).await
}

/// The next word, and nothing behind it.
pub(super) async fn hear(stream: &mut UnixStream) -> io::Result<String> {
    let length = usize::from(stream.read_u16().await?);
    if length > MAX_WORD {
        return Err(io::Error::other(format!("a word of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// With its length. What is too long is cut, and then is no word that anybody knows.
fn word(text: &str) -> Vec<u8> {
    let text = &text.as_bytes()[..text.len().min(MAX_WORD)];
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), text].concat()
}
