//! A copy of the store in memory, for reading: what is written goes to the store, and comes back here by its watch. What
//! is below `/secrets/` is not in it.

use crate::documents::{
    Authority, Cluster, Device, Document, Invite, Kind, Known, Member, Purpose, Serial, Token, Tries, User,
};
use fleetgate_policy::cluster::{Lock, Role};
use fleetgate_store::{Change, Entry, Expect, Key, Revision, Step, Update, Value};
use std::collections::BTreeMap;

/// Documents of one kind, with the revision that each was last changed at.
pub type Table<T> = BTreeMap<String, Stored<T>>;

/// A document as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    /// The revision that it was last changed at.
    pub revision: Revision,
    /// The document.
    pub document: T,
}

/// The copy.
#[derive(Debug, Default)]
pub struct StateCache {
    /// Everything up to this revision is in it.
    pub revision: Revision,
    /// The cluster.
    pub cluster: Option<Stored<Cluster>>,
    /// The state's number.
    pub serial: Option<Stored<Serial>>,
    /// By name.
    pub users: Table<User>,
    /// By name.
    pub roles: Table<Role>,
    /// By id.
    pub locks: Table<Lock>,
    /// By the secret's hash.
    pub invites: Table<Invite>,
    /// By the secret's hash.
    pub tokens: Table<Token>,
    /// By id.
    pub devices: Table<Device>,
    /// By name.
    pub nodes: Table<Member>,
    /// By name.
    pub proxies: Table<Member>,
    /// By purpose and id: `user/ID`.
    pub authorities: Table<Authority>,
    /// By name and origin: `ada/192.0.2.1`.
    pub tries: Table<Tries>,
    /// By name.
    pub known: Table<Known>,
    /// By shard.
    pub seen: Table<BTreeMap<String, u64>>,
    /// Audit events on their way, by key.
    pub outbox: Table<Vec<u8>>,
}

impl Document for Vec<u8> {
    fn write(&self) -> Vec<u8> {
        self.clone()
    }

    fn read(bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.to_vec())
    }
}

/// What of the copy a key stands in.
enum Place<'a> {
    Cluster(&'a mut Option<Stored<Cluster>>),
    Serial(&'a mut Option<Stored<Serial>>),
    Users(&'a mut Table<User>, &'a str),
    Roles(&'a mut Table<Role>, &'a str),
    Locks(&'a mut Table<Lock>, &'a str),
    Invites(&'a mut Table<Invite>, &'a str),
    Tokens(&'a mut Table<Token>, &'a str),
    Devices(&'a mut Table<Device>, &'a str),
    Members(&'a mut Table<Member>, &'a str),
    Authorities(&'a mut Table<Authority>, &'a str),
    Tries(&'a mut Table<Tries>, &'a str),
    Known(&'a mut Table<Known>, &'a str),
    Seen(&'a mut Table<BTreeMap<String, u64>>, &'a str),
    Outbox(&'a mut Table<Vec<u8>>, &'a str),
    Nowhere,
}

impl StateCache {
    /// From all of the store's entries, read at `revision`.
    pub fn read(entries: &[Entry], revision: Revision) -> Result<StateCache, String> {
        let mut cache = StateCache::default();
        for entry in entries {
            cache.put(entry)?;
        }
        cache.revision = revision;
        Ok(cache)
    }

    /// Takes note of a change. What it cannot read it names and keeps as it was.
    pub fn apply(&mut self, update: &Update) -> Result<(), String> {
        let mut wrong = Ok(());
        for change in &update.changes {
            match change {
                Change::Put(entry) => wrong = wrong.and(self.put(entry)),
                Change::Delete(key) => self.delete(key),
            }
        }
        self.revision = update.revision;
        wrong
    }

    /// The members of this kind.
    pub fn members(&self, kind: Kind) -> &Table<Member> {
        match kind {
            Kind::Node => &self.nodes,
            Kind::Proxy => &self.proxies,
        }
    }

    /// The authorities of this purpose.
    pub fn authorities_of(&self, purpose: Purpose) -> impl Iterator<Item = &Stored<Authority>> {
        let prefix = format!("{}/", purpose.name());
        let from = self.authorities.range(prefix.clone()..);
        from.take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(_, stored)| stored)
    }

    /// The number of the state.
    pub fn last_serial(&self) -> u64 {
        self.serial.as_ref().map_or(0, |s| s.document.serial)
    }

    /// The number of the next state.
    pub fn next_serial(&self, now_ms: u64) -> u64 {
        now_ms.max(self.last_serial() + 1)
    }

    fn put(&mut self, entry: &Entry) -> Result<(), String> {
        let key = text(&entry.key);
        let done = match self.place(&key) {
            Place::Cluster(place) => one(place, entry),
            Place::Serial(place) => one(place, entry),
            Place::Users(table, name) => insert(table, name, entry),
            Place::Roles(table, name) => insert(table, name, entry),
            Place::Locks(table, name) => insert(table, name, entry),
            Place::Invites(table, name) => insert(table, name, entry),
            Place::Tokens(table, name) => insert(table, name, entry),
            Place::Devices(table, name) => insert(table, name, entry),
            Place::Members(table, name) => insert(table, name, entry),
            Place::Authorities(table, name) => insert(table, name, entry),
            Place::Tries(table, name) => insert(table, name, entry),
            Place::Known(table, name) => insert(table, name, entry),
            Place::Seen(table, name) => insert(table, name, entry),
            Place::Outbox(table, name) => insert(table, name, entry),
            Place::Nowhere => Ok(()),
        };
        done.map_err(|why| format!("what the store holds at {key} cannot be read: {why}; restore a backup"))
    }

    fn delete(&mut self, key: &Key) {
        let key = text(key);
        match self.place(&key) {
            Place::Cluster(place) => *place = None,
            Place::Serial(place) => *place = None,
            Place::Users(table, name) => drop(table.remove(name)),
            Place::Roles(table, name) => drop(table.remove(name)),
            Place::Locks(table, name) => drop(table.remove(name)),
            Place::Invites(table, name) => drop(table.remove(name)),
            Place::Tokens(table, name) => drop(table.remove(name)),
            Place::Devices(table, name) => drop(table.remove(name)),
            Place::Members(table, name) => drop(table.remove(name)),
            Place::Authorities(table, name) => drop(table.remove(name)),
            Place::Tries(table, name) => drop(table.remove(name)),
            Place::Known(table, name) => drop(table.remove(name)),
            Place::Seen(table, name) => drop(table.remove(name)),
            Place::Outbox(table, name) => drop(table.remove(name)),
            Place::Nowhere => {}
        }
    }

    fn place<'a>(&'a mut self, key: &'a str) -> Place<'a> {
        match key {
            "/cluster" => return Place::Cluster(&mut self.cluster),
            "/serial" => return Place::Serial(&mut self.serial),
            _ => {}
        }
        let Some((area, name)) = key.strip_prefix('/').and_then(|rest| rest.split_once('/')) else {
            return Place::Nowhere;
        };
        match area {
            "users" => Place::Users(&mut self.users, name),
            "roles" => Place::Roles(&mut self.roles, name),
            "locks" => Place::Locks(&mut self.locks, name),
            "invites" => Place::Invites(&mut self.invites, name),
            "tokens" => Place::Tokens(&mut self.tokens, name),
            "devices" => Place::Devices(&mut self.devices, name),
            "members" => match name.split_once('/') {
                Some(("node", name)) => Place::Members(&mut self.nodes, name),
                Some(("proxy", name)) => Place::Members(&mut self.proxies, name),
                _ => Place::Nowhere,
            },
            "authorities" => Place::Authorities(&mut self.authorities, name),
            "tries" => Place::Tries(&mut self.tries, name),
            "known" => Place::Known(&mut self.known, name),
            "seen" => Place::Seen(&mut self.seen, name),
            "outbox" => Place::Outbox(&mut self.outbox, name),
            _ => Place::Nowhere,
        }
    }
}

fn text(key: &Key) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}

fn one<T: Document>(place: &mut Option<Stored<T>>, entry: &Entry) -> Result<(), String> {
    *place = Some(stored(entry)?);
    Ok(())
}

fn insert<T: Document>(table: &mut Table<T>, name: &str, entry: &Entry) -> Result<(), String> {
    table.insert(name.to_string(), stored(entry)?);
    Ok(())
}

fn stored<T: Document>(entry: &Entry) -> Result<Stored<T>, String> {
    Ok(Stored {
        revision: entry.revision,
        document: T::read(&entry.value)?,
    })
}

/// The key that these parts name. They are of bounded length, so it is one.
pub fn key(parts: &[&str]) -> Key {
    Key::new(format!("/{}", parts.join("/"))).expect("names are shorter than keys may be")
}

/// Makes a document where none is.
pub fn create<T: Document>(at: Key, document: &T) -> Step {
    Step::create(at, value(document))
}

/// Puts a document in place of the one that was read; where none was, there must be none.
pub fn replace<T: Document>(at: Key, read: Option<Revision>, document: &T) -> Step {
    match read {
        Some(revision) => Step::replace(at, revision, value(document)),
        None => Step::create(at, value(document)),
    }
}

/// Puts a document, whatever was there.
pub fn put<T: Document>(at: Key, document: &T) -> Step {
    Step::put(at, value(document))
}

/// That something is still as it was read.
pub fn unchanged(at: Key, read: Option<Revision>) -> Step {
    Step::check(at, read.map_or(Expect::Absent, Expect::At))
}

fn value<T: Document>(document: &T) -> Value {
    Value::new(document.write()).expect("documents are shorter than values may be")
}
