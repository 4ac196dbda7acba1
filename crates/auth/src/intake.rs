//! Recordings on their way into the archive: whose they are, whether that machine is a member now and not locked, and which
//! keys its signatures may be of. The same is asked again while a stream lives. What a recording is, the crate `archive`
//! checks.

use crate::caller::Caller;
use crate::documents::{Kind, Purpose};
use crate::error::{Refused, Result};
use crate::proof::gone;
use crate::service::Service;
use bytes::Bytes;
use fleetgate_archive::{Answer, Archive, Kept, Maker, Part, Whole};
use fleetgate_policy::cluster::{Name, RecordingReceipt};
use fleetgate_proto::v1;
use fleetgate_ssh::key::PublicKey;
use fleetgate_store::Revision;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};
use tonic::{Status, Streaming};

/// The most streams of one machine's recordings by one proxy: each of its processes has one for each tunnel.
pub const STREAMS_OF_ONE: usize = 4;
/// Answers of a stream that wait for their turn.
const MAX_UNANSWERED: usize = 64;

/// A machine whose recordings come: by which proxy, its kind, its name.
pub(crate) type Source = (Name, Kind, Name);

/// A source as it is known now, and since which revision of the store.
struct Known {
    maker: Maker,
    revision: Revision,
    /// When one of its keys of before counts no more, Unix seconds.
    until: Option<u64>,
}

impl Service {
    /// Recordings are kept here.
    pub(crate) fn archive(&self) -> Result<&Archive> {
        let none = || Refused::unavailable("this auth service keeps no recordings");
        self.archive.as_ref().ok_or_else(none)
    }

    /// Which machine this is, as the proxy `caller` names it; empty: the proxy itself.
    fn source_of(&self, caller: &Caller, named: &str) -> Result<Source> {
        let proxy = caller.proxy(self)?;
        Ok(match named {
            "" => (proxy.clone(), Kind::Proxy, proxy.clone()),
            node => (
                proxy.clone(),
                Kind::Node,
                Name::parse(node).map_err(Refused::invalid)?,
            ),
        })
    }

    /// The source as it is known now: a member with host keys, which no lock holds. `known`: as it was; its keys are read anew
    /// only where something of it has changed.
    fn look_at(
        self: &Arc<Service>,
        (_, kind, name): &Source,
        known: Option<&Known>,
    ) -> Result<Option<Known>> {
        self.machine_locked(*kind, name, self.now())?;
        let cache = self.cache();
        let stored = cache
            .members(*kind)
            .get(name.as_str())
            .ok_or_else(|| gone(name))?;
        let now = self.now();
        let is_known =
            |known: &Known| known.revision == stored.revision && known.until.is_none_or(|until| now < until);
        if known.is_some_and(is_known) {
            return Ok(None);
        }
        let member = &stored.document;
        if member.address.is_some() {
            return Err(Refused::forbidden(format!(
                "{name} has a plain sshd, which records nothing: its proxy does"
            )));
        }
        let keys = member.keys_of_recordings(now);
        let keys: Vec<PublicKey> = keys.filter_map(|line| PublicKey::from_line(line).ok()).collect();
        let is_sshd = |service: &Arc<Service>| -> fleetgate_archive::SpeaksFor {
            let service = Arc::downgrade(service);
            Arc::new(move |name: &str| {
                service.upgrade().is_some_and(|service| {
                    let cache = service.cache();
                    let member = cache.nodes.get(name);
                    member.is_some_and(|member| member.document.address.is_some())
                })
            })
        };
        Ok(Some(Known {
            revision: stored.revision,
            until: member.next_key_to_go(now),
            maker: Maker {
                name: name.to_string(),
                keys: keys.into(),
                speaks_for: (*kind == Kind::Proxy).then(|| is_sshd(self)),
            },
        }))
    }

    /// That a node's recording is kept: proxies, which carry it, cannot sign that.
    async fn receipt(&self, node: &Name, session: &[u8; 16], whole: &Whole) -> Result<Bytes> {
        let receipt = RecordingReceipt {
            session,
            length: whole.length,
            chain: &whole.chain,
            node: node.as_str(),
        };
        let key = self.signers.ssh(Purpose::State).await?;
        let signature = key.key().sign("ssh-ed25519", &receipt.signed());
        let signature = signature.map_err(|e| Refused::unavailable(e.to_string()))?;
        Ok(signature.into())
    }

    /// Takes the recordings of one machine in, until its stream ends or it may not bring them any more: why.
    pub(crate) async fn take_recordings(
        self: Arc<Service>,
        caller: Caller,
        mut from: Streaming<v1::RecordingFrom>,
        to: mpsc::Sender<std::result::Result<v1::RecordingKept, Status>>,
    ) -> Result<()> {
        let archive = self.archive()?;
        let Ok(Some(first)) = from.message().await else {
            return Ok(());
        };
        let source = self.source_of(&caller, &first.source)?;
        let place = self.intakes.take(source.clone());
        let _place = place.ok_or_else(|| {
            Refused::busy(format!(
                "recordings of {} come by {STREAMS_OF_ONE} streams already",
                source.2
            ))
        })?;
        let Some(known) = self.look_at(&source, None)? else {
            return Ok(());
        };
        let known = Mutex::new(known);
        let intake = archive.intake();
        let (unanswered, mut answers) = mpsc::channel::<(bool, oneshot::Receiver<Kept>)>(MAX_UNANSWERED);
        let reading = async {
            let unanswered = unanswered;
            let mut next = first.part;
            loop {
                if let Some(part) = next {
                    let maker = known.lock().unwrap_or_else(PoisonError::into_inner).maker.clone();
                    // A receipt is signed once, and not for each part that was under way when the last one came.
                    let wants_receipt = part.whole || part.bytes.is_empty();
                    let answer = intake.take(&maker, read(part)?).await;
                    let answer = answer.map_err(|e| Refused::unavailable(e.to_string()))?;
                    if unanswered.send((wants_receipt, answer)).await.is_err() {
                        return Ok(());
                    }
                }
                // A stream that breaks off has ended: what was not acknowledged is sent again.
                let Ok(Some(message)) = from.message().await else {
                    return Ok(());
                };
                if !message.source.is_empty() && message.source != source.2.as_str() {
                    return Err(Refused::invalid("a stream has the recordings of one machine"));
                }
                next = message.part;
            }
        };
        let answering = async {
            while let Some((wants_receipt, answer)) = answers.recv().await {
                let Ok(kept) = answer.await else {
                    return Err(Refused::unavailable("the service stops"));
                };
                let receipt = match (&kept.answer, source.1) {
                    (Answer::Whole(whole), Kind::Node) if wants_receipt => {
                        Some(self.receipt(&source.2, &kept.session, whole).await?)
                    }
                    (_, Kind::Node) => None,
                    // A proxy that brings its own believes auth, which it has asked by itself.
                    (_, Kind::Proxy) => Some(Bytes::new()),
                };
                if to.send(Ok(write(kept, receipt))).await.is_err() {
                    return Ok(());
                }
            }
            Ok(())
        };
        let looking = async {
            let (mut seen, mut published) = (self.ledger.seen(), self.published.clone());
            loop {
                tokio::select! {
                    Ok(()) = seen.changed() => {}
                    Ok(()) = published.changed() => {}
                    else => return Ok(()),
                }
                caller.proxy(&self)?;
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(newer) = self.look_at(&source, Some(&known))? {
                    *known = newer;
                }
            }
        };
        tokio::select! {
            done = async { tokio::try_join!(reading, answering) } => done.map(drop),
            refused = looking => refused,
        }
    }
}

fn read(part: v1::RecordingPart) -> Result<Part> {
    let session = <[u8; 16]>::try_from(&*part.session);
    Ok(Part {
        session: session.map_err(|_| Refused::invalid("a session has 16 bytes"))?,
        offset: part.offset,
        bytes: part.bytes,
        whole: part.whole,
    })
}

/// Without a receipt, even an empty one, it is not said that all is kept.
fn write(kept: Kept, receipt: Option<Bytes>) -> v1::RecordingKept {
    let mut out = v1::RecordingKept {
        session: Bytes::copy_from_slice(&kept.session),
        ..v1::RecordingKept::default()
    };
    match kept.answer {
        Answer::Offset(offset) => out.offset = offset,
        Answer::Whole(whole) => {
            out.offset = whole.bytes;
            out.whole = receipt.is_some();
            out.receipt = receipt.unwrap_or_default();
        }
        Answer::Refused(why) => out.refused = why,
        Answer::Wait(seconds, why) => (out.wait, out.why) = (seconds, why),
    }
    out
}
