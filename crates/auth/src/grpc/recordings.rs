//! Recordings, for users. A caller who does not read what waits for him loses his place.

use super::{GrpcService, Reply, reply};
use crate::error::Refused;
use crate::recordings::{Places, shown};
use fleetgate_proto::v1;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status, async_trait};

/// Messages that wait for a caller: a list's, and a recording's, each of a quarter of a megabyte.
const WAITING_ENTRIES: usize = 16;
const WAITING_BYTES: usize = 1;
/// How long a caller may read nothing of what waits for him.
const READS_WITHIN: Duration = Duration::from_secs(60);

#[async_trait]
impl v1::recordings_server::Recordings for GrpcService {
    type ListStream = Told<v1::RecordingEntry>;
    type ReadStream = Told<v1::RecordingBytes>;

    async fn list(&self, request: Request<v1::RecordingsRequest>) -> Reply<Told<v1::RecordingEntry>> {
        let caller = self.caller(&request)?;
        let mut listing = self
            .service
            .list_recordings(&caller, request.into_inner())
            .await?;
        let service = self.service.clone();
        let places = listing.places();
        Ok(told(WAITING_ENTRIES, self, places, async move |to| {
            while let Some(page) = service.list_on(&mut listing).await? {
                for entry in &page {
                    tell(&to, shown(entry)).await?;
                }
            }
            Ok(())
        }))
    }

    async fn read(&self, request: Request<v1::ReadRecordingRequest>) -> Reply<Told<v1::RecordingBytes>> {
        let caller = self.caller(&request)?;
        let mut reading = self.service.read_recording(&caller, request.into_inner()).await?;
        let service = self.service.clone();
        let places = reading.places();
        Ok(told(WAITING_BYTES, self, places, async move |to| {
            tell(&to, std::mem::take(&mut reading.first)).await?;
            while let Some(bytes) = service.read_recording_on(&mut reading).await? {
                tell(&to, bytes).await?;
            }
            Ok(())
        }))
    }

    async fn delete(&self, request: Request<v1::DeleteRecordingRequest>) -> Reply<v1::RecordingEntry> {
        let caller = self.caller(&request)?;
        reply(self.service.delete_recording(&caller, request.get_ref()).await)
    }
}

/// What a task of its own tells. It ends with the service, and when nobody reads it. The places are held until the caller has read
/// all, or has had his time for it.
fn told<T: Send + 'static, Work>(
    waiting: usize,
    grpc: &GrpcService,
    places: Arc<Places>,
    work: impl FnOnce(mpsc::Sender<Result<T, Status>>) -> Work,
) -> Response<Told<T>>
where
    Work: Future<Output = Result<(), Refused>> + Send + 'static,
{
    let (to, from) = mpsc::channel(waiting);
    let (open, read) = oneshot::channel();
    let failed = to.clone();
    let work = work(to);
    let work = grpc.service.until_stopped(async move {
        tokio::select! {
            done = work => if let Err(refused) = done {
                let _ = tokio::time::timeout(READS_WITHIN, failed.send(Err(refused.into()))).await;
            },
            () = failed.closed() => {}
        }
        // Only then the stream ends behind what waits in it.
        drop(failed);
        let _ = tokio::time::timeout(READS_WITHIN, read).await;
        drop(places);
    });
    tokio::spawn(work);
    Response::new(Told { from, _open: open })
}

/// The answers as they are read.
pub(crate) struct Told<T> {
    from: mpsc::Receiver<Result<T, Status>>,
    /// Dropped with the stream: the caller has read all, or is gone.
    _open: oneshot::Sender<()>,
}

impl<T> Stream for Told<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.from.poll_recv(cx)
    }
}

/// Waits until there is room, and no longer than may be.
async fn tell<T>(to: &mpsc::Sender<Result<T, Status>>, message: T) -> Result<(), Refused> {
    match tokio::time::timeout(READS_WITHIN, to.send(Ok(message))).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Refused::busy(format!(
            "what was asked for was not read within {} s",
            READS_WITHIN.as_secs()
        ))),
    }
}
