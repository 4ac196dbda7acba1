//! The messages of the connection protocol (RFC 4254) as they stand on the wire: read and written. It keeps nothing and
//! knows no channel; data is borrowed, never copied.

use super::kind;
use crate::codec::{Malformed, Reader, Write};
use crate::event::{ChannelKind, Global, Request, Stream};
use crate::message as number;

/// One message. `ours` is the number that the receiver gave the channel, `theirs` the sender's.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// GLOBAL_REQUEST.
    Global {
        /// What.
        request: Global,
        /// To be answered.
        want_reply: bool,
    },
    /// REQUEST_SUCCESS, with the answer's own fields.
    GlobalDone(&'a [u8]),
    /// REQUEST_FAILURE.
    GlobalRefused,
    /// CHANNEL_OPEN.
    Open {
        /// The sender's number.
        theirs: u32,
        /// What it may be sent at once.
        window: u32,
        /// Data in one packet, at most.
        max_packet: u32,
        /// What for.
        kind: ChannelKind,
    },
    /// CHANNEL_OPEN_CONFIRMATION.
    Confirmed {
        /// The receiver's number.
        ours: u32,
        /// The sender's number.
        theirs: u32,
        /// What it may be sent at once.
        window: u32,
        /// Data in one packet, at most.
        max_packet: u32,
    },
    /// CHANNEL_OPEN_FAILURE.
    Refused {
        /// The receiver's number.
        ours: u32,
        /// RFC 4254 §5.1.
        reason: u32,
        /// Words.
        text: &'a [u8],
    },
    /// CHANNEL_WINDOW_ADJUST.
    Adjust {
        /// The receiver's number.
        ours: u32,
        /// So many bytes more.
        bytes: u32,
    },
    /// CHANNEL_DATA and CHANNEL_EXTENDED_DATA.
    Data {
        /// The receiver's number.
        ours: u32,
        /// None: a type of extended data that nobody knows.
        stream: Option<Stream>,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// CHANNEL_EOF.
    Eof(u32),
    /// CHANNEL_CLOSE.
    Close(u32),
    /// CHANNEL_REQUEST.
    Request {
        /// The receiver's number.
        ours: u32,
        /// What.
        request: Request,
        /// To be answered.
        want_reply: bool,
    },
    /// CHANNEL_SUCCESS (true) or CHANNEL_FAILURE.
    Reply {
        /// The receiver's number.
        ours: u32,
        /// Which of the two.
        done: bool,
    },
}

/// SSH_EXTENDED_DATA_STDERR.
const STDERR: u32 = 1;

/// Whether messages of this number are of the connection protocol.
pub(crate) fn is_ours(number: u8) -> bool {
    name(number).is_some()
}

/// What a message of this number is called.
pub(crate) fn name(number: u8) -> Option<&'static str> {
    Some(match number {
        number::GLOBAL_REQUEST => "GLOBAL_REQUEST",
        number::REQUEST_SUCCESS => "REQUEST_SUCCESS",
        number::REQUEST_FAILURE => "REQUEST_FAILURE",
        number::CHANNEL_OPEN => "CHANNEL_OPEN",
        number::CHANNEL_OPEN_CONFIRMATION => "CHANNEL_OPEN_CONFIRMATION",
        number::CHANNEL_OPEN_FAILURE => "CHANNEL_OPEN_FAILURE",
        number::CHANNEL_WINDOW_ADJUST => "CHANNEL_WINDOW_ADJUST",
        number::CHANNEL_DATA => "CHANNEL_DATA",
        number::CHANNEL_EXTENDED_DATA => "CHANNEL_EXTENDED_DATA",
        number::CHANNEL_EOF => "CHANNEL_EOF",
        number::CHANNEL_CLOSE => "CHANNEL_CLOSE",
        number::CHANNEL_REQUEST => "CHANNEL_REQUEST",
        number::CHANNEL_SUCCESS => "CHANNEL_SUCCESS",
        number::CHANNEL_FAILURE => "CHANNEL_FAILURE",
        _ => return None,
    })
}

impl<'a> Message<'a> {
    /// Reads one, its number included.
    pub fn parse(payload: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let mut r = Reader::new(payload);
        let number = r.u8("number")?;
        match number {
            number::GLOBAL_REQUEST => {
                let (request, want_reply) = kind::read_global(r)?;
                return Ok(Message::Global { request, want_reply });
            }
            number::REQUEST_SUCCESS => return Ok(Message::GlobalDone(r.rest())),
            number::REQUEST_FAILURE => {
                r.end()?;
                return Ok(Message::GlobalRefused);
            }
            number::CHANNEL_OPEN => {
                let (kind, [theirs, window, max_packet]) = kind::read_open(r)?;
                return Ok(Message::Open {
                    theirs,
                    window,
                    max_packet,
                    kind,
                });
            }
            _ => {}
        }
        if name(number).is_none() {
            return Err(Malformed::Invalid("number"));
        }
        let ours = r.u32("channel")?;
        let message = match number {
            number::CHANNEL_OPEN_CONFIRMATION => {
                let theirs = r.u32("sender's channel")?;
                let window = r.u32("window")?;
                let max_packet = r.u32("largest packet")?;
                // RFC 4254 §5.1: fields of the channel's own type may follow.
                return Ok(Message::Confirmed {
                    ours,
                    theirs,
                    window,
                    max_packet,
                });
            }
            number::CHANNEL_OPEN_FAILURE => {
                let reason = r.u32("reason")?;
                let text = r.string("text")?;
                r.string("language")?;
                Message::Refused { ours, reason, text }
            }
            number::CHANNEL_WINDOW_ADJUST => Message::Adjust {
                ours,
                bytes: r.u32("bytes to add")?,
            },
            number::CHANNEL_DATA => Message::Data {
                ours,
                stream: Some(Stream::Main),
                bytes: r.string("data")?,
            },
            number::CHANNEL_EXTENDED_DATA => {
                let stream = (r.u32("type")? == STDERR).then_some(Stream::Stderr);
                let bytes = r.string("data")?;
                Message::Data { ours, stream, bytes }
            }
            number::CHANNEL_EOF => Message::Eof(ours),
            number::CHANNEL_CLOSE => Message::Close(ours),
            number::CHANNEL_REQUEST => {
                let (request, want_reply) = kind::read_request(r)?;
                return Ok(Message::Request {
                    ours,
                    request,
                    want_reply,
                });
            }
            number::CHANNEL_SUCCESS => Message::Reply { ours, done: true },
            _ => Message::Reply { ours, done: false },
        };
        r.end()?;
        Ok(message)
    }

    /// Writes it.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Message::Global { request, want_reply } => kind::write_global(out, request, *want_reply),
            Message::GlobalDone(fields) => {
                out.put_u8(number::REQUEST_SUCCESS);
                out.put(fields);
            }
            Message::GlobalRefused => out.put_u8(number::REQUEST_FAILURE),
            Message::Open {
                theirs,
                window,
                max_packet,
                kind,
            } => kind::write_open(out, kind, [*theirs, *window, *max_packet]),
            Message::Confirmed {
                ours,
                theirs,
                window,
                max_packet,
            } => {
                out.put_u8(number::CHANNEL_OPEN_CONFIRMATION);
                for field in [ours, theirs, window, max_packet] {
                    out.put_u32(*field);
                }
            }
            Message::Refused { ours, reason, text } => {
                out.put_u8(number::CHANNEL_OPEN_FAILURE);
                out.put_u32(*ours);
                out.put_u32(*reason);
                out.put_string(text);
                out.put_string("");
            }
            Message::Adjust { ours, bytes } => {
                out.put_u8(number::CHANNEL_WINDOW_ADJUST);
                out.put_u32(*ours);
                out.put_u32(*bytes);
            }
            Message::Data { ours, stream, bytes } => {
                let stream = stream.unwrap_or(Stream::Main);
                let (header, len) = data_header(*ours, stream);
                out.put(&header[..len - 4]);
                out.put_string(bytes);
            }
            Message::Eof(ours) => {
                out.put_u8(number::CHANNEL_EOF);
                out.put_u32(*ours);
            }
            Message::Close(ours) => {
                out.put_u8(number::CHANNEL_CLOSE);
                out.put_u32(*ours);
            }
            Message::Request {
                ours,
                request,
                want_reply,
            } => kind::write_request(out, *ours, request, *want_reply),
            Message::Reply { ours, done } => {
                out.put_u8(if *done {
                    number::CHANNEL_SUCCESS
                } else {
                    number::CHANNEL_FAILURE
                });
                out.put_u32(*ours);
            }
        }
    }
}

/// What stands before the bytes of a data message, and how long it is. Its last four bytes are the length, yet to be
/// filled in.
pub(super) fn data_header(ours: u32, stream: Stream) -> ([u8; 13], usize) {
    let mut header = [0; 13];
    header[1..5].copy_from_slice(&ours.to_be_bytes());
    match stream {
        Stream::Main => {
            header[0] = number::CHANNEL_DATA;
            (header, 9)
        }
        Stream::Stderr => {
            header[0] = number::CHANNEL_EXTENDED_DATA;
            header[5..9].copy_from_slice(&STDERR.to_be_bytes());
            (header, 13)
        }
    }
}
