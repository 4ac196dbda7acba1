//! The process that holds a connection to the proxy. It begins with its first user on standard input, lends the connection
//! to more of the same user, and ends when nobody had it for a while, when its login is over or replaced, or when the
//! connection breaks. It writes nothing and asks nobody.

use super::protocol::{self, MasterReply, MasterRequest, StepReport};
use super::{DEADLINE, SOCKET, service};
use crate::background::standard_input;
use crate::error::ClientError;
use crate::profile::Home;
use crate::timings::Timings;
use crate::transport::Proxy;
use crate::{connect, files, time};
use fleetgate_net::h2::{self, Caller, Routes, Tuning};
use fleetgate_sys::process::effective_uid;
use fleetgate_sys::{close_range, exec, net};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::future::pending;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How long the end of a connection may take to be told to those who use it.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The socket, which is one holder's at a time.
struct MasterSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Whoever has it may remove what lies at the path.
    _lock: File,
}

/// What all users share.
struct SharedState {
    key: String,
    proxy: Proxy,
    routes: Arc<Routes>,
    /// Says that the connection is to be lent to nobody any more.
    retire: mpsc::Sender<()>,
}

/// Holds a connection: the login's directory, the proxy, and for how many seconds. The exit code.
pub fn main(words: &[OsString]) -> i32 {
    // Before anything is open that is ours. What the command's own parents left open is not for ten minutes.
    let ready = close_range(3, u32::MAX);
    // It leads no group yet: it was just started.
    let _ = exec::new_session();
    net::umask(0o077);
    let ([home, address, persist], Ok(())) = (words, ready) else {
        return fleetgate_base::exit::USAGE;
    };
    let home = home.to_str().and_then(|home| Home::find(Some(home)).ok());
    let persist = persist.to_str().and_then(|seconds| seconds.parse().ok());
    let (Some(home), Some(address), Some(persist)) = (home, address.to_str(), persist) else {
        return fleetgate_base::exit::USAGE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let held = runtime.and_then(|runtime| {
        let held = runtime.block_on(hold(&home, address, Duration::from_secs(persist)));
        runtime.shutdown_background();
        held
    });
    i32::from(held.is_err())
}

async fn hold(home: &Home, address: &str, persist: Duration) -> io::Result<()> {
    let first = std::os::unix::net::UnixStream::from(standard_input()?);
    first.set_nonblocking(true)?;
    let first = UnixStream::from_std(first)?;
    // Before the connection is made: who comes meanwhile waits for it, and makes none of his own.
    let mut socket = MasterSocket::take(home);
    let mut timings = Timings::default();
    let (state, mut retired, proxy, expiry) = match connect(home, address, &mut timings).await {
        Ok(connected) => connected,
        Err(error) => return refuse(first, socket, error).await,
    };
    let steps: Vec<StepReport> = timings.steps().iter().filter_map(StepReport::of).collect();
    let state = Arc::new(state);
    let mut users = JoinSet::new();
    users.spawn(serve(state.clone(), first, steps));
    let mut closed = proxy.closed();
    drop(proxy);
    let mut over = std::pin::pin!(sleep(expiry));
    let mut idle = std::pin::pin!(sleep(persist));
    loop {
        if socket.is_none() && users.is_empty() {
            return Ok(());
        }
        tokio::select! {
            Some(user) = arrival(&socket) => {
                users.spawn(serve(state.clone(), user, Vec::new()));
            }
            Some(_) = users.join_next() => idle.as_mut().reset(Instant::now() + persist),
            () = idle.as_mut(), if users.is_empty() => return Ok(()),
            // Nobody gets in with it any more; who is in stays for as long as the node lets him.
            () = over.as_mut(), if socket.is_some() => socket = None,
            Some(()) = retired.recv(), if socket.is_some() => socket = None,
            _ = closed.wait() => break,
        }
    }
    drop(socket);
    let rest = async { while users.join_next().await.is_some() {} };
    let _ = timeout(LAST_WORDS, rest).await;
    Ok(())
}

/// The connection, and for how long its certificate holds.
async fn connect(
    home: &Home,
    address: &str,
    timings: &mut Timings,
) -> Result<(SharedState, mpsc::Receiver<()>, Proxy, Duration), ClientError> {
    let key = protocol::key(home, address)?;
    let (believe, credentials) = (connect::believe(home)?, connect::credentials(home)?);
    let expiry = credentials.certificate().validity().end;
    let proxy = Proxy::connect(address, &believe, &credentials, None, timings).await?;
    let (retire, retired) = mpsc::channel(1);
    let state = SharedState {
        key,
        proxy: proxy.clone(),
        routes: Arc::new(Routes::new().with(service::service(proxy.clone()))),
        retire,
    };
    let left = Duration::from_secs(expiry.saturating_sub(time::now()));
    Ok((state, retired, proxy, left))
}

/// One user, from his question to his end.
async fn serve(state: Arc<SharedState>, mut stream: UnixStream, steps: Vec<StepReport>) {
    let Ok(Ok(asked)) = timeout(DEADLINE, protocol::hear(&mut stream)).await else {
        return;
    };
    let reply = match MasterRequest::parse(&asked) {
        // After a proxy's restart a connection takes nobody new: the next user has one made, to the new process.
        Some(MasterRequest::Use(key)) if key == state.key && state.proxy.takes_requests() => {
            MasterReply::Lent { steps }
        }
        Some(_) => {
            // It is full where somebody said so before.
            let _ = state.retire.try_send(());
            MasterReply::Other
        }
        None => return,
    };
    let lent = matches!(reply, MasterReply::Lent { .. });
    if protocol::answer(&mut stream, &reply).await.is_err() || !lent {
        return;
    }
    let caller = Caller {
        peer: None,
        address: None,
    };
    // Whatever ends it, it was the command's end.
    let _ = h2::serve(stream, caller, state.routes.clone(), Tuning::HERE, pending()).await;
}

/// There is no connection: the first user hears why, and those who came behind him.
async fn refuse(mut first: UnixStream, socket: Option<MasterSocket>, error: ClientError) -> io::Result<()> {
    let why = match error {
        ClientError::Unreachable(_, why) => why,
        error => error.to_string(),
    };
    let reply = MasterReply::failed(&why);
    let tell = async |stream: &mut UnixStream| {
        protocol::hear(stream).await?;
        protocol::answer(stream, &reply).await
    };
    let _ = timeout(DEADLINE, tell(&mut first)).await;
    let waiting = async {
        while let Some(mut user) = arrival(&socket).await {
            let _ = tell(&mut user).await;
        }
    };
    // Those are in the queue already.
    let _ = timeout(Duration::from_millis(1), waiting).await;
    Err(io::Error::other("no connection"))
}

/// The next user; nobody ever, where there is no socket to come to.
async fn arrival(socket: &Option<MasterSocket>) -> Option<UnixStream> {
    let Some(socket) = socket else {
        return pending().await;
    };
    loop {
        match socket.listener.accept().await {
            Ok((stream, _)) if stream.peer_cred().is_ok_and(|peer| peer.uid() == effective_uid()) => {
                return Some(stream);
            }
            Ok(_) => {}
            // Out of descriptors, most likely, which is what bounds the users: whoever waits goes on waiting.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

impl MasterSocket {
    /// None where another holder has it, or the directory cannot be written.
    fn take(home: &Home) -> Option<MasterSocket> {
        let path = home.file(SOCKET);
        files::private_directory(path.parent()?).ok()?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.with_extension("lock"))
            .ok()?;
        lock.try_lock().ok()?;
        // What a holder that was killed left behind.
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return None,
            _ => {}
        }
        Some(MasterSocket {
            listener: UnixListener::bind(&path).ok()?,
            path,
            _lock: lock,
        })
    }
}

impl Drop for MasterSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
