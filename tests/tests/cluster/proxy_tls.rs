//! The proxy's one address as scanners, browsers and strangers see it: sslscan and openssl find TLS 1.3 and nothing that
//! they warn of, curl gets the pages, gRPC without a certificate is told what to do, and whoever dawdles or sends garbage
//! loses his own connection and nobody else's.

use fleetgate_tests::cluster::{Cluster, PROXY};
use fleetgate_tests::{needs_root, skip};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

/// A hang is an error; everything here ends long before.
const PATIENCE: Duration = Duration::from_secs(60);
/// As many connections as one source may have before it has shown who it is (`mux::STRANGERS_OF_ONE`).
const STRANGERS_OF_ONE: usize = 256;

fn there(program: &str) -> bool {
    Command::new("which")
        .arg(program)
        .output()
        .is_ok_and(|out| out.status.success())
}

#[test]
fn scanners_find_tls_1_3_alone_and_warn_of_nothing() {
    needs_root!("a network of its own");
    if !there("sslscan") {
        return skip("sslscan is not installed");
    }
    let cluster = Cluster::new();
    let found = cluster.script(&format!("sslscan --no-colour {PROXY}"));
    for (line, wanted) in [
        ("SSLv2", "disabled"),
        ("SSLv3", "disabled"),
        ("TLSv1.0", "disabled"),
        ("TLSv1.1", "disabled"),
        ("TLSv1.2", "disabled"),
        ("TLSv1.3", "enabled"),
    ] {
        let told: Vec<&str> = found.lines().filter(|l| l.starts_with(line)).collect();
        assert!(told.iter().any(|l| l.contains(wanted)), "{line}: {found}");
    }
    let ciphers: Vec<&str> = found
        .lines()
        .filter(|l| l.starts_with("Preferred") || l.starts_with("Accepted"))
        .collect();
    assert!(!ciphers.is_empty(), "{found}");
    for cipher in ciphers {
        assert!(cipher.contains("TLSv1.3") && cipher.contains("TLS_"), "{cipher}");
    }
    // What it colours red or yellow it names so.
    for word in [
        "WARNING",
        "weak",
        "SHA1",
        "md5",
        "vulnerable to heartbleed",
        "compression enabled",
        "Self-signed",
    ] {
        let bad = found
            .lines()
            .find(|l| l.to_lowercase().contains(&word.to_lowercase()) && !l.contains("not vulnerable"));
        assert_eq!(bad, None, "{found}");
    }
}

#[test]
fn openssl_gets_in_by_tls_1_3_and_by_nothing_older() {
    needs_root!("a network of its own");
    let cluster = Cluster::new();
    let client = |more: &str| {
        cluster.attempt(&format!(
            "openssl s_client -connect {PROXY} -servername proxy.fleetgate {more} < /dev/null 2>&1"
        ))
    };
    let said = client("-alpn h2").expect("a handshake");
    for words in [
        "New, TLSv1.3, Cipher is TLS_",
        "ALPN protocol: h2",
        "Peer signature type: ECDSA",
        "Early data was not sent",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(
        !said.contains("New Session Ticket"),
        "no session is resumed: {said}"
    );
    for (old, words) in [
        ("-tls1_2", "alert protocol version"),
        ("-tls1_1 -cipher DEFAULT@SECLEVEL=0", "alert"),
    ] {
        let said = client(old).expect_err(old);
        assert!(said.contains(words), "{old}: {said}");
    }
    // A group that is not offered is not taken; one that is, is.
    client("-groups X25519").expect("a control");
    let said = client("-groups secp521r1").expect_err("a group that nobody offers");
    assert!(said.contains("handshake failure"), "{said}");
}

#[test]
fn browsers_get_pages_and_grpc_without_a_certificate_gets_the_remedy() {
    needs_root!("a network of its own");
    let cluster = Cluster::new();
    for (flags, path, status, words) in [
        ("--http1.1", "/", "200", "fleetgate: a gate to machines"),
        ("--http1.1", "/healthz", "200", "ok"),
        ("--http1.1", "/else", "404", "no such page"),
        ("--http1.1 -X POST -d x", "/", "405", "only GET"),
        ("--http2", "/", "200", "fleetgate: a gate to machines"),
        ("--http2", "/healthz", "200", "ok"),
    ] {
        let said = cluster.script(&format!(
            "curl -sk {flags} -w '%{{http_code}}' https://{PROXY}{path}"
        ));
        assert!(
            said.ends_with(status) && said.contains(words),
            "{flags} {path}: {said}"
        );
    }
    for method in ["Transport/Nodes", "Transport/Dial"] {
        // An empty message (gRPC's five bytes before it). The answer comes before the message was read, and a stream
        // whose rest nobody wants is reset (RFC 9113 §8.1): curl says 92 then, and where it hears of the reset first, nothing
        // of the answer.
        let said = cluster.script(&format!(
            "for n in {{1..50}}; do
                 said=$(printf '\\0\\0\\0\\0\\0' | curl -sk --http2 -i --data-binary @- -H 'te: trailers' \
                        -H 'content-type: application/grpc' https://{PROXY}/fleetgate.v1.{method}) || [ $? = 92 ]
                 [ -z \"$said\" ] || break
             done; echo \"$said\""
        ));
        let said = said.to_lowercase();
        assert!(said.contains("grpc-status: 16"), "Unauthenticated: {said}");
        assert!(
            said.contains("no%20certificate%20was%20shown") && said.contains("fleetgate%20login"),
            "{said}"
        );
    }
    // With one it is answered: the same method, by the user who has logged in.
    cluster.script(r#""$F" ls --home home"#);
}

#[test]
fn a_client_that_waits_for_the_servers_words_gets_them() {
    needs_root!("a network of its own");
    let cluster = Cluster::new();
    let keys = cluster.script("ssh-keyscan -p 3080 127.0.0.1 2> /dev/null");
    assert!(keys.contains("[127.0.0.1]:3080 ssh-ed25519 "), "{keys:?}");
}

/// A connection from this address of the world's.
fn healthy_from(cluster: &Cluster, source: &str) -> bool {
    let said = cluster.attempt(&format!("curl -sk --interface {source} https://{PROXY}/healthz"));
    said.is_ok_and(|page| page == "ok\n")
}

#[test]
fn whoever_dawdles_or_sends_garbage_loses_his_own_connection() {
    needs_root!("a network of its own");
    let cluster = Cluster::new();
    let connect = || {
        let stream = TcpStream::connect(PROXY).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    };
    for garbage in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        b"\0\0\0\0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\xff\xff\x01\xff\xff\xff",
        b"\x16\x03\x01\0\x04\x02\0\0\0",
        b"SSH-9.9-?\r\n",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut stream = connect();
        stream.write_all(garbage).expect("sent");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        // An alert, a version, nothing: and then the end.
        let ended = stream.read_to_end(&mut answer);
        assert!(
            !ended.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock),
            "{garbage:?} is held on to"
        );
        assert!(healthy_from(&cluster, "127.0.0.1"), "after {garbage:?}");
    }

    // As many as one source may have, each in the middle of a record.
    let mut slow: Vec<TcpStream> = (0..STRANGERS_OF_ONE).map(|_| connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"\x16\x03\x01\x02\x00\x01").expect("sent");
    }
    assert!(!healthy_from(&cluster, "127.0.0.1"), "one more of this source");
    assert!(healthy_from(&cluster, "127.0.0.2"), "another source");
    // They are given up by themselves, and the source has its places again.
    for mut stream in slow {
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        assert!(
            !ended.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock),
            "held on to"
        );
    }
    assert!(healthy_from(&cluster, "127.0.0.1"), "when they are gone");
    cluster.script(r#""$F" ls --home home"#);
}
