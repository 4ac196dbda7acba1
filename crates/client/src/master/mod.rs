//! The master: a process of the user's own that keeps connections for his commands. A session without forwards it runs itself,
//! with the command's own standard streams, on an SSH connection that it keeps for the node, so a later command costs one
//! round trip and no byte is copied twice. To every other command it lends its connection to the proxy, which has neither TCP
//! nor TLS to wait for.
//!
//! It begins with its first command's socket on standard input and listens for more at a socket in the login's directory. It
//! ends when nobody needed it for a while, and with its login. It decides nothing, writes nothing and asks nobody: each session
//! is the node's to allow, and what needs a person is left to the command. Connections of `--direct` belong to no login: another
//! process keeps them, at another socket ([`Kind`]).

mod file_stamps;
mod pool;
mod service;

use crate::background::standard_input;
use crate::master_client::socket::{Listener, MessageSocket};
use crate::master_client::{DAY, DEADLINE, Kind, PERSIST, VERSION, reason, words};
use crate::profile::Home;
use crate::{connect, files, time};
use fleetgate_net::h2::{self, Caller, Routes, Tuning};
use fleetgate_sys::{Fd, close_range, credentials, exec, net, process};
use fleetgate_wire::master::{ConnectionStatus, FromMaster, MAX_FRAME, MAX_WORDS, Target, ToMaster, Way};
use pool::{LentProxy, Pool};
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, timeout};

/// How long the ends of sessions may take to be told, once the master is to end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// After a longer wait the calendar is looked at again.
const LONGEST_SLEEP: Duration = Duration::from_mins(5);

/// Commands that want it to stay; one is enough.
const MAX_STAYS: usize = 16;

/// The socket, which is one master's at a time.
struct MasterSocket {
    listener: Listener,
    path: PathBuf,
    /// Whoever has it may remove what lies at the path.
    _lock: File,
}

/// What the tasks of all commands share.
struct SharedState {
    kind: Kind,
    /// The network in which connections are made.
    network: Vec<u8>,
    pool: Rc<Pool>,
    made: Instant,
    /// Nothing more is begun; the master ends with its last use.
    is_retired: Cell<bool>,
    /// It ends now.
    is_stopped: Cell<bool>,
    changed: Notify,
    /// For how long the last command wants things kept.
    keep: Cell<Duration>,
    /// Commands that want it to stay. Once nothing else keeps it, those that have ended are removed.
    stays: RefCell<Vec<MessageSocket>>,
}

/// Keeps connections of a kind, for the user whose login is in this directory: `DIRECTORY KIND`. The exit code.
pub fn main(words: &[OsString]) -> i32 {
    // Before anything is open that is ours. What the command's own parents left open is not for a day.
    let ready = close_range(3, u32::MAX);
    // It leads no group yet: it was just started.
    let _ = exec::new_session();
    net::umask(0o077);
    // It has keys and connections that are logged in: no core of it, and no other process of the user's looks into it.
    let none = process::Limit { soft: 0, hard: 0 };
    let _ = process::set_limit(process::numbers::RLIMIT_CORE, none);
    let _ = credentials::set_dumpable(false);
    let ([home, kind], Ok(())) = (words, ready) else {
        return fleetgate_base::exit::USAGE;
    };
    let home = home.to_str().and_then(|home| Home::find(Some(home)).ok());
    let (Some(home), Some(kind)) = (home, kind.to_str().and_then(Kind::named)) else {
        return fleetgate_base::exit::USAGE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let kept = runtime.and_then(|runtime| {
        let local = LocalSet::new();
        let kept = local.block_on(&runtime, keep(home, kind));
        drop(local);
        runtime.shutdown_background();
        kept
    });
    i32::from(kept.is_err())
}

async fn keep(home: Home, kind: Kind) -> io::Result<()> {
    let first = MessageSocket::new(Fd::from(standard_input()?))?;
    // Before any connection is made: who comes meanwhile waits for it, and starts no other master.
    let mut socket = MasterSocket::take(&home, kind);
    let pool = match kind {
        Kind::Login => of_login(home),
        Kind::Direct => Ok((None, Pool::of_servers(home))),
    };
    let (end, pool) = match pool {
        Ok(pool) => pool,
        // The command says itself what is wrong with the login.
        Err(e) => {
            // A word that nobody reads would be an error for whoever sent it.
            let _ = timeout(DEADLINE, first.receive::<ToMaster>()).await;
            let _ = first.send(&FromMaster::Cold, &[]);
            return Err(e);
        }
    };
    let shared = Rc::new(SharedState {
        kind,
        network: net::namespace(),
        pool,
        made: Instant::now(),
        is_retired: Cell::new(false),
        is_stopped: Cell::new(false),
        changed: Notify::new(),
        keep: Cell::new(PERSIST),
        stays: RefCell::default(),
    });
    let mut commands = JoinSet::new();
    commands.spawn_local(serve(shared.clone(), first));
    // Nobody gets in with the login after its end; who is in stays for as long as the node lets him.
    let mut over = std::pin::pin!(reached(end));
    let mut renewal = std::pin::pin!(shared.pool.renewal());
    let mut idle_since = Instant::now();
    loop {
        if shared.is_stopped.get() {
            break;
        }
        if let Some(socket) = socket.take_if(|_| shared.is_retired.get()) {
            socket.close(&shared, &mut commands);
        }
        if socket.is_none() && commands.is_empty() && !shared.pool.is_used() {
            break;
        }
        let is_idle = commands.is_empty() && shared.pool.is_empty();
        if is_idle {
            shared.stays.borrow_mut().retain(|socket| !socket.is_over());
        } else {
            idle_since = Instant::now();
        }
        // Without connections it costs next to nothing to wait on, unless somebody wants it gone sooner.
        let keep = shared.keep.get();
        let is_short = keep < PERSIST && shared.stays.borrow().is_empty();
        let patience = if is_short { keep } else { DAY };
        tokio::select! {
            Some(command) = arrival(&socket) => {
                commands.spawn_local(serve(shared.clone(), command));
            }
            Some(_) = commands.join_next() => {}
            () = shared.changed.notified() => {}
            () = over.as_mut(), if !shared.is_retired.get() => {
                // Somebody may have renewed it.
                match shared.pool.is_current().then(|| shared.pool.end()).flatten() {
                    Some(end) if end > time::now() => over.set(reached(Some(end))),
                    _ => shared.retire(),
                }
            }
            () = shared.pool.changed() => {}
            end = renewal.as_mut(), if !shared.is_retired.get() => {
                over.set(reached(Some(end)));
                renewal.set(shared.pool.renewal());
            }
            () = sleep((idle_since + patience).saturating_duration_since(Instant::now())), if is_idle => {
                if shared.stays.borrow().is_empty() {
                    break;
                }
                // Whether they are still there is looked at next.
                idle_since = Instant::now();
            }
        }
    }
    if let Some(socket) = socket {
        shared.is_retired.set(true);
        socket.close(&shared, &mut commands);
        let answered = async { while commands.join_next().await.is_some() {} };
        let _ = timeout(LAST_WORDS, answered).await;
    }
    commands.abort_all();
    let rest = async { while commands.join_next().await.is_some() {} };
    let _ = timeout(LAST_WORDS, rest).await;
    Ok(())
}

/// Connections of the login that the home has now, and when it ends, in seconds since 1970.
fn of_login(home: Home) -> io::Result<(Option<u64>, Rc<Pool>)> {
    let certificate = connect::certificate(&home).map_err(io::Error::other)?;
    Ok((Some(certificate.validity().end), Pool::of_login(home)?))
}

/// Waits for a moment, in seconds since 1970; for none, for ever.
async fn reached(moment: Option<u64>) {
    let Some(moment) = moment else {
        return pending().await;
    };
    // A machine that sleeps stops the runtime's clock, and not the calendar.
    while let Some(left @ 1..) = moment.checked_sub(time::now()) {
        sleep(Duration::from_secs(left).min(LONGEST_SLEEP)).await;
    }
}

/// One command, from the first word to the end.
async fn serve(shared: Rc<SharedState>, socket: MessageSocket) {
    let word = match timeout(DEADLINE, socket.receive::<ToMaster>()).await {
        Ok(Ok(word)) => Some(word),
        // Another version's.
        Ok(Err(e)) if e.kind() == io::ErrorKind::InvalidData => None,
        _ => return,
    };
    let Some((word, descriptors)) = word else {
        return shared.make_room(&socket);
    };
    match word {
        ToMaster::Lend { target } | ToMaster::Run { target, .. } | ToMaster::Stay { target }
            if target.network != shared.network =>
        {
            let _ = socket.send(&FromMaster::Cold, &[]);
        }
        ToMaster::Lend { target } if shared.takes(&target) => shared.lend(socket, target).await,
        ToMaster::Run { target, order } if shared.takes(&target) => {
            if let Ok(streams) = <[Fd; 3]>::try_from(descriptors) {
                shared.pool.run(&target, order, streams, socket);
                shared.changed.notify_one();
            }
        }
        ToMaster::Stay { target } if shared.takes(&target) => {
            let mut stays = shared.stays.borrow_mut();
            stays.retain(|socket| !socket.is_over());
            if stays.len() < MAX_STAYS && socket.send(&shared.status(), &[]).is_ok() {
                stays.push(socket);
            }
        }
        ToMaster::Lend { .. } | ToMaster::Run { .. } | ToMaster::Stay { .. } => shared.make_room(&socket),
        ToMaster::Retire => shared.retire(),
        ToMaster::Stop => {
            shared.is_stopped.set(true);
            shared.changed.notify_one();
        }
        ToMaster::Status => {
            let _ = socket.send(&shared.status(), &[]);
        }
        ToMaster::Window { .. } | ToMaster::Resume => {}
    }
}

impl SharedState {
    /// Whether something is begun for such a command.
    fn takes(&self, target: &Target) -> bool {
        let takes = !self.is_retired.get()
            && target.version.as_c_str() == VERSION
            && Kind::of(&target.way) == self.kind
            && self.pool.is_current();
        if takes {
            self.keep.set(Duration::from_secs(target.keep.into()));
        }
        takes
    }

    fn status(&self) -> FromMaster {
        cut(FromMaster::Status {
            pid: process::id().cast_unsigned(),
            version: VERSION.into(),
            age: self.made.elapsed().as_secs(),
            connections: self.pool.status(),
            more: 0,
            trouble: self.pool.trouble().map(|why| words(&why)),
        })
    }

    /// For another login or version: another master is to be started.
    fn make_room(&self, socket: &MessageSocket) {
        let _ = socket.send(&FromMaster::Other, &[]);
        self.retire();
    }

    fn retire(&self) {
        self.is_retired.set(true);
        self.pool.retire();
        self.changed.notify_one();
    }

    /// Lends the connection to a proxy until its command has ended.
    async fn lend(&self, socket: MessageSocket, target: Target) {
        let Way::Proxy { address } = &target.way else {
            let why = words("there is no proxy on this way");
            let _ = socket.send(&FromMaster::Failed { why }, &[]);
            return;
        };
        let address = address.to_string_lossy();
        let keep = Duration::from_secs(target.keep.into());
        let lent = match self.pool.proxy(&address, keep).await {
            Ok(lent) => lent,
            Err(error) => {
                let why = words(&reason(&error));
                let _ = socket.send(&FromMaster::Failed { why }, &[]);
                return;
            }
        };
        let LentProxy {
            proxy,
            steps,
            was_there,
            one_use,
        } = lent;
        let Ok((ours, its)) = UnixStream::pair() else {
            return;
        };
        let sent = socket.send(&FromMaster::Lent { steps, was_there }, &[its.as_fd().as_raw_fd()]);
        drop((its, socket));
        if sent.is_err() {
            return;
        }
        let caller = Caller {
            peer: None,
            address: None,
        };
        let routes = Arc::new(Routes::new().with(service::service(proxy)));
        // Whatever ends it, it was the command's end.
        let _ = h2::serve(ours, caller, routes, Tuning::HERE, pending()).await;
        drop(one_use);
    }
}

/// As much of a status as a frame holds, and how much more there is.
fn cut(mut status: FromMaster) -> FromMaster {
    let FromMaster::Status {
        connections, more, ..
    } = &mut status
    else {
        return status;
    };
    let mut room = MAX_FRAME - 4 * MAX_WORDS;
    let fits = |one: &&ConnectionStatus| {
        let left = room.checked_sub(one.name.len() + 64);
        room = left.unwrap_or(0);
        left.is_some()
    };
    let count = connections.iter().take_while(fits).count();
    *more = u32::try_from(connections.len() - count).unwrap_or(u32::MAX);
    connections.truncate(count);
    status
}

/// The next command; nobody ever, where there is no socket to come to.
async fn arrival(socket: &Option<MasterSocket>) -> Option<MessageSocket> {
    let Some(socket) = socket else {
        return pending().await;
    };
    loop {
        match socket.listener.accept().await {
            Ok(command) if command.is_ours() => return Some(command),
            Ok(_) => {}
            // Out of descriptors, most likely, which is what bounds the commands: whoever waits goes on waiting.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

impl MasterSocket {
    /// None where another master has it, or the directory cannot be written.
    fn take(home: &Home, kind: Kind) -> Option<MasterSocket> {
        let path = home.file(kind.socket());
        files::private_directory(path.parent()?).ok()?;
        let lock = files::open_lock(&path.with_extension("lock")).ok()?;
        lock.try_lock().ok()?;
        // What a master that was killed left behind.
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return None,
            _ => {}
        }
        Some(MasterSocket {
            listener: Listener::bind(&path).ok()?,
            path,
            _lock: lock,
        })
    }
}

impl MasterSocket {
    /// Nobody comes any more. Those who have come and were not accepted yet are told to start another master: an end without
    /// an answer would leave them in doubt.
    fn close(self, shared: &Rc<SharedState>, commands: &mut JoinSet<()>) {
        let _ = std::fs::remove_file(&self.path);
        while let Some(command) = self.listener.accept_now() {
            commands.spawn_local(serve(shared.clone(), command));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_fits_its_frame_and_says_how_much_more_there_is() {
        let one = |n: usize| ConnectionStatus {
            name: format!("{}@{n}", "account").into_bytes(),
            uses: 0,
            age: 0,
            idle: 0,
            keep: 0,
        };
        for count in [0, 3, pool::MAX_CONNECTIONS] {
            let status = cut(FromMaster::Status {
                pid: 1,
                version: VERSION.into(),
                age: 0,
                connections: (0..count).map(one).collect(),
                more: 0,
                trouble: Some(words(&"x".repeat(2 * MAX_WORDS))),
            });
            assert!(fleetgate_wire::encode(&status).len() <= MAX_FRAME, "{count}");
            let FromMaster::Status {
                connections, more, ..
            } = status
            else {
                panic!("a status stays one");
            };
            assert_eq!(connections.len() + more as usize, count);
            assert_eq!(more > 0, count == pool::MAX_CONNECTIONS);
        }
    }
}
