//! The object store: a real server (moto, which `cargo xtask test` fetches), and one between that puts faults in.

use super::{Machine, Place, part, run, send, take};
use crate::settings::{Form, read};
use crate::{Archive, Key, Retention, Settings};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

const BUCKET: &str = "recordings";
/// What the one between does with a request.
const PASS: u8 = 0;
const CLOSE: u8 = 1;
const FAIL: u8 = 2;
const CUT: u8 = 3;

/// The server, until it is dropped.
struct Moto(Child, SocketAddr);

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it; nothing where it was not fetched, which fails where nothing may be skipped.
fn moto() -> Option<Moto> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| [env!("CARGO_MANIFEST_DIR"), "../../target"].iter().collect());
    let program = target.join("peers/python/bin/moto_server");
    if !program.exists() {
        eprintln!("skipped: {} was not fetched", program.display());
        assert!(
            std::env::var_os("CI").is_none_or(|v| v != "true"),
            "CI must not skip"
        );
        return None;
    }
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let child = Command::new(program)
        .args(["-H", "127.0.0.1", "-p", &at.port().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let moto = Moto(child, at);
    while TcpStream::connect(at).is_err() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(ask(at, "PUT", &format!("/{BUCKET}")), 200);
    Some(moto)
}

/// The status of a request without a body.
fn ask(at: SocketAddr, method: &str, path: &str) -> u16 {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Passes connections on, or spoils them. Each carries one request: the answer is made to say so.
fn between(to: SocketAddr, mode: Arc<AtomicU8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mode = mode.load(Ordering::Relaxed);
            std::thread::spawn(move || spoil(stream, to, mode));
        }
    });
    at
}

fn spoil(mut client: TcpStream, to: SocketAddr, mode: u8) {
    let mut head = [0; 64 << 10];
    match mode {
        CLOSE => {}
        FAIL => {
            let _ = client.read(&mut head);
            let _ = client.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        _ => {
            let Ok(mut server) = TcpStream::connect(to) else {
                return;
            };
            let (mut up, mut down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let mut sent = 0;
                while let Ok(got @ 1..) = up.read(&mut head) {
                    sent += got;
                    // In the middle of a part of many blocks.
                    if mode == CUT && sent > 200_000 || down.write_all(&head[..got]).is_err() {
                        break;
                    }
                }
                let _ = down.shutdown(std::net::Shutdown::Both);
                let _ = up.shutdown(std::net::Shutdown::Both);
            });
            let _ = std::io::copy(&mut server, &mut client);
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn open(place: &mut Place, endpoint: SocketAddr) {
    let keys = std::env::temp_dir().join(format!("fleetgate-moto-keys-{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new();
    file.write(true).create(true).mode(0o600);
    let text = b"aws_access_key_id = a\naws_secret_access_key = b\n";
    file.open(&keys).unwrap().write_all(text).unwrap();
    let text = format!(
        "store = \"s3://{BUCKET}/of/home\"\nendpoint = \"http://{endpoint}\"\ncredentials = {:?}\n",
        keys.display().to_string()
    );
    let form: Form = toml::from_str(&text).unwrap();
    let now = place.now.clone();
    let archive = Archive::open(Settings {
        directory: place.directory.clone(),
        retention: Retention::default(),
        store: read(&text, &form).unwrap().store,
        now: Arc::new(move || now.load(Ordering::Relaxed)),
    });
    place.archive = archive.unwrap();
    std::fs::remove_file(&keys).unwrap();
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: it does not come");
}

#[test]
fn whole_recordings_go_to_the_store_whatever_happens_to_it() {
    let Some(moto) = moto() else { return };
    run(async {
        let mode = Arc::new(AtomicU8::new(PASS));
        let endpoint = between(moto.1, mode.clone());
        let (mut place, machine) = (Place::new(), Machine::new("web1"));
        open(&mut place, endpoint);
        let (maker, archive) = (machine.maker(), place.archive.clone());
        let moving = archive.clone();
        let moving = tokio::spawn(async move { moving.move_to_store().await });
        let small = machine.recording(1, 1);
        let mut tape = machine.tape(2);
        (0..150).for_each(|_| tape.noise());
        tape.end();
        let large = tape.bytes.clone();
        assert!(large.len() > 9 << 20, "{}", large.len());
        let mut running = machine.tape(3);
        running.sign();
        let intake = archive.intake();
        for (session, bytes) in [(1, &small), (2, &large), (3, &running.bytes)] {
            send(&intake, &maker, session, (bytes, 0), 250_000).await;
        }
        until("all are there", || archive.counts().spooled() == 0).await;
        until("files are gone", || {
            !place.file(1).exists() && !place.file(2).exists()
        })
        .await;
        assert!(place.file(3).exists(), "it is not whole");
        let object = |session: u8| {
            let id = crate::entry::name(&[session; 16]);
            // What is there may be forbidden to somebody without a key; what is not there is not found.
            ask(moto.1, "HEAD", &format!("/{BUCKET}/of/home/2026-11-30/{id}.rec")) != 404
        };
        assert_eq!([1, 2, 3].map(object), [true, true, false]);
        assert!(place.read(1).await.unwrap() == small && place.read(2).await.unwrap() == large);
        let entry = archive.find("02").await.unwrap();
        let mut reader = archive.read(&entry, 3_000_000).await.unwrap();
        assert_eq!(
            reader.next().await.unwrap().unwrap(),
            large[3_000_000..3_000_000 + (256 << 10)]
        );
        assert_eq!(
            take(&intake, &maker, part(2, 0, b"")).await.whole(),
            Some(large.len() as u64)
        );

        // The store is away, fails, and breaks off in the middle; recordings are taken in all the while.
        let mut session = 10;
        for fault in [CLOSE, FAIL, CUT] {
            mode.store(fault, Ordering::Relaxed);
            let failures = archive.counts().store_failures();
            let (first, second) = (machine.recording(session, 2), {
                let mut tape = machine.tape(session + 1);
                (0..10).for_each(|_| tape.noise());
                tape.end();
                tape.bytes.clone()
            });
            let kept = send(&intake, &maker, session, (&first, 0), 250_000).await;
            assert_eq!(kept.whole(), Some(first.len() as u64));
            send(&intake, &maker, session + 1, (&second, 0), 250_000).await;
            until("it fails", || archive.counts().store_failures() > failures).await;
            let counts = archive.counts();
            assert!(counts.spooled() >= 1 && counts.spooled_bytes() > 0 && counts.spooled_since() > 0);
            let why = crate::store_trouble(&place.directory).expect("doctor can say why");
            assert!(why.contains("the object store of recordings: "), "{why}");
            assert!(place.read(session).await.unwrap() == first || fault != CUT);
            mode.store(PASS, Ordering::Relaxed);
            until("all are there again", || archive.counts().spooled() == 0).await;
            assert_eq!(archive.counts().spooled_since(), 0);
            assert_eq!(crate::store_trouble(&place.directory), None);
            assert!(place.read(session).await.unwrap() == first);
            assert!(place.read(session + 1).await.unwrap() == second);
            session += 2;
        }

        // One that cannot go delays no other.
        moving.abort();
        let _ = moving.await;
        send(&intake, &maker, 20, (&machine.recording(20, 1), 0), 250_000).await;
        send(&intake, &maker, 21, (&machine.recording(21, 1), 0), 250_000).await;
        std::fs::write(place.file(20), b"cut").unwrap();
        let mover = archive.clone();
        let moving = tokio::spawn(async move { mover.move_to_store().await });
        until("the other is there", || archive.counts().spooled() == 1).await;
        assert_eq!([20, 21].map(object), [false, true]);

        // What is removed goes from there too, and what was there is found by the next process.
        archive.delete(&Key::of(&[1; 16], &maker.name)).await.unwrap();
        until("it is gone", || !object(1)).await;
        moving.abort();
        let _ = moving.await;
        drop((intake, archive));
        open(&mut place, endpoint);
        assert!(place.read(2).await.unwrap() == large);
        assert!(place.read(1).await.is_err());
    });
}
