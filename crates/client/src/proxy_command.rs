//! `fleetgate proxy-command`: what plain ssh starts to reach a node. Standard input and output are the SSH bytes; what ssh
//! has said by then rides on the first frame, and nothing waits for it.

use crate::config;
use crate::error::ClientError;
use crate::ledger::Ledger;
use crate::profile::Home;
use crate::reach;
use crate::ssh::Standard;
use crate::transport::{DialOptions, Proxy};
use std::io;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

/// What is taken of standard input for the first frame.
const FIRST: usize = 16 * 1024;
/// Bytes on the way in one direction.
const BUFFER: usize = 32 * 1024;

/// Carries standard input and output to a node until either end is over. The account is for the proxy's decision; empty: any
/// that the user may have there. The node decides by what SSH says.
pub async fn run(home: &Home, host: &str, login: &str) -> Result<(), ClientError> {
    let profile = home.login()?;
    let node = config::node(host, &profile.cluster);
    let local = |e: io::Error| ClientError::File("standard input and output".into(), e);
    let (mut input, mut output) = (
        Standard::open(0).map_err(local)?,
        Standard::open(1).map_err(local)?,
    );
    let (believe, credentials) = (reach::believe(home)?, reach::credentials(home)?);
    let mut ledger = Ledger::default();
    let proxy = Proxy::connect(&profile.proxy, &believe, &credentials, None, &mut ledger).await?;
    let first = at_hand(&mut input).await.map_err(local)?;
    let stream = proxy.dial(node, login, first.into(), &DialOptions::default());
    let (mut read, mut write) = tokio::io::split(stream);
    let up = async {
        let mut buffer = vec![0; BUFFER];
        loop {
            match input.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(n) if write.write_all(&buffer[..n]).await.is_err() => break,
                Ok(_) => {}
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
            if output.write_all(&buffer[..n]).await.is_err() {
                return Ok(());
            }
        }
    };
    tokio::select! {
        () = up => Ok(()),
        ended = down => ended,
    }
}

/// What standard input holds now.
async fn at_hand(input: &mut Standard) -> io::Result<Vec<u8>> {
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
