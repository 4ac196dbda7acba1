//! The S3-compatible store. One request at a time and no list of its own: what is in it, the catalogue knows. An object is
//! `PREFIX/DAY/SESSION.rec` (or `PREFIX/others/MACHINE/…`, as in the directory), and its metadata have what `SESSION.from` has in
//! the directory.

use crate::directory;
use crate::entry::{Entry, name};
use crate::error::Error;
use crate::settings::Store;
use bytes::Bytes;
use fleetgate_sys::file::read_at;
use fleetgate_sys::{Errno, Fd};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as ObjectPath;
use object_store::{
    Attribute, Attributes, Certificate, ClientOptions, MultipartUpload, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, RetryConfig,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What is longer goes in parts of this length; S3 takes none below 5 MB but the last, and 10,000 of them.
const PART: usize = 8 << 20;
/// How long a connection may take to come about, and a request with one part.
const CONNECT: Duration = Duration::from_secs(10);
const REQUEST: Duration = Duration::from_secs(120);
/// How often a request is tried again at once, and for how long; the caller tries again later.
const AGAIN: usize = 1;
const AGAIN_FOR: Duration = Duration::from_secs(10);

/// What an error says, and what is at the bottom of it: the chain between is the client library's own.
fn reason(error: &object_store::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    let (whole, last) = (error.to_string(), last.to_string());
    match whole.contains(&last) {
        true => whole,
        false => format!("{last} ({whole})"),
    }
}

/// The store.
#[derive(Clone)]
pub struct Objects {
    store: Arc<AmazonS3>,
    prefix: String,
}

impl Objects {
    /// Asks nobody anything yet.
    pub fn new(settings: &Store) -> Result<Objects, Error> {
        let failed = |e: object_store::Error| Error::Store(reason(&e));
        let mut client = ClientOptions::new()
            .with_connect_timeout(CONNECT)
            .with_timeout(REQUEST)
            .with_allow_http(settings.allows_http);
        if let Some(authorities) = &settings.authorities {
            for authority in Certificate::from_pem_bundle(authorities).map_err(failed)? {
                client = client.with_root_certificate(authority);
            }
        }
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&settings.bucket)
            .with_region(&settings.region)
            .with_access_key_id(&settings.access_key)
            .with_secret_access_key(settings.secret_key.as_str())
            .with_client_options(client)
            .with_retry(RetryConfig {
                max_retries: AGAIN,
                retry_timeout: AGAIN_FOR,
                ..RetryConfig::default()
            });
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        Ok(Objects {
            store: Arc::new(builder.build().map_err(failed)?),
            prefix: settings.prefix.clone(),
        })
    }

    fn path(&self, entry: &Entry) -> ObjectPath {
        let parts = self.prefix.split('/').filter(|part| !part.is_empty());
        let file = format!("{}.rec", name(&entry.session));
        let aside = [directory::OTHERS, &*entry.source]
            .into_iter()
            .filter(|_| entry.aside);
        ObjectPath::from_iter(parts.chain(aside).chain([&*entry.day, &*file]))
    }

    /// Puts a whole recording there, and makes sure that it is there.
    pub async fn put(&self, directory: &Path, entry: &Entry) -> Result<(), Error> {
        let path = directory::path(directory, entry);
        let file = Arc::new(directory::open_to_read(&path)?);
        let to = self.path(entry);
        let attributes = Attributes::from_iter([
            (
                Attribute::Metadata("fleetgate-source".into()),
                entry.source.clone(),
            ),
            (Attribute::Metadata("fleetgate-node".into()), entry.node.clone()),
        ]);
        let failed = |e: object_store::Error| Error::Store(reason(&e));
        let read = async |from: u64| {
            let bytes = piece(file.clone(), from, entry.bytes, PART).await;
            bytes.map_err(|why| Error::Io(path.clone(), why))
        };
        if entry.bytes <= PART as u64 {
            let options = PutOptions {
                attributes,
                ..PutOptions::default()
            };
            let payload = PutPayload::from(read(0).await?);
            self.store.put_opts(&to, payload, options).await.map_err(failed)?;
        } else {
            let options = PutMultipartOptions {
                attributes,
                ..PutMultipartOptions::default()
            };
            let mut upload = self
                .store
                .put_multipart_opts(&to, options)
                .await
                .map_err(failed)?;
            let sent = async {
                let mut from = 0;
                while from < entry.bytes {
                    let bytes = read(from).await?;
                    from += bytes.len() as u64;
                    upload.put_part(PutPayload::from(bytes)).await.map_err(failed)?;
                }
                upload.complete().await.map_err(failed)
            };
            let sent = sent.await;
            if let Err(e) = sent {
                // Parts without an object are paid for. A store that is gone forgets them by its own rules.
                let _ = upload.abort().await;
                return Err(e);
            }
        }
        let there = self.store.head(&to).await.map_err(failed)?.size;
        match there == entry.bytes {
            true => Ok(()),
            false => Err(Error::Store(format!(
                "it took {} bytes of the recording {}, and has {there}",
                entry.bytes,
                entry.id()
            ))),
        }
    }

    /// Bytes of a recording.
    pub async fn read(&self, entry: &Entry, from: u64, to: u64) -> Result<Bytes, Error> {
        let bytes = self.store.get_range(&self.path(entry), from..to).await;
        let bytes = bytes.map_err(|e| Error::Store(reason(&e)))?;
        match bytes.len() as u64 == to - from {
            true => Ok(bytes),
            false => Err(Error::Store(format!(
                "it has fewer bytes of the recording {} than it took",
                entry.id()
            ))),
        }
    }

    /// Removes a recording, or finds that it is not there.
    pub async fn remove(&self, entry: &Entry) -> Result<(), Error> {
        match self.store.delete(&self.path(entry)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(Error::Store(reason(&e))),
        }
    }
}

/// Reads a piece of a file that is so long, on a thread that may wait.
async fn piece(file: Arc<Fd>, from: u64, end: u64, most: usize) -> Result<Bytes, String> {
    let wanted = usize::try_from(end - from).unwrap_or(most).min(most);
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; wanted];
        let mut done = 0;
        while done < wanted {
            match read_at(file.raw(), &mut bytes[done..], from + done as u64) {
                Ok(0) => return Err("the file is shorter than it was: somebody has cut it".to_owned()),
                Ok(n) => done += n,
                Err(e @ Errno { .. }) => return Err(e.to_string()),
            }
        }
        Ok(Bytes::from(bytes))
    });
    reading.await.unwrap_or_else(|e| Err(e.to_string()))
}
