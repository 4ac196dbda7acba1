//! One step of rustls' protocol: it looks at what has come, and fulfils one wish where it can. It reads and sends nothing.

use super::records::{Inbox, Outbox};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CommonState, Error as TlsError};
use std::io;

pub(super) enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// What is wanted of rustls, besides looking at what has come.
pub(super) enum Wish<'a> {
    Nothing,
    Encrypt(&'a [u8]),
    Close,
}

/// What came of it.
pub(super) enum Next {
    /// There may be more in what has come.
    Again,
    /// More has to come first.
    Blocked,
    /// The wish is fulfilled.
    Done,
    /// The peer sends no more.
    Over,
}

/// A reader and the room that it has; what it has none for is kept.
pub(super) struct Reader<'a> {
    pub(super) room: usize,
    pub(super) give: &'a mut dyn FnMut(&[u8]),
    pub(super) kept: &'a mut Vec<u8>,
}

impl Reader<'_> {
    fn take(&mut self, plain: &[u8]) {
        let (now, later) = plain.split_at(self.room.min(plain.len()));
        if !now.is_empty() {
            (self.give)(now);
            self.room -= now.len();
        }
        self.kept.extend_from_slice(later);
    }
}

impl Side {
    pub(super) fn common(&self) -> &CommonState {
        match self {
            Side::Client(connection) => connection,
            Side::Server(connection) => connection,
        }
    }

    /// One step: what has come is looked at first, always from where rustls left off. It must never be shown less than it
    /// was shown before: it remembers places in the part of a message that it waits for the rest of.
    pub(super) fn step(
        &mut self,
        coming: &mut Inbox,
        leaving: &mut Outbox,
        reader: &mut Reader<'_>,
        wish: Wish<'_>,
    ) -> io::Result<Next> {
        let (gone, next) = match self {
            Side::Client(connection) => act(
                connection.process_tls_records(coming.filled()),
                leaving,
                reader,
                wish,
            ),
            Side::Server(connection) => act(
                connection.process_tls_records(coming.filled()),
                leaving,
                reader,
                wish,
            ),
        };
        coming.discard(gone);
        next.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// What rustls says of it, and how much of what had come it needs no more.
fn act<D>(
    status: UnbufferedStatus<'_, '_, D>,
    leaving: &mut Outbox,
    reader: &mut Reader<'_>,
    wish: Wish<'_>,
) -> (usize, Result<Next, TlsError>) {
    let mut gone = status.discard;
    let next = match status.state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    gone += record.discard;
                    reader.take(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Next::Again),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut message)) => match message.encode(leaving.all_room()) {
            Ok(length) => {
                leaving.put(length);
                Ok(Next::Again)
            }
            Err(EncodeError::AlreadyEncoded) => Ok(Next::Again),
            Err(EncodeError::InsufficientSize(_)) => Err(full()),
        },
        Ok(ConnectionState::TransmitTlsData(message)) => {
            // It is in line before everything that is encrypted from here on.
            message.done();
            Ok(Next::Again)
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let sealed = match wish {
                Wish::Nothing => return (gone, Ok(Next::Blocked)),
                Wish::Encrypt(plain) => traffic.encrypt(plain, leaving.all_room()),
                Wish::Close => traffic.queue_close_notify(leaving.all_room()),
            };
            match sealed {
                Ok(length) => {
                    leaving.put(length);
                    Ok(Next::Done)
                }
                Err(EncryptError::InsufficientSize(_)) => Err(full()),
                Err(EncryptError::EncryptExhausted) => Err(TlsError::EncryptError),
            }
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Next::Blocked),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Next::Over),
        Ok(_) => Err(TlsError::General(
            "a state of TLS that was not asked for".to_owned(),
        )),
    };
    (gone, next)
}

fn full() -> TlsError {
    TlsError::General("the peer asks for answers and reads none".to_owned())
}
