//! Where the page of metrics is read: a unix socket that is its owner's alone, or a port of loopback behind a token, since every
//! local user can connect to a port. Nothing is served to other machines. It knows no check.

use super::results::Results;
use fleetgate_base::scrape::{MAX_REQUEST, Request, is_whole, unauthorized};
use fleetgate_client::error::ClientError;
use fleetgate_client::files;
use fleetgate_client::profile::Home;
use fleetgate_policy::Invalid;
use fleetgate_sys::{net, process};
use ring::digest::{SHA256, digest};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{AbortHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};

/// The usual socket, in the login's directory beside the master's.
const SOCKET: &str = "mux/checks";
/// Readers of one listener at a time. For another one the oldest gives way that has not shown yet that it may read; where all
/// have, it waits.
const MAX_READERS: usize = 32;
/// A reader has so long for its request, and so long for the whole page.
const REQUEST_TIME: Duration = Duration::from_secs(2);
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Nobody can write to a socket of this umask but its owner.
const PRIVATE: u32 = 0o177;
/// The shortest and the longest token.
const MIN_TOKEN: usize = 16;
const MAX_TOKEN: usize = 1024;

/// A place where the page is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket.
    Unix(PathBuf),
    /// A port of loopback.
    Loopback(SocketAddr),
}

impl Listen {
    /// `unix:PATH`, or `ADDRESS:PORT`.
    pub fn parse(text: &str) -> Result<Listen, Invalid> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Listen::Unix(path.into())),
                false => Err("an absolute path behind unix:, as unix:/run/fleetgate/checks".into()),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().to_canonical().is_loopback() => Ok(Listen::Loopback(address)),
            Ok(address) => Err(Invalid::from(format!(
                "an address of loopback, as 127.0.0.1:{}: the page is not encrypted, and other machines are not to read it",
                address.port()
            ))),
            Err(_) => Err("unix:PATH or an address of loopback with its port, as 127.0.0.1:9109".into()),
        }
    }

    /// The usual one.
    #[must_use]
    pub fn usual(home: &Home) -> Listen {
        Listen::Unix(home.file(SOCKET))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
            Listen::Loopback(address) => write!(f, "{address}"),
        }
    }
}

/// What a reader of a port has to show.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// From a file that nobody else may read.
    pub fn read(path: &Path) -> Result<Token, ClientError> {
        let bytes = files::read_secret(path)?;
        let token = bytes.trim_ascii();
        let is_token =
            (MIN_TOKEN..=MAX_TOKEN).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
        match is_token {
            true => Ok(Token::of(token)),
            false => Err(ClientError::Broken(
                path.to_owned(),
                format!(
                    "is no token: it has one line of {MIN_TOKEN} to {MAX_TOKEN} visible characters, as `openssl rand -hex 32` prints"
                ),
            )),
        }
    }

    fn of(token: &[u8]) -> Token {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token).as_ref());
        Token(hash)
    }

    /// Whether it is this one. The time tells nothing of where two tokens differ, nor of their lengths: their hashes are
    /// compared, and all of them.
    fn is(&self, shown: &[u8]) -> bool {
        let other = Token::of(shown);
        let differences = self.0.iter().zip(other.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(differences) == 0
    }
}

/// A listening socket.
pub(super) enum Listener {
    Unix(OwnSocket),
    Loopback(TcpListener, Token),
}

/// Who is served.
struct Reader {
    task: AbortHandle,
    may_read: Rc<Cell<bool>>,
}

/// A unix socket, removed with its owner.
pub(super) struct OwnSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Held as long as the socket is ours.
    _lock: File,
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Listener {
    /// Listens there. To be called within a runtime.
    pub(super) async fn bind(
        listen: &Listen,
        home: &Home,
        token: Option<&Token>,
    ) -> Result<Listener, ClientError> {
        match (listen, token) {
            (Listen::Unix(path), _) => {
                if *path == home.file(SOCKET) {
                    files::private_directory(path.parent().unwrap_or(home.path()))?;
                }
                OwnSocket::bind(path).map(Listener::Unix)
            }
            (Listen::Loopback(address), Some(token)) => match TcpListener::bind(address).await {
                Ok(listener) => Ok(Listener::Loopback(listener, token.clone())),
                Err(e) => Err(ClientError::Refused(format!("listening on {address}: {e}"))),
            },
            (Listen::Loopback(_), None) => Err(ClientError::Usage(
                "a port of loopback is open to every local user: give --token-file FILE, or listen on unix:PATH".to_owned(),
            )),
        }
    }

    /// Serves the page for ever.
    pub(super) async fn serve(self, results: Rc<RefCell<Results>>) {
        let mut tasks = JoinSet::new();
        let mut readers: VecDeque<Reader> = VecDeque::new();
        loop {
            // A new one has its turn before others are let in, so that a request which is there already is read.
            yield_now().await;
            while tasks.try_join_next().is_some() {}
            readers.retain(|reader| !reader.task.is_finished());
            if readers.len() >= MAX_READERS {
                match readers.iter().position(|reader| !reader.may_read.get()) {
                    Some(oldest) => readers
                        .remove(oldest)
                        .into_iter()
                        .for_each(|reader| reader.task.abort()),
                    None => drop(tasks.join_next().await),
                }
                continue;
            }
            let results = results.clone();
            let may_read = Rc::new(Cell::new(false));
            let mut let_in = |task: AbortHandle| {
                let may_read = may_read.clone();
                readers.push_back(Reader { task, may_read });
            };
            let accepted = match &self {
                Listener::Unix(socket) => socket.listener.accept().await.map(|(stream, _)| {
                    let peer = stream.peer_cred().map(|peer| peer.uid());
                    // The socket's mode says the same.
                    if peer.is_ok_and(|user| user == 0 || user == process::effective_uid()) {
                        let_in(tasks.spawn_local(answer(stream, None, results, may_read.clone())));
                    }
                }),
                Listener::Loopback(listener, token) => listener.accept().await.map(|(stream, _)| {
                    let token = Some(token.clone());
                    let_in(tasks.spawn_local(answer(stream, token, results, may_read.clone())));
                }),
            };
            if accepted.is_err() {
                // Out of descriptors, most likely.
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

impl OwnSocket {
    fn bind(path: &Path) -> Result<OwnSocket, ClientError> {
        let wrong = |e| ClientError::File(path.to_owned(), e);
        let broken = |why: String| Err(ClientError::Broken(path.to_owned(), why));
        let directory = path.parent().unwrap_or(Path::new("/"));
        let meta = std::fs::metadata(directory).map_err(ClientError::file(directory))?;
        let is_ours = [0, process::effective_uid()].contains(&meta.uid());
        if meta.mode() & 0o022 != 0 || !is_ours {
            return broken(format!(
                "others could put a socket of theirs in its place, since they may write in {}: use a directory of your own, as \
                 systemd's RuntimeDirectory= makes one",
                directory.display()
            ));
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let name = Path::new(&name);
        let lock = files::open_lock(name).map_err(ClientError::file(name))?;
        if lock.try_lock().is_err() {
            return broken(
                "another `fleetgate check serve` listens there: end it, or give --listen unix:PATH"
                    .to_owned(),
            );
        }
        match std::fs::symlink_metadata(path) {
            Ok(meta) if !meta.file_type().is_socket() => {
                return broken(
                    "something that is no socket is there: remove it, or use another path".to_owned(),
                );
            }
            // One that ended without removing it left it behind.
            Ok(_) => std::fs::remove_file(path).map_err(wrong)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(wrong(e)),
        }
        // It is private from its first moment on. No other thread makes a file meanwhile.
        let before = net::umask(PRIVATE);
        let bound = UnixListener::bind(path);
        net::umask(before);
        Ok(OwnSocket {
            listener: bound.map_err(wrong)?,
            path: path.to_owned(),
            _lock: lock,
        })
    }
}

/// One request, one answer. A reader that goes away or stalls is not worth a word.
async fn answer(
    mut reader: impl AsyncRead + AsyncWrite + Unpin,
    token: Option<Token>,
    results: Rc<RefCell<Results>>,
    may_read: Rc<Cell<bool>>,
) {
    let Ok(Some(request)) = timeout(REQUEST_TIME, receive(&mut reader)).await else {
        return;
    };
    let request = Request::parse(&request);
    let may = token.is_none_or(|token| request.token.is_some_and(|shown| token.is(shown)));
    may_read.set(may);
    let answer = match may {
        true => request.answer(|| results.borrow_mut().page().to_string()),
        false => unauthorized(),
    };
    let _ = timeout(ANSWER_TIME, async {
        reader.write_all(answer.as_bytes()).await?;
        reader.shutdown().await
    })
    .await;
}

/// The request; none where it is too long, or its reader went away.
async fn receive(reader: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut room = [0; 1024];
    while !is_whole(&request) {
        let got = reader.read(&mut room).await.ok()?;
        if got == 0 || request.len() + got > MAX_REQUEST {
            return None;
        }
        request.extend_from_slice(&room[..got]);
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tokio::net::{TcpStream, UnixStream};
    use tokio::task::LocalSet;

    const TOKEN: &[u8] = b"0123456789abcdef0123";

    #[test]
    fn only_sockets_and_loopback_are_listened_on() {
        assert_eq!(Listen::parse("unix:/run/x"), Ok(Listen::Unix("/run/x".into())));
        for text in ["127.0.0.1:9109", "[::1]:9109", "127.1.2.3:1"] {
            assert!(matches!(Listen::parse(text), Ok(Listen::Loopback(_))), "{text}");
        }
        for (text, why) in [
            ("0.0.0.0:9109", "127.0.0.1:9109"),
            ("[::]:9109", "loopback"),
            ("192.0.2.1:9109", "other machines"),
            ("unix:run/x", "absolute"),
            ("9109", "with its port"),
            ("localhost:9109", "with its port"),
        ] {
            let error = Listen::parse(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    fn place(name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(format!("fleetgate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("made");
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o700)).expect("closed");
        place
    }

    #[test]
    fn a_token_is_a_secret_of_one_line() {
        let path = place("token").join("token");
        let read = |bytes: &[u8], mode| {
            files::write(&path, 0o600, bytes).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
            Token::read(&path).map_err(|e| e.to_string())
        };
        let token = read(&[TOKEN, b"\n"].concat(), 0o600).expect("a token");
        assert!(
            token.is(TOKEN) && !token.is(b"") && !token.is(&TOKEN[1..]) && !token.is(b"0123456789abcdef0124")
        );
        for (bytes, mode, why) in [
            (TOKEN, 0o640, "chmod 0600"),
            (TOKEN, 0o604, "chmod 0600"),
            (b"short", 0o600, "is no token"),
            (b"0123456789abcdef\n0123456789abcdef", 0o600, "is no token"),
            (b"", 0o600, "is no token"),
        ] {
            let error = read(bytes, mode).err().expect("refused");
            assert!(error.contains(why), "{error}");
        }
        std::fs::remove_dir_all(place("token")).expect("removed");
    }

    /// What a reader of this stream is answered.
    async fn asked(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> String {
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn a_port_wants_its_token_and_requests_are_bounded() {
        let home = Home::find(Some("/nonexistent")).expect("a path");
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        assert!(matches!(
            Listener::bind(&Listen::Loopback(any), &home, None).await,
            Err(ClientError::Usage(_))
        ));
        let token = Token::of(TOKEN);
        let listener = Listener::bind(&Listen::Loopback(any), &home, Some(&token)).await;
        let Ok(Listener::Loopback(listener, token)) = listener else {
            panic!("bound");
        };
        let address = listener.local_addr().expect("bound");
        let long = "x".repeat(MAX_REQUEST);
        let work = LocalSet::new();
        work.spawn_local(Listener::Loopback(listener, token).serve(Rc::default()));
        work.run_until(async {
            for (request, status) in [
                ("GET /metrics HTTP/1.1\r\n\r\n".to_owned(), "HTTP/1.1 401 "),
                (
                    "GET /metrics HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdef0124\r\n\r\n".to_owned(),
                    "HTTP/1.1 401 ",
                ),
                ("GET / HTTP/1.1\r\n\r\n".to_owned(), "HTTP/1.1 401 "),
                (
                    "GET /metrics HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdef0123\r\n\r\n".to_owned(),
                    "HTTP/1.1 200 ",
                ),
                (
                    "GET / HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdef0123\r\n\r\n".to_owned(),
                    "HTTP/1.1 404 ",
                ),
                (format!("GET /metrics HTTP/1.1\r\nX: {long}\r\n\r\n"), ""),
            ] {
                let stream = TcpStream::connect(address).await.expect("connected");
                let answer = asked(stream, request.as_bytes()).await;
                assert!(answer.starts_with(status), "{request:.80}: {answer}");
                assert_eq!(
                    answer.contains("fleetgate_check_targets"),
                    status.contains("200"),
                    "{answer}"
                );
                assert_eq!(answer.is_empty(), status.is_empty(), "{answer}");
            }
            // Readers that say nothing hold up nobody.
            let mut silent = Vec::new();
            for _ in 0..4 * MAX_READERS {
                silent.push(TcpStream::connect(address).await.expect("connected"));
            }
            let request = b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdef0123\r\n\r\n";
            let stream = TcpStream::connect(address).await.expect("connected");
            let answer = timeout(REQUEST_TIME / 2, asked(stream, request)).await;
            assert!(answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 ")));
        })
        .await;
    }

    #[tokio::test]
    async fn a_socket_is_its_owners_alone_and_one_process_has_it() {
        let place = place("listen");
        let home = Home::find(place.to_str()).expect("a path");
        let path = place.join("mux/checks");
        let usual = Listen::usual(&home);
        // What a process that was killed left behind.
        files::private_directory(&place.join("mux")).expect("made");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        let listener = Listener::bind(&usual, &home, None).await.expect("bound");
        let meta = std::fs::metadata(&path).expect("there");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        let second = Listener::bind(&usual, &home, None)
            .await
            .err()
            .expect("it is taken");
        assert!(
            second.to_string().contains("another `fleetgate check serve`"),
            "{second}"
        );
        let work = LocalSet::new();
        let serving = work.spawn_local(listener.serve(Rc::default()));
        work.run_until(async {
            let stream = UnixStream::connect(&path).await.expect("connected");
            let answer = asked(stream, b"GET /metrics HTTP/1.0\r\n\r\n").await;
            assert!(answer.contains("fleetgate_check_targets 0\n"), "{answer}");
            serving.abort();
            let _ = serving.await;
        })
        .await;
        assert!(!path.exists(), "it is removed with its owner");
        let open = place.join("open");
        std::fs::create_dir_all(&open).expect("made");
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).expect("opened");
        for (path, why) in [
            (open.join("x"), "use a directory of your own"),
            (place.join("mux/file"), "no socket"),
        ] {
            std::fs::write(place.join("mux/file"), "").expect("written");
            let error = Listener::bind(&Listen::Unix(path), &home, None)
                .await
                .err()
                .expect("refused");
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(place.join("mux/file").exists());
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
