//! `fleetgate proxy-command`: what plain ssh starts to reach a node. Standard input and output are the SSH bytes; what ssh
//! has said by then rides on the first frame, and nothing waits for it.
//!
//! Why there is no connection is said to ssh itself, as a peer that disconnects: an ssh that is to keep its connections
//! (ControlPersist), as our ssh_config has it, gives this command no standard error.

use fleetgate_client::config;
use fleetgate_client::error::ClientError;
use fleetgate_client::master_client::{Keep, PERSIST, ProxyConnector};
use fleetgate_client::profile::Home;
use fleetgate_client::ssh::StandardStream;
use fleetgate_client::timings::Timings;
use fleetgate_client::transport::{DialOptions, DialStream};
use fleetgate_ssh::codec::Write as _;
use fleetgate_ssh::event::Reason;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// What is taken of standard input for the first frame, and what ssh may have said unheard for it to be said again.
const FIRST: usize = 16 * 1024;
/// Bytes on the way in one direction.
const BUFFER: usize = 32 * 1024;
/// Of the peer that is none.
const VERSION: &[u8] = b"SSH-2.0-fleetgate\r\n";
/// SSH_MSG_DISCONNECT.
const DISCONNECT: u8 = 1;
/// Bytes of a reason that ssh is told; it prints 400.
const MAX_REASON: usize = 400;
/// How long ssh may take to read it.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// Carries standard input and output to a node until either end is over. The account is for the proxy's decision; empty: any
/// that the user may have there. The node decides by what SSH says.
pub async fn run(home: &Home, host: &str, login: &str) -> Result<(), ClientError> {
    let mut streams = Streams {
        input: StandardStream::open(0).map_err(local)?,
        output: StandardStream::open(1).map_err(local)?,
        begun: false,
    };
    let ended = carry(home, host, login, &mut streams).await;
    if let (Err(why), false) = (&ended, streams.begun) {
        // Not waited for longer: whoever is there, there is no connection.
        let _ = timeout(READ_WITHIN, streams.say(&format!("fleetgate: {why}"))).await;
    }
    ended
}

/// The two ends towards ssh.
struct Streams {
    input: StandardStream,
    output: StandardStream,
    /// The other side's bytes are in the output.
    begun: bool,
}

impl Streams {
    /// Says why there is nobody, and waits until ssh has gone: what it still writes meets an open end.
    async fn say(&mut self, why: &str) -> io::Result<()> {
        self.output.write_all(&disconnect(why)).await?;
        let mut buffer = vec![0; BUFFER];
        while self.input.read(&mut buffer).await? > 0 {}
        Ok(())
    }
}

async fn carry(home: &Home, host: &str, login: &str, streams: &mut Streams) -> Result<(), ClientError> {
    let profile = home.login()?;
    let machine = config::machine_of(host, login, &profile.cluster)?;
    let node = config::node(&machine, &profile.cluster);
    let mut connector = ProxyConnector::new(home, Keep::For(PERSIST), None, |_| {});
    let mut said = None;
    loop {
        let proxy = connector.proxy(&profile.proxy, &mut Timings::default()).await?;
        let first = match said.take() {
            Some(said) => said,
            None => at_hand(&mut streams.input).await.map_err(local)?,
        };
        let again = connector.may_be_dead().then(|| first.clone());
        let stream = proxy.dial(node, login, first.into(), &DialOptions::default());
        let report = stream.report();
        let ended = pass(stream, node, streams, again).await;
        match ended {
            (Err(why), Some(unheard)) if !report.snapshot().heard && connector.try_again(&why) => {
                said = Some(unheard);
            }
            (ended, _) => return ended,
        }
    }
}

/// Carries bytes until either end is over. `said`: what went out; it is given back with what followed, if it is not too much.
async fn pass(
    stream: DialStream,
    node: &str,
    streams: &mut Streams,
    said: Option<Vec<u8>>,
) -> (Result<(), ClientError>, Option<Vec<u8>>) {
    let Streams { input, output, begun } = streams;
    let said = RefCell::new(said);
    let (mut read, mut write) = tokio::io::split(stream);
    let up = async {
        let mut buffer = vec![0; BUFFER];
        loop {
            let n = match input.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(n) => n,
            };
            said.replace_with(|said| {
                let mut said = said.take().filter(|said| said.len() + n <= FIRST)?;
                said.extend_from_slice(&buffer[..n]);
                Some(said)
            });
            if write.write_all(&buffer[..n]).await.is_err() {
                break;
            }
        }
        let _ = write.shutdown().await;
        // ssh is gone or goes: what still comes decides the end.
        std::future::pending::<()>().await;
    };
    let down = async {
        let mut buffer = vec![0; BUFFER];
        loop {
            let n = match read.read(&mut buffer).await {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(e) => return Err(ClientError::Unreachable(node.to_owned(), e.to_string())),
            };
            if !*begun {
                *begun = true;
                said.replace(None);
            }
            if output.write_all(&buffer[..n]).await.is_err() {
                return Ok(());
            }
        }
    };
    let ended = tokio::select! {
        () = up => Ok(()),
        ended = down => ended,
    };
    (ended, said.into_inner())
}

fn local(e: io::Error) -> ClientError {
    ClientError::File("standard input and output".into(), e)
}

/// A server's first and last words: its version, and SSH_MSG_DISCONNECT, which may come at any time (RFC 4253, 11.1) and
/// before keys are exchanged as plain bytes.
fn disconnect(why: &str) -> Vec<u8> {
    let mut payload = vec![DISCONNECT];
    payload.put_u32(Reason::ByApplication as u32);
    payload.put_string(&why[..why.floor_char_boundary(MAX_REASON)]);
    payload.put_string("");
    // Length, padding length, payload and padding are a multiple of 8 together; 4 bytes of padding at least.
    let padding = 4 + (8 - (5 + payload.len() + 4) % 8) % 8;
    let mut packet = vec![padding.to_le_bytes()[0]];
    packet.put(&payload);
    packet.resize(packet.len() + padding, 0);
    let mut bytes = VERSION.to_vec();
    bytes.put_string(&packet);
    bytes
}

/// What standard input holds now.
async fn at_hand(input: &mut StandardStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; FIRST];
    let n = std::future::poll_fn(|cx| {
        let mut room = ReadBuf::new(&mut bytes);
        Poll::Ready(match Pin::new(&mut *input).poll_read(cx, &mut room) {
            Poll::Ready(Ok(())) => Ok(room.filled().len()),
            Poll::Ready(Err(e)) => Err(e),
            Poll::Pending => Ok(0),
        })
    });
    let n = n.await?;
    bytes.truncate(n);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_ssh::codec::Reader;

    #[test]
    fn a_reason_is_a_packet_after_a_version() {
        let long = "ä".repeat(MAX_REASON);
        for (why, said) in [
            ("", ""),
            ("no", "no"),
            ("node gate is locked", "node gate is locked"),
            (&long, &long[..MAX_REASON]),
        ] {
            let bytes = disconnect(why);
            let packet = bytes.strip_prefix(VERSION).expect("a version");
            assert_eq!(packet.len() % 8, 0, "{why}");
            let mut packet = Reader::new(packet);
            let payload = packet.string("packet").expect("whole");
            packet.end().expect("one packet");
            let padding = usize::from(payload[0]);
            assert!((4..12).contains(&padding), "{padding}");
            let mut payload = Reader::new(&payload[1..payload.len() - padding]);
            assert_eq!(payload.u8("kind"), Ok(DISCONNECT));
            assert_eq!(payload.u32("reason"), Ok(11));
            assert_eq!(payload.text("why"), Ok(said));
            assert_eq!(payload.text("language"), Ok(""));
            payload.end().expect("nothing more");
        }
    }
}
