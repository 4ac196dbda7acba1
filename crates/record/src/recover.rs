//! After a crash: where the whole blocks of a file end, and what the tail holds beyond them. It looks at heads and hashes
//! only and decompresses nothing, because the monitor does this as root with a file that a sandboxed worker wrote.

use crate::block::{self, FILE_HEAD, HEAD, Head, Holds};
use crate::reader::read_full;
use crate::signature;
use crate::tail;
use crate::writer::{Position, Writer};
use std::io::{self, Read};

/// What is left of a recording.
#[derive(Debug)]
pub struct Remains {
    /// The session that it names.
    pub session: [u8; 16],
    /// Behind its last whole block. What follows in the file is to be cut off.
    pub position: Position,
    /// The block with the end is there.
    pub ended: bool,
    /// How many blocks the last signature covers. Whether it is right is not looked at.
    pub signed: u64,
}

/// Looks at a file; nothing where it is no recording.
pub fn look(file: &mut impl Read) -> io::Result<Option<Remains>> {
    let mut head = [0; FILE_HEAD];
    if read_full(file, &mut head)? < FILE_HEAD {
        return Ok(None);
    }
    let Ok(session) = block::session_of(&head) else {
        return Ok(None);
    };
    look_from(file, Position::start(&session)).map(|remains| Some(Remains { session, ..remains }))
}

/// Looks at what is behind a block that is known to be whole; the file stands there. The session is not looked at.
pub fn look_from(file: &mut impl Read, from: Position) -> io::Result<Remains> {
    let mut remains = Remains {
        session: [0; 16],
        position: from,
        ended: false,
        signed: 0,
    };
    let mut bytes = [0; HEAD];
    let mut stored = Vec::new();
    while read_full(file, &mut bytes)? == HEAD {
        let Ok((head, chain)) = Head::decode(&bytes) else {
            break;
        };
        stored.resize(head.stored, 0);
        let is_whole = read_full(file, &mut stored)? == head.stored;
        let at = &mut remains.position;
        if !is_whole || head.number != at.blocks || !head.follows(&at.chain, &stored, &chain) {
            break;
        }
        *at = Position {
            blocks: at.blocks + 1,
            chain,
            anchor: match head.holds {
                Holds::Signature => at.anchor,
                _ => chain,
            },
            length: at.length + (HEAD + head.stored) as u64,
            last: head.last,
        };
        remains.ended |= head.holds == Holds::End;
        if head.holds == Holds::Signature
            && let Some(blocks) = signature::covers(&stored)
        {
            remains.signed = blocks;
        }
    }
    Ok(remains)
}

impl Remains {
    /// Goes on where the crash was: a writer that has the frames of the tail's file. What is encrypted there stays so, and is in
    /// blocks of its own, which the writer hands out with the next one.
    pub fn resume(&self, tail: &[u8]) -> Writer {
        let open = tail::read(tail, &self.position.anchor);
        let mut writer = Writer::at(self.position);
        if !open.plain.is_empty() {
            writer.push_encoded(&open.plain, open.first, open.last.max(self.position.last));
        }
        for entry in &open.sealed {
            writer.push_sealed(entry);
        }
        writer
    }
}
