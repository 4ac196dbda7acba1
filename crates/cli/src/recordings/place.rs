//! Where recordings are read from: a directory of this machine, or the cluster's auth, for whoever a role lets. A recording of the
//! cluster is fetched into a file that has no name; nothing of it is kept but, for `grep`, an index.

use super::{Progress, complain, directory, filter};
use crate::admin;
use crate::flags::{Arguments, session_id};
use fleetgate_client::connect::AdminEndpoint;
use fleetgate_client::error::ClientError;
use fleetgate_client::files;
use fleetgate_client::recordings::{Fetched, Recordings};
use fleetgate_playback::about::{Begin, End};
use fleetgate_playback::clock;
use fleetgate_playback::list::{self, Filter, List, Listing};
use fleetgate_playback::store::{self, Elsewhere, Entry, StoreError};
use fleetgate_policy::text::hex;
use fleetgate_proto::v1::{RecordingEntry, RecordingsRequest};
use fleetgate_sys::{Fd, exe};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Auth puts recordings into the order of their seconds; so many of the last ones are looked at to find the last.
const SAME_SECOND: u32 = 32;
/// All indexes of one user together; beyond it the oldest go.
const MAX_INDEXES: u64 = 1 << 30;
/// Flags that say that the cluster is meant, and flags that say that files of this machine are.
const CLUSTERS: [&str; 3] = ["cluster", "home", "state"];
const MACHINES: [&str; 3] = ["directory", "config", "here"];

/// Where recordings are.
pub(super) enum Place {
    /// In a directory of this machine.
    Directory(PathBuf),
    /// At auth.
    Cluster(Box<Cluster>),
}

/// Auth's recordings.
pub(super) struct Cluster {
    desk: Recordings,
    /// What they are read for, for the audit event.
    purpose: &'static str,
}

/// Where the command reads: what its flags say; else this machine's directory where it can be read, else the cluster.
pub(super) fn place(given: &Arguments) -> Result<Place, Box<dyn std::error::Error>> {
    let named = |flags: [&'static str; 3]| flags.into_iter().find(|flag| given.has(flag));
    let (machine, cluster) = (named(MACHINES), named(CLUSTERS));
    if let (Some(machine), Some(cluster)) = (machine, cluster) {
        return Err(given
            .wrong(format!(
                "`--{machine}` is about files of this machine, and `--{cluster}` asks the cluster: give one of them"
            ))
            .into());
    }
    // A login that is named for commands is named for these as well.
    let is_home_set = std::env::var_os("FLEETGATE_HOME").is_some_and(|home| !home.is_empty());
    if cluster.is_none() && (machine.is_some() || !is_home_set) {
        // What is wrong here is said, where nothing else can be meant.
        let is_meant = |directory: &Path| machine.is_some() || std::fs::read_dir(directory).is_ok();
        match directory(given) {
            Ok(directory) if is_meant(&directory) || !reaches_cluster(given) => {
                let is_about_all =
                    ["ls", "grep"].contains(given.command.words.last().unwrap_or(&"")) || given.has("all");
                if machine.is_none() && is_about_all && reaches_cluster(given) {
                    complain(&format!(
                        "these are this machine's own recordings ({}): `--cluster` has those of the cluster",
                        directory.display()
                    ));
                }
                return Ok(Place::Directory(directory));
            }
            Err(why) if machine.is_some() || !reaches_cluster(given) => return Err(why),
            _ => {}
        }
    }
    Ok(Place::Cluster(Box::new(Cluster::connect(given)?)))
}

/// Whether somebody is logged in here, or auth runs here.
fn reaches_cluster(given: &Arguments) -> bool {
    match admin::endpoint(given) {
        Ok(AdminEndpoint::Login(home)) => !matches!(home.login(), Err(ClientError::NoLogin { .. })),
        Ok(AdminEndpoint::Socket(_)) => true,
        Err(_) => false,
    }
}

fn purpose(given: &Arguments) -> &'static str {
    let words = ["play", "export", "grep", "verify"];
    let last = given.command.words.last();
    words
        .into_iter()
        .find(|word| last == Some(word))
        .unwrap_or("play")
}

impl Place {
    /// The recordings that the flags choose, the one that began first first.
    pub(super) fn list(&self, given: &Arguments) -> Result<List, Box<dyn std::error::Error>> {
        let filter = filter(given);
        match self {
            Place::Directory(directory) => {
                let mut found = list::list(directory, &filter).map_err(|e| not_there(given, e))?;
                if let Some(limit) = given.number("limit") {
                    let surplus = found.recordings.len().saturating_sub(limit as usize);
                    found.recordings.drain(..surplus);
                }
                Ok(found)
            }
            Place::Cluster(cluster) => {
                let mut wanted = request(&filter);
                wanted.limit = given.number("limit").unwrap_or(0);
                Ok(List {
                    recordings: cluster.list(wanted)?,
                    unreadable: Vec::new(),
                })
            }
        }
    }

    /// The recording that is meant, and the public keys that auth knows of its maker.
    pub(super) fn one(&self, given: &Arguments) -> Result<(Entry, Vec<String>), Box<dyn std::error::Error>> {
        let word = match (given.word(), given.has("last")) {
            (Some(_), true) => {
                return Err(given
                    .wrong("SESSION and `--last` together: give one of them")
                    .into());
            }
            (None, false) => return Err(given.wrong("SESSION is missing: give an id, or `--last`").into()),
            (word, _) => word.map(session_id).transpose().map_err(|why| given.wrong(why))?,
        };
        // A directory has one recording of a session. `watch` means something else by it.
        let is_of_one = given.command.words.last() != Some(&"watch");
        if matches!(self, Place::Directory(_)) && is_of_one && given.has("node") {
            return Err(given
                .wrong("`--node` is for recordings that the cluster keeps: give `--cluster` too, or leave it out")
                .into());
        }
        match (self, word) {
            (Place::Directory(directory), Some(id)) => {
                let found = store::find(directory, &id);
                let is_here = MACHINES.iter().any(|flag| given.has(flag));
                if let Err(e @ StoreError::NotThere(..)) = &found
                    && !is_here
                    && reaches_cluster(given)
                {
                    return Err(format!("{e}, and `--cluster` asks the cluster").into());
                }
                Ok((found.map_err(|e| not_there(given, e))?, Vec::new()))
            }
            (Place::Directory(directory), None) => {
                let last = list::last(directory).map_err(|e| not_there(given, e))?;
                Ok((last.entry, Vec::new()))
            }
            (Place::Cluster(cluster), Some(id)) => {
                Ok(cluster.fetch(&id, given.value("node").unwrap_or_default())?)
            }
            (Place::Cluster(cluster), None) => {
                let last = RecordingsRequest {
                    node: given.value("node").unwrap_or_default().to_owned(),
                    limit: SAME_SECOND,
                    ..RecordingsRequest::default()
                };
                let last = cluster.list(last)?.pop().ok_or_else(|| {
                    ClientError::Refused("there is no recording that you may see".to_owned())
                })?;
                Ok(cluster.fetch(&last.entry.id, &last.entry.maker)?)
            }
        }
    }
}

/// The recordings at auth whose ids begin so, as far as the caller may list them. Auth has the first of a recording when a block of
/// it is full, or five minutes old.
pub(super) fn at_auth(given: &Arguments, id: &str) -> Result<Vec<Listing>, ClientError> {
    Cluster::connect(given)?.list(RecordingsRequest {
        session: id.to_owned(),
        ..RecordingsRequest::default()
    })
}

/// A directory that was named and is not there is an error of the command line.
pub(super) fn not_there(given: &Arguments, error: StoreError) -> Box<dyn std::error::Error> {
    match &error {
        StoreError::NoDirectory(_) if given.has("directory") => given.wrong(error.to_string()).into(),
        _ => error.into(),
    }
}

impl Cluster {
    /// By the unix socket or the login, as administrators' commands choose.
    pub(super) fn connect(given: &Arguments) -> Result<Cluster, ClientError> {
        Ok(Cluster {
            desk: Recordings::connect(&admin::endpoint(given)?)?,
            purpose: purpose(given),
        })
    }

    /// Those that auth has.
    pub(super) fn list(&self, wanted: RecordingsRequest) -> Result<Vec<Listing>, ClientError> {
        let cache = cache();
        let mut found = Vec::new();
        self.desk.list(wanted, |entry| {
            let elsewhere = OnDemand {
                desk: self.desk.clone(),
                purpose: self.purpose,
                indexes: cache.clone(),
                bytes: entry.bytes,
            };
            found.push(listing(&entry, Arc::new(elsewhere)));
        })?;
        found.sort_by_cached_key(|listing| clock::parse(&listing.begin.started));
        Ok(found)
    }

    /// One whose bytes are here now, and the public keys of its maker. `node`: of several of this id, this one's.
    pub(super) fn fetch(&self, id: &str, node: &str) -> Result<(Entry, Vec<String>), ClientError> {
        let progress = RefCell::new(Progress::new());
        let fetched = self.desk.fetch(id, node, self.purpose, &|got, of| {
            progress
                .borrow_mut()
                .show(|| format!("{} of {} KB of the recording", got >> 10, of >> 10));
        });
        progress.borrow_mut().clear();
        let Fetched { entry, keys, file } = fetched?;
        let begin: serde_json::Value = serde_json::from_str(&entry.begin).unwrap_or_default();
        if let Some(maker) = begin["maker"].as_str() {
            let said = begin["said_node"].as_str().unwrap_or_default();
            complain(&format!(
                "the cluster has this recording from {maker}; it says of itself that it is of {said:?}, which nobody else confirms"
            ));
        }
        let bytes = file
            .metadata()
            .map_err(ClientError::file(Path::new("a temporary file")))?
            .len();
        let held = Held {
            file: file.into(),
            bytes,
        };
        Ok((listing(&entry, Arc::new(held)).entry, keys))
    }

    /// Removes one.
    pub(super) fn delete(&self, id: &str, node: &str) -> Result<(), ClientError> {
        self.desk.delete(id, node).map(drop)
    }
}

fn request(filter: &Filter) -> RecordingsRequest {
    RecordingsRequest {
        user: filter.user.clone(),
        login: filter.login.clone(),
        node: filter.node.clone(),
        since: filter.since.unwrap_or(0),
        until: filter.until.unwrap_or(0),
        session: String::new(),
        running: filter.running,
        limit: 0,
    }
}

/// What auth says of a recording, as a directory's listing has it.
fn listing(entry: &RecordingEntry, elsewhere: Arc<dyn Elsewhere>) -> Listing {
    let id = hex(&entry.session);
    let begin = Begin::read(entry.begin.as_bytes());
    let end = (!entry.end.is_empty()).then(|| (End::read(entry.end.as_bytes()), entry.last));
    Listing {
        entry: Entry {
            day: begin.started.chars().take(10).collect(),
            path: PathBuf::from(&id),
            id,
            runs: !entry.whole,
            maker: entry.source.clone(),
            elsewhere: Some(elsewhere),
        },
        begin,
        end,
        length: entry.bytes,
    }
}

/// A recording that was fetched.
#[derive(Debug)]
struct Held {
    file: Fd,
    bytes: u64,
}

impl Elsewhere for Held {
    fn fetch(&self, _: &Entry) -> Result<File, String> {
        // A descriptor of its own, which reads from the beginning.
        exe::reopen_read(&self.file)
            .map(File::from)
            .map_err(|e| format!("its temporary file: {e}"))
    }

    fn index(&self, _: &Entry) -> Option<PathBuf> {
        None
    }

    fn length(&self) -> u64 {
        self.bytes
    }
}

/// A recording that is fetched each time it is read, and not kept.
struct OnDemand {
    desk: Recordings,
    purpose: &'static str,
    indexes: Option<PathBuf>,
    bytes: u64,
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at auth", self.bytes)
    }
}

impl Elsewhere for OnDemand {
    fn fetch(&self, entry: &Entry) -> Result<File, String> {
        let fetched = self.desk.fetch(&entry.id, &entry.maker, self.purpose, &|_, _| {});
        let file = fetched.map_err(|e| e.to_string())?.file;
        exe::reopen_read(&file.into())
            .map(File::from)
            .map_err(|e| format!("its temporary file: {e}"))
    }

    fn index(&self, entry: &Entry) -> Option<PathBuf> {
        // A name has no slash: what has one is none.
        let maker = Some(&entry.maker).filter(|maker| !maker.contains('/'))?;
        Some(self.indexes.as_ref()?.join(format!("{}-{maker}.index", entry.id)))
    }

    fn length(&self) -> u64 {
        self.bytes
    }
}

/// Where indexes of the cluster's recordings are kept, the user's own; none: nowhere.
fn cache() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))
        .filter(|base| base.is_absolute())?;
    let directory = base.join("fleetgate/recordings");
    files::private_directory(&directory).ok()?;
    Some(directory)
}

/// Removes the oldest indexes where there are too many. What cannot be removed stays.
pub(super) fn tidy_cache() {
    if let Some(directory) = cache() {
        tidy(&directory, MAX_INDEXES);
    }
}

fn tidy(directory: &Path, most: u64) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    let index = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let data = entry.metadata().ok()?;
        let is_index = entry.path().extension() == Some(OsStr::new("index"));
        is_index.then_some((data.modified().ok()?, data.len(), entry.path()))
    };
    let mut indexes: Vec<_> = entries.filter_map(index).collect();
    indexes.sort();
    let mut bytes: u64 = indexes.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, length, path) in &indexes {
        if bytes <= most {
            return;
        }
        if std::fs::remove_file(path).is_ok() {
            bytes -= length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_oldest_indexes_go_first() {
        let directory = std::env::temp_dir().join(format!("fleetgate-indexes-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        for (name, age) in [("a.index", 10), ("b.index", 30), ("c.index", 20), ("d.other", 40)] {
            let path = directory.join(name);
            std::fs::write(&path, [0; 100]).expect("a file");
            let file = File::options().append(true).open(&path).expect("the file");
            let at = SystemTime::now() - Duration::from_secs(age);
            file.set_modified(at).expect("older");
        }
        let left = |most| {
            tidy(&directory, most);
            let names = std::fs::read_dir(&directory).expect("the directory");
            let mut names: Vec<String> = names
                .map(|entry| {
                    entry
                        .expect("an entry")
                        .file_name()
                        .to_string_lossy()
                        .into_owned()
                })
                .collect();
            names.sort();
            names
        };
        assert_eq!(left(300), ["a.index", "b.index", "c.index", "d.other"]);
        assert_eq!(left(299), ["a.index", "c.index", "d.other"]);
        assert_eq!(left(100), ["a.index", "d.other"]);
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
