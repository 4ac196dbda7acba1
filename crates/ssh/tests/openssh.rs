//! A server of ours against the installed OpenSSH client, over TCP on loopback. Only the handshake: what comes after it
//! is tested with the node.

#![forbid(unsafe_code)]

use fleetgate_ssh::cipher::{Cipher, Mac};
use fleetgate_ssh::codec::Write as _;
use fleetgate_ssh::event::{End, Event};
use fleetgate_ssh::kex::Method;
use fleetgate_ssh::settings::{HostKeyOffer, Settings};
use fleetgate_ssh::{Connection, facts::Chosen};
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// What a case pins the client to.
struct Case {
    kex: &'static str,
    cipher: &'static str,
    mac: &'static str,
}

#[test]
fn ssh_comes_to_a_login() {
    let cases = [
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
    for (kex, cipher, mac) in cases {
        let case = Case { kex, cipher, mac };
        let (chosen, log) = handshake(&case);
        assert_eq!(chosen.kex, Method::named(kex).unwrap(), "{log}");
        assert_eq!(chosen.cipher_in, Cipher::named(cipher).unwrap(), "{log}");
        assert_eq!(chosen.cipher_out, Cipher::named(cipher).unwrap(), "{log}");
        assert_eq!(chosen.mac_in, Mac::named(mac), "{log}");
        assert!(chosen.strict, "{log}");
        for line in ["SSH2_MSG_NEWKEYS received", "SSH2_MSG_EXT_INFO received"] {
            assert!(log.contains(line), "{kex} {cipher} {mac}: no {line:?} in\n{log}");
        }
    }
}

/// Runs `ssh -v` against a server that ends the connection once both sides have keys and the client said something by
/// them. What was agreed on, and what the client said.
fn handshake(case: &Case) -> (Chosen, String) {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let mut blob = Vec::new();
    blob.put_string("ssh-ed25519");
    blob.put_string(key.public_key());
    let settings = Arc::new(Settings {
        host_keys: vec![HostKeyOffer {
            algorithm: "ssh-ed25519".into(),
            blob,
        }],
        server_sig_algs: vec!["ssh-ed25519".into()],
        ..Settings::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut ssh = Command::new("ssh");
    ssh.args(["-v", "-F", "none", "-p", &port.to_string()]);
    for option in [
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "ConnectTimeout=20",
        &format!("KexAlgorithms={}", case.kex),
        &format!("Ciphers={}", case.cipher),
    ] {
        ssh.args(["-o", option]);
    }
    if !case.mac.is_empty() {
        ssh.args(["-o", &format!("MACs={}", case.mac)]);
    }
    let mut ssh = ssh
        .args(["nobody@127.0.0.1", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ssh is installed");
    let (mut socket, _) = listener.accept().unwrap();
    let mut connection = Connection::server(settings, [1; 16]);
    let end = loop {
        let n = connection.output().len();
        socket.write_all(connection.output()).unwrap();
        connection.sent(n);
        let signature = match connection.poll() {
            Ok(Some(Event::SignExchange(exchange))) => {
                assert_eq!(exchange.server_cookie(), Some([1; 16]));
                let mut signature = Vec::new();
                signature.put_string("ssh-ed25519");
                signature.put_string(key.sign(exchange.hash().unwrap().as_ref()));
                Some(signature)
            }
            Ok(Some(_)) => None,
            Ok(None) => {
                if connection.facts().exchanges == 1 && connection.facts().packets_in > 3 {
                    connection.disconnect(fleetgate_ssh::event::Reason::ByApplication, "seen enough");
                    socket.write_all(connection.output()).unwrap();
                    break connection.poll().unwrap_err();
                }
                let n = socket.read(connection.room(64 * 1024)).unwrap();
                assert!(n > 0, "the client went away");
                connection.received(n);
                None
            }
            Err(end) => break end,
        };
        if let Some(signature) = signature {
            connection.signed(&signature, [2; 16]);
        }
    };
    drop(socket);
    let mut log = String::new();
    ssh.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    ssh.wait().unwrap();
    assert!(
        matches!(end, End::Ours { ref text, .. } if text == "seen enough"),
        "{end} {log}"
    );
    (connection.facts().chosen.clone().unwrap(), log)
}
