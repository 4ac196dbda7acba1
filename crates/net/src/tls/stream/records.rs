//! Records under way: those that have come, for rustls to look at, and those that wait to be sent. Each has a [`Room`] only
//! while there is something in it. Nothing is encrypted or decrypted here.

use crate::tls::room::{ROOM, Room};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A record's plaintext, at most (RFC 8446 §5.1).
const RECORD: usize = 16 * 1024;
/// What a record has besides it: its header, its type, its tag (RFC 8446 §5.2, with AEADs of 16 bytes).
const BESIDE: usize = 5 + 1 + 16;
/// What of a room is left to alerts and key updates, which have to go out even where the peer reads nothing.
const RESERVE: usize = 2 * (RECORD + BESIDE);

/// Records that have come.
#[derive(Default)]
pub(super) struct Inbox {
    room: Option<Room>,
    start: usize,
    end: usize,
    /// The part of a record that has come, while there is no room.
    part: Vec<u8>,
    /// rustls has seen all of it, and said all that it has to say of it.
    pub(super) seen: bool,
}

impl Inbox {
    pub(super) fn filled(&mut self) -> &mut [u8] {
        match &mut self.room {
            Some(room) => &mut room[self.start..self.end],
            None => &mut self.part,
        }
    }

    pub(super) fn discard(&mut self, length: usize) {
        match self.room {
            Some(_) => self.start += length,
            None => drop(self.part.drain(..length)),
        }
    }

    /// Reads what there is. Whoever has to wait has no room meanwhile.
    pub(super) fn poll_more<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let room = self.room.get_or_insert_with(|| {
            let mut room = Room::take();
            room[..self.part.len()].copy_from_slice(&self.part);
            (self.start, self.end) = (0, self.part.len());
            self.part = Vec::new();
            room
        });
        if self.start > 0 {
            room.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let mut into = ReadBuf::new(&mut room[self.end..]);
        if into.remaining() == 0 {
            let why = "a message of TLS is larger than any is";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        match Pin::new(io).poll_read(cx, &mut into) {
            Poll::Ready(Ok(())) => {
                let length = into.filled().len();
                self.end += length;
                self.seen = false;
                Poll::Ready(Ok(length))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.seen = true;
                self.rest();
                Poll::Pending
            }
        }
    }

    /// Gives the room back; the part of a record in it is kept apart.
    pub(super) fn rest(&mut self) {
        if let Some(room) = self.room.take() {
            self.part = room[self.start..self.end].to_vec();
            (self.start, self.end) = (0, 0);
        }
    }
}

/// Records that have not been sent.
#[derive(Default)]
pub(super) struct Outbox {
    room: Option<Room>,
    start: usize,
    end: usize,
}

impl Outbox {
    /// All the room that is left.
    pub(super) fn all_room(&mut self) -> &mut [u8] {
        &mut self.room.get_or_insert_with(Room::take)[self.end..]
    }

    /// How much plaintext there is room for.
    pub(super) fn room(&self) -> usize {
        let left = (ROOM - RESERVE).saturating_sub(self.end);
        let (whole, rest) = (left / (RECORD + BESIDE), left % (RECORD + BESIDE));
        whole * RECORD + rest.saturating_sub(BESIDE)
    }

    pub(super) fn put(&mut self, length: usize) {
        self.end += length;
    }

    /// Sends all of it.
    pub(super) fn poll_send<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(room) = &self.room else {
            return Poll::Ready(Ok(()));
        };
        while self.start < self.end {
            let sent = ready!(Pin::new(&mut *io).poll_write(cx, &room[self.start..self.end]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.start += sent;
        }
        *self = Outbox::default();
        Poll::Ready(Ok(()))
    }
}
