//! Standard output of a command that has other things to do meanwhile: what is to be written waits in memory until the reader
//! takes it. It bounds nothing itself; its owner looks at how much waits.

use crate::ssh::StandardStream;
use std::collections::VecDeque;
use std::pin::Pin;
use tokio::io::AsyncWrite;

/// A reader that is behind by more is a slow one.
pub const MAX_UNREAD: usize = 4 << 20;

/// What is to be written to standard output. A reader that is slow holds up neither sessions nor signals.
pub struct Out {
    stream: Option<StandardStream>,
    pieces: VecDeque<Vec<u8>>,
    /// How much of the first piece is written.
    at: usize,
    unread: usize,
    /// It takes nothing more.
    pub is_gone: bool,
}

impl Out {
    /// To be made within a runtime.
    pub fn open() -> Out {
        let stream = StandardStream::open(1).ok();
        Out {
            is_gone: stream.is_none(),
            stream,
            pieces: VecDeque::new(),
            at: 0,
            unread: 0,
        }
    }

    /// How many bytes wait for the reader.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// Queues a text.
    pub fn put(&mut self, text: Option<String>) {
        let Some(text) = text.filter(|text| !text.is_empty() && !self.is_gone) else {
            return;
        };
        self.unread += text.len();
        self.pieces.push_back(text.into_bytes());
    }

    /// Writes, until some was written.
    pub async fn written(&mut self) {
        let Some((stream, piece)) = self.stream.as_mut().zip(self.pieces.front()) else {
            return std::future::pending().await;
        };
        let rest = &piece[self.at..];
        let written =
            std::future::poll_fn(|cx| AsyncWrite::poll_write(Pin::new(&mut *stream), cx, rest)).await;
        match written {
            Ok(n @ 1..) => {
                (self.at, self.unread) = (self.at + n, self.unread - n);
                if self.at == piece.len() {
                    self.pieces.pop_front();
                    self.at = 0;
                }
            }
            Ok(0) | Err(_) => {
                self.pieces.clear();
                (self.at, self.unread, self.is_gone) = (0, 0, true);
            }
        }
    }
}
