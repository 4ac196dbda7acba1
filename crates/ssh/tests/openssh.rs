//! Both roles against the installed OpenSSH: a server of ours against `ssh`, a client of ours against `sshd -i`. From
//! the first byte to a command that gives back what it is given, while either side replaces the keys. Over sockets of
//! the loopback and socket pairs; nothing is left behind.
#![forbid(unsafe_code)]

use fleetgate_ssh::auth::Request as Login;
use fleetgate_ssh::cipher::{Cipher, Mac};
use fleetgate_ssh::event::{
    AuthAnswer, AuthReply, ChannelId, ChannelKind, Event, Reason, ReplyId, Request, Stream,
};
use fleetgate_ssh::kex::Method;
use fleetgate_ssh::key::{HostKey, KeyType, PrivateKey};
use fleetgate_ssh::settings::{FirstShare, HostKeyOffer, Rekey, Settings};
use fleetgate_ssh::{Connection, driver};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Goes one way and comes back.
const MUCH: usize = 700_000;
/// Keys are replaced after so much, by whoever is told to.
const OFTEN: u64 = 150_000;

/// Key exchange, cipher, MAC: what OpenSSH 9.2 has of ours.
const CASES: [(&str, &str, &str); 5] = [
    ("curve25519-sha256", "aes128-gcm@openssh.com", ""),
    ("curve25519-sha256@libssh.org", "aes256-gcm@openssh.com", ""),
    ("ecdh-sha2-nistp256", "chacha20-poly1305@openssh.com", ""),
    (
        "ecdh-sha2-nistp384",
        "aes128-ctr",
        "hmac-sha2-256-etm@openssh.com",
    ),
    ("curve25519-sha256", "aes256-ctr", "hmac-sha2-512-etm@openssh.com"),
];

#[test]
fn ssh_runs_a_command_here() {
    for (i, (kex, cipher, mac)) in CASES.into_iter().enumerate() {
        // In turn the client and we replace the keys.
        let we = i % 2 == 0;
        let settings = Settings {
            rekey: often(we),
            ..Settings::default()
        };
        let (answer, code, log, connection) = ssh(settings, &[kex, cipher, mac], !we);
        let chosen = connection.info().algorithms.clone().unwrap();
        assert_eq!(chosen.kex, Method::named(kex).unwrap(), "{log}");
        assert_eq!(chosen.cipher_in, Cipher::named(cipher).unwrap(), "{log}");
        assert_eq!(chosen.cipher_out, Cipher::named(cipher).unwrap(), "{log}");
        assert_eq!(chosen.mac_in, Mac::named(mac), "{log}");
        assert!(chosen.strict, "{log}");
        assert!(
            log.contains("SSH2_MSG_EXT_INFO received"),
            "{kex} {cipher} {mac}: {log}"
        );
        assert!(
            answer == bytes(),
            "{kex} {cipher}: {} bytes came back",
            answer.len()
        );
        assert_eq!(code, 7, "{log}");
        let exchanges = connection.info().exchanges;
        assert!(exchanges > 2, "{kex} {cipher}: {exchanges} exchanges\n{log}");
    }
}

#[test]
fn our_client_runs_a_command_at_sshd() {
    for (i, (kex, cipher, mac)) in CASES.into_iter().enumerate() {
        for guess in ["none", "right", "wrong", "known"] {
            let we = i % 2 == 0;
            let other = Method::ALL.into_iter().rfind(|m| m.name() != kex).unwrap().name();
            let settings = Settings {
                kex: vec![Method::named(kex).unwrap()],
                host_key_algorithms: vec!["ssh-ed25519".into()],
                ciphers: vec![Cipher::named(cipher).unwrap()],
                macs: Mac::named(mac).into_iter().collect(),
                first_share: match guess {
                    "none" => FirstShare::Waits,
                    "known" => Method::named(kex).map_or(FirstShare::Waits, FirstShare::Known),
                    _ => FirstShare::Guessed,
                },
                rekey: often(we),
                ..Settings::default()
            };
            let theirs = if matches!(guess, "wrong" | "known") {
                format!("{other},{kex}")
            } else {
                kex.into()
            };
            let (answer, code, connection) = sshd(settings, &theirs, !we);
            let what = format!("{kex} {cipher} {mac} {guess}");
            assert!(answer == bytes(), "{what}: {} bytes came back", answer.len());
            assert_eq!(code, Some(7), "{what}");
            let exchanges = connection.info().exchanges;
            assert!(exchanges > 2, "{what}: {exchanges} exchanges");
            let said = &connection.info().extensions;
            assert!(
                said.server_sig_algs.is_some() && said.hostbound,
                "{what}: {said:?}"
            );
        }
    }
}

fn often(we: bool) -> Rekey {
    Rekey {
        bytes: if we { OFTEN } else { 1 << 40 },
        ..Rekey::default()
    }
}

fn bytes() -> Vec<u8> {
    (0..MUCH).map(|i| (i * 31 + i / 977) as u8).collect()
}

/// What the server has yet to do on its one channel.
#[derive(Default)]
struct Echo {
    channel: Option<ChannelId>,
    waiting: Vec<u8>,
    eof: bool,
    done: bool,
}

/// Runs `ssh` against a server that gives back what it is given and says 7. What came back, the code, its log.
fn ssh(mut settings: Settings, pinned: &[&str; 3], rekeys: bool) -> (Vec<u8>, i32, String, Connection) {
    let host = HostKey::generate(KeyType::Ed25519, "").unwrap().0;
    settings.host_keys = vec![HostKeyOffer {
        algorithm: "ssh-ed25519".into(),
        blob: host.public().blob().to_vec(),
    }];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut ssh = Command::new("ssh");
    ssh.args(["-v", "-F", "none", "-p", &port.to_string()]);
    let mut options = vec![
        "BatchMode=yes".into(),
        "StrictHostKeyChecking=no".into(),
        "UserKnownHostsFile=/dev/null".into(),
        "ConnectTimeout=20".into(),
        format!("KexAlgorithms={}", pinned[0]),
        format!("Ciphers={}", pinned[1]),
    ];
    if !pinned[2].is_empty() {
        options.push(format!("MACs={}", pinned[2]));
    }
    if rekeys {
        options.push(format!("RekeyLimit={OFTEN}"));
    }
    for option in &options {
        ssh.args(["-o", option]);
    }
    let mut ssh = ssh
        .args(["nobody@127.0.0.1", "echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ssh is installed");
    let (mut input, mut output, mut errors) = (
        ssh.stdin.take().unwrap(),
        ssh.stdout.take().unwrap(),
        ssh.stderr.take().unwrap(),
    );
    let writer = thread::spawn(move || input.write_all(&bytes()));
    let reader = thread::spawn(move || {
        let mut answer = Vec::new();
        output.read_to_end(&mut answer).map(|_| answer)
    });
    let log = thread::spawn(move || {
        let mut log = String::new();
        errors.read_to_string(&mut log).map(|_| log)
    });
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut connection = Connection::server(Arc::new(settings), [1; 16]);
    let mut echo = Echo::default();
    loop {
        while serve(&mut connection, &host, &mut echo) {}
        driver::write(&mut connection, |b| socket.write(b)).unwrap();
        match driver::read(&mut connection, 1, |b| socket.read(b)) {
            Ok(Some(n)) if n > 0 => {}
            _ => break,
        }
    }
    drop(socket);
    let code = ssh.wait().unwrap().code().unwrap_or(-1);
    writer.join().unwrap().unwrap();
    let (answer, log) = (reader.join().unwrap().unwrap(), log.join().unwrap().unwrap());
    (answer, code, log, connection)
}

/// Deals with one event of the server's, or writes what can be written. False: nothing.
fn serve(connection: &mut Connection, host: &HostKey, echo: &mut Echo) -> bool {
    enum Do {
        Nothing,
        Sign(Vec<u8>),
        Cookie,
        Login,
        Accept(ChannelId),
        Begin(ReplyId),
        Consumed(ChannelId, usize),
    }
    let next = match connection.poll() {
        Err(_) => return false,
        Ok(None) => {
            let Some(channel) = echo.channel else { return false };
            let n = connection.write(channel, Stream::Main, &echo.waiting);
            echo.waiting.drain(..n);
            if echo.waiting.is_empty() && echo.eof && !echo.done {
                echo.done = true;
                connection.request(channel, &Request::ExitStatus { code: 7 }, false);
                connection.close(channel);
            }
            return false;
        }
        Ok(Some(event)) => match event {
            Event::SignExchange(exchange) => Do::Sign(exchange.hash().unwrap().as_ref().to_vec()),
            Event::CookieWanted => Do::Cookie,
            Event::Auth(_) => Do::Login,
            Event::Open { channel, .. } => Do::Accept(channel),
            Event::Request {
                request: Request::Exec { command },
                reply: Some(reply),
                ..
            } => {
                assert_eq!(command, b"echo");
                Do::Begin(reply)
            }
            Event::Data { channel, bytes, .. } => {
                echo.waiting.extend_from_slice(bytes);
                Do::Consumed(channel, bytes.len())
            }
            Event::Eof(_) => {
                echo.eof = true;
                Do::Nothing
            }
            _ => Do::Nothing,
        },
    };
    match next {
        Do::Nothing => {}
        Do::Sign(hash) => connection.signed(&host.sign("ssh-ed25519", &hash).unwrap(), [2; 16]),
        Do::Cookie => connection.cookie([3; 16]),
        Do::Login => connection.answer_auth(AuthAnswer::Accept),
        Do::Accept(channel) => {
            connection.accept(channel);
            echo.channel = Some(channel);
        }
        Do::Begin(reply) => connection.answer(reply, true),
        Do::Consumed(channel, n) => connection.consumed(channel, n),
    }
    true
}

/// Runs our client against `sshd -i` with a command that gives back what it is given and says 7.
fn sshd(settings: Settings, kex: &str, rekeys: bool) -> (Vec<u8>, Option<u32>, Connection) {
    let dir = Dir::new();
    let (user_key, _) = PrivateKey::generate(KeyType::Ed25519, "").unwrap();
    let (_, host_file) = HostKey::generate(KeyType::Ed25519, "").unwrap();
    dir.write("host", host_file.as_bytes());
    dir.write("keys", user_key.public().line().as_bytes());
    let names = |names: Vec<&str>| names.join(",");
    let mut options = vec![
        format!("HostKey={}", dir.0.join("host").display()),
        format!("AuthorizedKeysFile={}", dir.0.join("keys").display()),
        "StrictModes=no".into(),
        "PidFile=none".into(),
        "UsePAM=no".into(),
        "PermitRootLogin=yes".into(),
        format!("KexAlgorithms={}", kex.replace("mlkem768x25519-sha256,", "")),
        format!(
            "Ciphers={}",
            names(settings.ciphers.iter().map(|c| c.name()).collect())
        ),
    ];
    if !settings.macs.is_empty() {
        let macs = names(settings.macs.iter().map(|m| m.name()).collect());
        options.push(format!("MACs={macs}"));
    }
    if rekeys {
        options.push(format!("RekeyLimit={OFTEN}"));
    }
    // As root, sshd wants an empty directory under /run: one that only it sees.
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = if root {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c"]);
        command.arg("mount -t tmpfs none /run && mkdir /run/sshd && exec \"$0\" \"$@\"");
        command.arg("/usr/sbin/sshd");
        command
    } else {
        Command::new("/usr/sbin/sshd")
    };
    command.args(["-i", "-e", "-f", "/dev/null"]);
    for option in &options {
        command.args(["-o", option]);
    }
    let (mut socket, theirs) = UnixStream::pair().unwrap();
    let mut sshd = command
        .stdin(Stdio::from(OwnedFd::from(theirs.try_clone().unwrap())))
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .stderr(Stdio::from(fs::File::create(dir.0.join("log")).unwrap()))
        .spawn()
        .expect("sshd is installed");
    drop(command);
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();

    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let mut connection = Connection::client(Arc::new(settings));
    let mut command = Cat {
        user: user.trim().into(),
        key: user_key,
        channel: None,
        left: bytes(),
        got: Vec::new(),
        code: None,
        closed: false,
    };
    let end = loop {
        let mut end = None;
        while command.goes_on(&mut connection, &mut end) {}
        // What can be written is written before more is read; both are small enough not to block each other for ever.
        driver::write(&mut connection, |b| socket.write(b)).unwrap();
        if command.closed || end.is_some() {
            break end;
        }
        match driver::read(&mut connection, 1, |b| socket.read(b)) {
            Ok(Some(n)) if n > 0 => {}
            other => break Some(format!("{other:?}")),
        }
    };
    connection.disconnect(Reason::ByApplication, "done");
    let _ = driver::write(&mut connection, |b| socket.write(b));
    drop(socket);
    sshd.wait().unwrap();
    let log = fs::read_to_string(dir.0.join("log")).unwrap();
    assert_eq!(end, None, "{log}");
    (command.got, command.code, connection)
}

/// A command at the server.
struct Cat {
    user: String,
    key: PrivateKey,
    channel: Option<ChannelId>,
    left: Vec<u8>,
    got: Vec<u8>,
    code: Option<u32>,
    closed: bool,
}

impl Cat {
    /// Deals with one event, or writes what can be written. False: nothing.
    fn goes_on(&mut self, connection: &mut Connection, end: &mut Option<String>) -> bool {
        let (mut trust, mut login, mut open, mut consumed) = (false, false, false, None);
        match connection.poll() {
            Err(e) => {
                *end = Some(e.to_string());
                return false;
            }
            Ok(None) => {
                if let Some(channel) = self.channel
                    && !self.left.is_empty()
                {
                    let n =
                        connection.write(channel, Stream::Main, &self.left[..self.left.len().min(60_000)]);
                    self.left.drain(..n);
                    if self.left.is_empty() {
                        connection.eof(channel);
                    }
                }
                return false;
            }
            Ok(Some(event)) => match event {
                Event::HostKey(_) => trust = true,
                Event::Established => login = true,
                Event::AuthReply(AuthReply::Accepted) => open = true,
                Event::AuthReply(other) => *end = Some(format!("{other:?}")),
                Event::Opened(channel) => {
                    let command = b"cat; exit 7".to_vec();
                    connection.request(channel, &Request::Exec { command }, true);
                    self.channel = Some(channel);
                }
                Event::Data { channel, bytes, .. } => {
                    self.got.extend_from_slice(bytes);
                    consumed = Some((channel, bytes.len()));
                }
                Event::Request {
                    request: Request::ExitStatus { code },
                    ..
                } => self.code = Some(code),
                Event::Closed(_) => self.closed = true,
                _ => {}
            },
        }
        if trust {
            connection.trust_host(true);
        }
        if login {
            let (user, blob) = (self.user.as_bytes(), self.key.public().blob());
            let id = connection.session_id().unwrap();
            let request = Login::unsigned(id, user, "ssh-ed25519", blob, None);
            let signature = self.key.sign("ssh-ed25519", request.to_sign()).unwrap();
            connection.authenticate(&request.signed(&signature));
        }
        if open {
            connection.open(&ChannelKind::Session);
        }
        if let Some((channel, n)) = consumed {
            connection.consumed(channel, n);
        }
        true
    }
}

/// A directory that goes when it is dropped.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sshd-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
