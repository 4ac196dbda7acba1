//! A dial whose node is a plain sshd: the frames' SSH bytes go into a pipe, at whose other end this proxy's own SSH is. The
//! pipe is what is on its way; a reader that is slow holds its writer.

use super::to_node::FramesToNode;
use crate::denial::{Why, denied};
use crate::shared::{BETWEEN, Local, Shared};
use crate::state::InventoryNode;
use bytes::Bytes;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Denied, Frame, Opened};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::oneshot;
use tonic::codegen::tokio_stream::StreamExt;

/// What goes into one frame.
const PART: usize = 32 * 1024;

/// What the client reads.
pub(super) struct PlainLeg {
    opened: Option<Frame>,
    read: ReadHalf<DuplexStream>,
    over: bool,
}

/// Begins one. The other is told why its SSH has ended.
pub(super) fn begin(
    shared: &Shared,
    source: Option<SocketAddr>,
    node: Arc<InventoryNode>,
    to_node: FramesToNode,
) -> Result<(PlainLeg, oneshot::Receiver<String>), Denied> {
    let (here, there) = duplex(BETWEEN);
    let (leave, left) = oneshot::channel();
    let (read, write) = split(here);
    let opened = Kind::Opened(Opened {
        node: node.node.name.clone(),
        terminated: true,
    });
    let source = source.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    shared
        .local
        .send(Local::Plain(there, source, node, leave))
        .map_err(|_| denied(Why::Offline, "the proxy stops"))?;
    tokio::spawn(pump(to_node, write));
    let leg = PlainLeg {
        opened: Some(Frame { kind: Some(opened) }),
        read,
        over: false,
    };
    Ok((leg, left))
}

/// The client's frames, until it has no more or the other direction is over.
async fn pump(mut to_node: FramesToNode, mut write: WriteHalf<DuplexStream>) {
    while let Some(frame) = to_node.next().await {
        let written = match frame.kind {
            Some(Kind::Dial(dial)) => write.write_all(&dial.ssh).await,
            Some(Kind::Ssh(bytes)) => write.write_all(&bytes).await,
            Some(Kind::SshEnd(_)) => write.shutdown().await,
            _ => Ok(()),
        };
        if written.is_err() {
            return;
        }
    }
    let _ = write.shutdown().await;
}

impl PlainLeg {
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        let frame = |kind| Poll::Ready(Some(Frame { kind: Some(kind) }));
        if let Some(opened) = self.opened.take() {
            return Poll::Ready(Some(opened));
        }
        if self.over {
            return Poll::Ready(None);
        }
        let mut room = [0; PART];
        let mut buffer = ReadBuf::new(&mut room);
        match Pin::new(&mut self.read).poll_read(cx, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                frame(Kind::Ssh(Bytes::copy_from_slice(buffer.filled())))
            }
            Poll::Ready(_) => {
                self.over = true;
                frame(Kind::SshEnd(true))
            }
        }
    }
}
