//! Recordings that the cluster keeps, for those who may see them: which they are, their bytes, and their removal. Who may is
//! `policy`'s decision, made anew for each recording; what is read and removed is in the audit log before it happens. How
//! recordings are kept is the crate `archive`'s business.

use crate::audit::{Event, event};
use crate::caller::{Caller, CallerProof};
use crate::documents::Member;
use crate::error::{Refused, Result};
use crate::limits::{Place, Rate};
use crate::service::Service;
use fleetgate_archive::{Entry, Error as ArchiveError, Mark, Query, Reader};
use fleetgate_base::audit::Description;
use fleetgate_policy::cluster::{
    Identity, Labels, Reason, RecordingRight, Refusal, ViewAttempt, ViewedSession, may_see,
};
use fleetgate_proto::v1;
use serde_json::Value;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Lists and recordings that one caller reads at once.
pub const VIEWS_OF_ONE: usize = 8;
/// And all callers together: each has up to a megabyte in memory.
pub const VIEWS: usize = 64;
/// How often one caller may begin to read a recording: each time is an event of the audit log. A search reads many.
pub const READS: Rate = Rate {
    burst: 10_000,
    every_ms: 50,
};
/// The digits that name a session: as many as its id has, or its first ones.
const DIGITS: RangeInclusive<usize> = 8..=32;
/// What recordings are read for; an older client does not say.
const PURPOSES: [&str; 5] = ["play", "export", "grep", "verify", ""];
/// So many recordings are looked at where one is meant.
const MAX_SEEN: usize = 512;
/// Who allows this machine's administrator everything.
const HERE: &str = "unix socket";

/// Who looks at recordings, and holds a place for it.
pub(crate) struct Viewer {
    caller: Caller,
    /// What the certificate says, of its roles those alone that the user still has; none: this machine's administrator.
    identity: Option<Identity>,
    places: Arc<Places>,
}

/// The caller's own place, and one of those that all callers share.
pub(crate) struct Places {
    _own: Place<String>,
    _shared: Place<()>,
}

/// A list that is read.
pub(crate) struct Listing {
    viewer: Viewer,
    query: Query,
    after: Option<Mark>,
    /// So many that may be seen are passed over, because only the last ones are wanted.
    skip: u64,
}

/// A recording that is read.
pub(crate) struct Reading {
    viewer: Viewer,
    entry: Entry,
    /// What is told before its bytes.
    pub(crate) first: v1::RecordingBytes,
    reader: Reader,
    /// The state by which it was decided.
    serial: u64,
}

impl Listing {
    /// What is held as long as it is read.
    pub(crate) fn places(&self) -> Arc<Places> {
        self.viewer.places.clone()
    }
}

impl Reading {
    /// What is held as long as it is read.
    pub(crate) fn places(&self) -> Arc<Places> {
        self.viewer.places.clone()
    }
}

impl Service {
    /// Begins a list. Who may list nothing is refused; who may list some is shown those.
    pub(crate) async fn list_recordings(
        &self,
        caller: &Caller,
        wanted: v1::RecordingsRequest,
    ) -> Result<Listing> {
        let prefix = match wanted.session.as_str() {
            "" => String::new(),
            word => session_digits(word)?,
        };
        let viewer = self.viewer(caller)?;
        if let Err(refusal) = self.decide(&viewer, RecordingRight::List, None) {
            return Err(self
                .refuse_view(&viewer, RecordingRight::List, None, &refusal)
                .await);
        }
        let query = Query {
            user: wanted.user,
            login: wanted.login,
            node: wanted.node,
            since: wanted.since,
            until: wanted.until,
            session_prefix: prefix,
            running: wanted.running,
            limit: 0,
        };
        let mut listing = Listing {
            viewer,
            query,
            after: None,
            skip: 0,
        };
        if wanted.limit > 0 {
            // They are counted first: to keep the last ones in memory would let the caller say how many that is.
            let mut count = 0;
            while let Some(page) = self.list_on(&mut listing).await? {
                count += page.len() as u64;
            }
            listing.after = None;
            listing.skip = count.saturating_sub(wanted.limit.into());
        }
        Ok(listing)
    }

    /// The next ones that the caller may list; nothing: that were all.
    pub(crate) async fn list_on(&self, listing: &mut Listing) -> Result<Option<Vec<Entry>>> {
        let mut page = self.archive()?.list(&listing.query, listing.after.take()).await?;
        let Some(last) = page.last() else {
            return Ok(None);
        };
        listing.after = Some(Mark::behind(last));
        let viewer = &listing.viewer;
        page.retain(|entry| self.decide(viewer, RecordingRight::List, Some(entry)).is_ok());
        let skipped = page
            .len()
            .min(usize::try_from(listing.skip).unwrap_or(usize::MAX));
        page.drain(..skipped);
        listing.skip -= skipped as u64;
        Ok(Some(page))
    }

    /// Begins to read a recording. The audit log has it when this returns.
    pub(crate) async fn read_recording(
        &self,
        caller: &Caller,
        wanted: v1::ReadRecordingRequest,
    ) -> Result<Reading> {
        let prefix = session_digits(&wanted.session)?;
        let purpose = PURPOSES
            .into_iter()
            .find(|known| *known == wanted.purpose)
            .ok_or_else(|| Refused::invalid("recordings are read to play, export, grep or verify them"))?;
        let viewer = self.viewer(caller)?;
        let serial = self.published.borrow().state.serial;
        let (entry, rule) = self
            .find_for(&viewer, RecordingRight::Play, &prefix, &wanted.node)
            .await?;
        if wanted.offset > entry.bytes {
            return Err(Refused::invalid(format!(
                "the recording has {} bytes, and was to be read from byte {}",
                entry.bytes, wanted.offset
            )));
        }
        if viewer.identity.is_some() {
            let allowed = self.view_reads.take(&caller.by(), self.ledger.uptime());
            allowed.map_err(|seconds| Refused::later("you have read very many recordings", seconds))?;
        }
        let reader = self.archive()?.read(&entry, wanted.offset).await?;
        let event = self
            .view_event(event::RECORDING_PLAYED, caller, Some(&entry))
            .with("purpose", if purpose.is_empty() { "play" } else { purpose })
            .with("rule", rule);
        let event = match wanted.offset {
            0 => event,
            offset => event.with("offset", offset),
        };
        self.ledger.tell(event).await?;
        let first = v1::RecordingBytes {
            keys: self.keys_of(&entry.source),
            entry: Some(shown(&entry)),
            ..v1::RecordingBytes::default()
        };
        Ok(Reading {
            viewer,
            entry,
            first,
            reader,
            serial,
        })
    }

    /// The next bytes; nothing: that were all. Where roles or locks have changed meanwhile, it is decided anew.
    pub(crate) async fn read_recording_on(
        &self,
        reading: &mut Reading,
    ) -> Result<Option<v1::RecordingBytes>> {
        let serial = self.published.borrow().state.serial;
        if serial != reading.serial {
            reading.serial = serial;
            // What the certificate says now, with the roles that the user has now.
            reading.viewer.identity = self.viewing_identity(&reading.viewer.caller)?;
            self.decide(&reading.viewer, RecordingRight::Play, Some(&reading.entry))
                .map_err(|refusal| Refused::forbidden(refusal.words))?;
        }
        let bytes = reading.reader.next().await?;
        Ok(bytes.map(|bytes| v1::RecordingBytes {
            bytes,
            ..v1::RecordingBytes::default()
        }))
    }

    /// Removes a recording. The audit log has it before.
    pub(crate) async fn delete_recording(
        &self,
        caller: &Caller,
        wanted: &v1::DeleteRecordingRequest,
    ) -> Result<v1::RecordingEntry> {
        let id = session_digits(&wanted.session)?;
        if id.len() != *DIGITS.end() {
            return Err(Refused::invalid(
                "a recording is removed by its whole id, 32 hexadecimal digits",
            ));
        }
        let viewer = self.viewer(caller)?;
        let (entry, rule) = self
            .find_for(&viewer, RecordingRight::Delete, &id, &wanted.node)
            .await?;
        // What comes of it later would be refused, and be missing for good.
        if !entry.whole && self.still_runs(&id).await? {
            return Err(Refused::invalid(format!(
                "the session {id} still runs, and so its recording is not removed: wait for its end, or end it with `fleetgate \
                 sessions end {id}`"
            )));
        }
        let event = self
            .view_event(event::RECORDING_DELETED, caller, Some(&entry))
            .with("bytes", entry.bytes)
            .with("rule", rule);
        self.ledger.tell(event).await?;
        let deleted = self.archive()?.delete(&entry.key()).await.map_err(|e| {
            let refused = Refused::from(e);
            Refused {
                words: format!(
                    "{}; it was not removed, although the audit log has that it was to be",
                    refused.words
                ),
                ..refused
            }
        })?;
        Ok(shown(&deleted))
    }

    /// Whether the audit log has the beginning of a session, and no end.
    async fn still_runs(&self, id: &str) -> Result<bool> {
        let query = crate::audit::Query {
            events: vec!["session_started".to_owned()],
            session: id.to_owned(),
            present: true,
            ..crate::audit::Query::default()
        };
        let mark = self.ledger.audit().begin(&query).await?;
        Ok(!self.ledger.audit().page(&query, mark).await?.is_empty())
    }

    /// Who asks, with a place.
    fn viewer(&self, caller: &Caller) -> Result<Viewer> {
        let identity = self.viewing_identity(caller)?;
        let busy = |who: &str, most| {
            Refused::busy(format!(
                "{who} {most} lists and recordings at once, as many as may be: try again in a moment"
            ))
        };
        let own = self.viewers.take(caller.by());
        let own = own.ok_or_else(|| busy("you read", VIEWS_OF_ONE))?;
        let shared = self.all_viewers.take(());
        let shared = shared.ok_or_else(|| busy("this service gives away", VIEWS))?;
        Ok(Viewer {
            caller: caller.clone(),
            identity,
            places: Arc::new(Places {
                _own: own,
                _shared: shared,
            }),
        })
    }

    /// What a user's certificate says, of its roles those that the user still has; none: this machine's administrator.
    fn viewing_identity(&self, caller: &Caller) -> Result<Option<Identity>> {
        if let CallerProof::Local(_) = caller.who {
            return Ok(None);
        }
        let (identity, user) = caller.user(self)?;
        let mut identity = identity.clone();
        let cache = self.cache();
        let held = cache.users.get(user.as_str());
        let held = held
            .filter(|u| u.document.active)
            .map_or(&[][..], |u| &u.document.roles);
        identity.roles.retain(|role| held.contains(role));
        Ok(Some(identity))
    }

    /// Whether this viewer may do this with a recording, or with any; by which role.
    fn decide(
        &self,
        viewer: &Viewer,
        right: RecordingRight,
        entry: Option<&Entry>,
    ) -> std::result::Result<String, Refusal> {
        let Some(identity) = &viewer.identity else {
            return Ok(HERE.to_owned());
        };
        let labels = entry.and_then(|entry| self.labels_then(entry));
        let published = self.published.borrow();
        let state = &published.state;
        let allowed = may_see(&ViewAttempt {
            identity,
            expires: Some(viewer.caller.expires()),
            cluster: &state.cluster,
            machine: &state.cluster,
            roles: &state.roles,
            locks: &state.locks,
            right,
            session: entry.map(|entry| ViewedSession {
                owner: &entry.user,
                node: &entry.node,
                labels: labels.as_ref(),
                login: &entry.login,
            }),
            now: self.now(),
            skew: crate::validity::SKEW,
        })?;
        Ok(format!("role {}", allowed.role))
    }

    /// The labels of a recording's node: those that it had then, and over them those that administrators give it now. None:
    /// nobody knows them.
    fn labels_then(&self, entry: &Entry) -> Option<Labels> {
        let begin: Value = serde_json::from_str(&entry.begin).unwrap_or_default();
        let said = begin["labels"].as_object().and_then(|labels| {
            let pairs = labels
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
            Labels::of(pairs).ok()
        });
        let cache = self.cache();
        let member: Option<&Member> = cache.nodes.get(&entry.node).map(|stored| &stored.document);
        let mut labels = match (said, member) {
            (Some(said), _) => said,
            (None, Some(member)) => self.inventory.labels_if_known(member, &entry.node)?,
            (None, None) => return None,
        };
        for (key, value) in member.into_iter().flat_map(|member| &member.labels) {
            if labels.set(key, value).is_err() {
                // One too many is one that the node says of itself.
                let given = member.into_iter().flat_map(|member| &member.labels);
                return Labels::of(given.map(|(k, v)| (k.as_str(), v.as_str()))).ok();
            }
        }
        Some(labels)
    }

    /// The one recording whose id begins so, for somebody who may do this with it, and the rule that lets him. Of those that he may
    /// not even list he hears what he would hear if there were none. `node`: of several, the one that this machine made, else the
    /// one of this node.
    async fn find_for(
        &self,
        viewer: &Viewer,
        right: RecordingRight,
        prefix: &str,
        node: &str,
    ) -> Result<(Entry, String)> {
        if let Err(refusal) = self.decide(viewer, right, None) {
            return Err(self.refuse_view(viewer, right, None, &refusal).await);
        }
        let query = Query {
            session_prefix: prefix.to_owned(),
            ..Query::default()
        };
        let (mut seen, mut hidden, mut after) = (Vec::new(), None, None);
        loop {
            let page = self.archive()?.list(&query, after.take()).await?;
            let Some(last) = page.last() else { break };
            after = Some(Mark::behind(last));
            let is_meant = |entry: &Entry| node.is_empty() || entry.source == node || entry.node == node;
            for entry in page.into_iter().filter(is_meant) {
                let may = self.decide(viewer, right, Some(&entry));
                match (may, self.decide(viewer, RecordingRight::List, Some(&entry))) {
                    (Err(refusal), Err(_)) => hidden = Some((entry, refusal)),
                    (may, _) => seen.push((entry, may)),
                }
            }
            if seen.len() > MAX_SEEN {
                break;
            }
        }
        // Two proxies may have recorded on the same sshd: the one is meant that is named itself.
        if seen.len() > 1 && seen.iter().any(|(entry, _)| entry.source == node) {
            seen.retain(|(entry, _)| entry.source == node);
        }
        if seen.len() > 1 {
            return Err(ArchiveError::several(prefix, seen.iter().map(|(entry, _)| entry)).into());
        }
        match (seen.pop(), hidden) {
            (Some((entry, Ok(rule))), _) => Ok((entry, rule)),
            (Some((entry, Err(refusal))), _) => {
                Err(self.refuse_view(viewer, right, Some(&entry), &refusal).await)
            }
            (None, hidden) => {
                if let Some((entry, refusal)) = hidden {
                    let refused = self.refuse_view(viewer, right, Some(&entry), &refusal).await;
                    // A log that cannot be written is said; and so is what the user can show at once.
                    let is_own = matches!(refusal.reason, Reason::Mfa | Reason::Device | Reason::Lock);
                    if refused.words != refusal.words || is_own {
                        return Err(refused);
                    }
                }
                Err(Refused::missing(format!(
                    "there is no recording {prefix} that you may see: `fleetgate sessions ls --recorded --cluster` lists those \
                     that you may"
                )))
            }
        }
    }

    /// Tells the audit log of a refusal; what the caller hears.
    async fn refuse_view(
        &self,
        viewer: &Viewer,
        right: RecordingRight,
        entry: Option<&Entry>,
        refusal: &Refusal,
    ) -> Refused {
        let event = self
            .view_event(event::RECORDING_REFUSED, &viewer.caller, entry)
            .with("what", right.name())
            .with("rule", refusal.rule.as_str());
        let refused = Refused::forbidden(refusal.words.as_str());
        self.refuse(&viewer.caller, true, event, refused).await
    }

    /// An event about a recording.
    fn view_event(&self, described: Description, caller: &Caller, entry: Option<&Entry>) -> Event {
        let event = self.event(described, caller);
        let Some(entry) = entry else { return event };
        let event = event
            .with("session", entry.id())
            .with("login", entry.login.as_str());
        let event = match entry.user.as_str() {
            "" => event,
            user => event.user(user),
        };
        match entry.node.as_str() {
            "" => event,
            node => event.node(node),
        }
    }

    /// The public keys that the signatures of this machine's recordings may be of.
    fn keys_of(&self, source: &str) -> Vec<String> {
        let cache = self.cache();
        let member = cache.nodes.get(source).or_else(|| cache.proxies.get(source));
        member.map_or_else(Vec::new, |member| member.document.keys_of_kept_recordings())
    }
}

/// A recording's first frame, with the machine that auth has it from: the frame says what its maker wrote.
fn begin_of(entry: &Entry) -> String {
    let Ok(Value::Object(mut begin)) = serde_json::from_str(&entry.begin) else {
        return entry.begin.clone();
    };
    if begin.get("node").and_then(Value::as_str).unwrap_or_default() == entry.node {
        return entry.begin.clone();
    }
    let said = begin.insert("node".to_owned(), entry.node.as_str().into());
    begin.insert("maker".to_owned(), entry.source.as_str().into());
    begin.insert("said_node".to_owned(), said.unwrap_or_default());
    Value::Object(begin).to_string()
}

/// What is told of a recording.
pub(crate) fn shown(entry: &Entry) -> v1::RecordingEntry {
    v1::RecordingEntry {
        session: entry.session.to_vec().into(),
        source: entry.source.clone(),
        begin: begin_of(entry),
        end: entry.end.clone(),
        last: entry.last,
        bytes: entry.bytes,
        whole: entry.whole,
        encrypted: entry.encrypted,
    }
}

/// A session's id or the first digits of it, in lower case.
fn session_digits(word: &str) -> Result<String> {
    match DIGITS.contains(&word.len()) && word.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Ok(word.to_ascii_lowercase()),
        false => Err(Refused::invalid(
            "a session is named by the 8 to 32 hexadecimal digits that its id begins with",
        )),
    }
}

impl From<ArchiveError> for Refused {
    fn from(error: ArchiveError) -> Refused {
        let words = error.to_string();
        match error {
            ArchiveError::Missing(_) => Refused::missing(words),
            ArchiveError::Several(..) | ArchiveError::SeveralMakers(..) | ArchiveError::NoId(_) => {
                Refused::invalid(words)
            }
            _ => {
                tracing::error!("{words}");
                Refused::unavailable(words)
            }
        }
    }
}
