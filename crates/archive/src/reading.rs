//! A recording's bytes, piece by piece, from wherever they are.

use crate::entry::{Entry, Place};
use crate::error::Error;
use crate::objects::Objects;
use crate::{Inner, directory};
use bytes::Bytes;
use fleetgate_record::block::{HEAD, Head, Holds};
use fleetgate_sys::Fd;
use fleetgate_sys::file::read_at;
use std::path::PathBuf;
use std::sync::Arc;

/// The longest piece.
pub const PIECE: usize = 256 << 10;
/// What is asked of the object store at once: each time costs a round trip.
const AT_ONCE: u64 = 1 << 20;

/// Reads one recording, as far as it was kept when the reading began.
pub struct Reader {
    from: From,
    offset: u64,
    end: u64,
}

enum From {
    File(Arc<Fd>, PathBuf),
    Objects {
        objects: Objects,
        entry: Box<Entry>,
        /// What was read and not given away yet.
        ahead: Bytes,
    },
}

impl Reader {
    /// `covered`: up to there a signature covers it. Of a recording that has not ended, what stands between that and the signature
    /// is not given away: anybody on the way could have put it there.
    pub(crate) async fn open(
        inner: &Arc<Inner>,
        entry: &Entry,
        offset: u64,
        covered: u64,
    ) -> Result<Reader, Error> {
        let path = directory::path(&inner.settings.directory, entry);
        let opened = path.clone();
        let opening = tokio::task::spawn_blocking(move || directory::open_to_read(&opened));
        let from = match (opening.await.unwrap_or(Err(Error::Closed)), &inner.objects) {
            // It may have gone to the store since it was looked for.
            (Ok(file), _) => From::File(Arc::new(file), path),
            (Err(_), Some(objects)) if entry.whole => From::Objects {
                objects: objects.clone(),
                entry: Box::new(entry.clone()),
                ahead: Bytes::new(),
            },
            (Err(_), None) if entry.place == Place::Objects => {
                return Err(Error::Store(format!(
                    "the recording {} is in one, and [auth.recordings] names none any more",
                    entry.id()
                )));
            }
            (Err(e), _) => return Err(e),
        };
        let end = match &from {
            From::File(file, path) if !entry.whole => {
                let (file, bytes) = (file.clone(), entry.bytes);
                let looking = tokio::task::spawn_blocking(move || proven_end(&file, covered, bytes));
                let end = looking.await.unwrap_or_else(|e| Err(e.to_string()));
                end.map_err(|why| Error::Io(path.clone(), why))?
            }
            _ => entry.bytes,
        };
        Ok(Reader { from, offset, end })
    }

    /// The next piece; nothing: that was all.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let left = self.end.saturating_sub(self.offset);
        if left == 0 {
            return Ok(None);
        }
        let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let bytes = match &mut self.from {
            From::File(file, path) => read_piece(file.clone(), self.offset, most)
                .await
                .map_err(|why| Error::Io(path.clone(), why))?,
            From::Objects {
                objects,
                entry,
                ahead,
            } => {
                if ahead.is_empty() {
                    let to = self.offset + left.min(AT_ONCE);
                    *ahead = objects.read(entry, self.offset, to).await?;
                }
                ahead.split_to(most.min(ahead.len()))
            }
        };
        self.offset += bytes.len() as u64;
        Ok(Some(bytes))
    }
}

/// Where the signature ends that stands right behind what it covers; else what it covers ends.
fn proven_end(file: &Fd, covered: u64, bytes: u64) -> Result<u64, String> {
    let mut head = [0; HEAD];
    let got = read_at(file.raw(), &mut head, covered).map_err(|e| e.to_string())?;
    let signature = Head::decode(&head)
        .ok()
        .filter(|(head, _)| got == HEAD && head.holds == Holds::Signature);
    let end = signature.map_or(covered, |(head, _)| covered + (HEAD + head.stored) as u64);
    Ok(if end <= bytes { end } else { covered })
}

async fn read_piece(file: Arc<Fd>, offset: u64, most: usize) -> Result<Bytes, String> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; most];
        let got = read_at(file.raw(), &mut bytes, offset).map_err(|e| e.to_string())?;
        bytes.truncate(got);
        match got {
            0 => Err("the file is shorter than it was: somebody has cut it".to_owned()),
            _ => Ok(Bytes::from(bytes)),
        }
    });
    reading.await.unwrap_or_else(|e| Err(e.to_string()))
}
