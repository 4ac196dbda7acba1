//! The guardian: a process that has a second descriptor of every listener, and answers the calls that wait on it when
//! whoever should do so is gone.
//!
//! A tracer sends [`Request`]s on its socket. [`Request::Here`] is the first of them and has no answer, like
//! [`Request::Keep`], [`Request::Answer`] and [`Request::Tracer`]; the others have one [`Reply`]. What does not decode, or comes with other
//! descriptors than it says, ends that tracer's connection, which is what its death is: from then on the guardian answers
//! for it. A tracer that dies is noticed by its process, not by its socket alone: a program that it was just starting may
//! have that too.

use crate::{choice, record};
use alloc::vec::Vec;

/// The longest request, as a frame.
pub const MAX_REQUEST: usize = 64;
/// The longest reply, as a frame.
pub const MAX_REPLY: usize = 192 << 10;
/// The most listeners that one guardian keeps.
pub const MAX_LISTENERS: usize = 4096;
/// The most tracers that are connected at a time.
pub const MAX_TRACERS: usize = 16;

choice! {
    /// What a tracer says.
    pub enum Request("request to the guardian") {
        /// The tracer's process, as one descriptor of it.
        0 => Here,
        /// A listener, and the file of the slots into which this tracer receives from it: two descriptors. An id that is
        /// there already is replaced: its own tracer says something new of it.
        1 => Keep {
            id: u64,
            /// The guardian answers EPERM to this call, as the tracer does; it lets all others go on.
            refuse: Option<u32>,
        },
        /// The guardian answers from here on; this tracer receives no more.
        2 => Answer { id: u64 },
        /// Its programs have ended: the guardian closes it.
        3 => Forget { id: u64 },
        /// What the guardian keeps.
        4 => List,
        /// This tracer receives from here on, if the guardian answers now.
        5 => Take { id: u64 },
        /// Another tracer, as its socket: for one that cannot come by a door.
        6 => Tracer,
    }
}

choice! {
    /// What the guardian says.
    pub enum Reply("guardian's reply") {
        /// To `Forget`.
        0 => Forgotten { kept: Kept },
        /// To `List`.
        1 => List { kept: Vec<Kept> },
        /// To `Take`, with the listener and the file of its slots, all of them answered.
        2 => Yours { kept: Kept },
        /// It keeps no such listener, or another tracer has it.
        3 => Refused { why: Refusal },
    }
}

choice! {
    /// Why not.
    pub enum Refusal("guardian's refusal") {
        /// It keeps no listener with that id: its programs have ended.
        0 => Unknown,
        /// A tracer that lives has it.
        1 => Taken,
    }
}

record! {
    /// A listener that is kept.
    pub struct Kept {
        /// Which.
        pub id: u64,
        /// The latest gap: what nobody saw.
        pub gap: Option<Gap>,
    }
}

record! {
    /// Calls that the guardian let go on because their tracer was gone.
    pub struct Gap {
        /// When the tracer was missed, in nanoseconds of the clock that counts from boot on.
        pub since: u64,
        /// When it had a tracer again; none: it has none.
        pub until: Option<u64>,
        /// Calls that the tracer had received, and perhaps shown, but not answered.
        pub left: u64,
        /// Calls that came afterwards.
        pub unseen: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode, encode};

    #[test]
    fn every_frame_is_read_as_it_was_written_and_fits() {
        let gap = Gap {
            since: u64::MAX,
            until: Some(u64::MAX),
            left: u64::MAX,
            unseen: u64::MAX,
        };
        let kept = Kept {
            id: u64::MAX,
            gap: Some(gap),
        };
        for request in [
            Request::Here,
            Request::Keep { id: 1, refuse: None },
            Request::Keep {
                id: 1,
                refuse: Some(u32::MAX),
            },
            Request::Tracer,
            Request::Answer { id: 2 },
            Request::Forget { id: u64::MAX },
            Request::List,
            Request::Take { id: 0 },
        ] {
            let frame = encode(&request);
            assert_eq!(decode::<Request>(&frame), Ok(request));
            assert!(frame.len() <= MAX_REQUEST);
            assert!(decode::<Request>(&frame[..frame.len() - 1]).is_err());
        }
        for reply in [
            Reply::Forgotten { kept: kept.clone() },
            Reply::List {
                kept: alloc::vec![kept.clone(); MAX_LISTENERS],
            },
            Reply::Yours { kept },
            Reply::Refused {
                why: Refusal::Unknown,
            },
            Reply::Refused { why: Refusal::Taken },
        ] {
            let frame = encode(&reply);
            assert_eq!(decode::<Reply>(&frame), Ok(reply));
            assert!(frame.len() <= MAX_REPLY);
        }
    }
}
