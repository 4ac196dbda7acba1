//! Handshakes: ours with ours, ours with openssl's, and every certificate that does not hold with the sentence that says so.
#![forbid(unsafe_code)]

use fleetgate_net::testing::{CertificateRequest, Cluster, name, now};
use fleetgate_net::tls::{self, AUTH, Believe, Client, H2, HTTP1, Kind, PROXY, Peer, Server, Shown};
use fleetgate_net::x509::{Key, instant};
use fleetgate_net::{Credentials, Pin, Trust};
use fleetgate_policy::cluster::Subject;
use rustls::{HandshakeKind, NamedGroup};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::process::{Child, Command};

type Ended = Result<(tls::Stream<DuplexStream>, Peer), tls::Error>;

fn shown(credentials: &Credentials) -> Shown {
    Shown::new().name(PROXY, credentials)
}

fn proxy(cluster: &Cluster) -> Credentials {
    cluster.server(PROXY, Subject::Proxy(name("p1")))
}

/// Both ends of one handshake.
async fn shake(server: &Server, client: &Client, asked: &str) -> (Ended, Ended) {
    let (there, here) = duplex(64 * 1024);
    tokio::join!(server.accept(there), client.connect(asked, here))
}

#[tokio::test]
async fn both_know_each_other_by_the_post_quantum_group() {
    let cluster = Cluster::new();
    let server = Server::new(shown(&proxy(&cluster)), Some(&cluster.trust()), &[H2, HTTP1]).unwrap();
    let alice = cluster.user("alice", &["dev"]);
    for believe in [
        Believe::Trust(cluster.trust()),
        Believe::Pin(cluster.authority.certificate().pin()),
    ] {
        let client = Client::new(&believe, Some(&alice), &[H2]).unwrap();
        let (there, here) = shake(&server, &client, PROXY).await;
        let ((stream, user), (_, peer)) = (there.unwrap(), here.unwrap());
        assert_eq!(stream.handshake_kind(), Some(HandshakeKind::Full), "no retry");
        assert_eq!(user.group, Some(NamedGroup::X25519MLKEM768));
        assert_eq!(user.identity, alice.identity());
        assert_eq!(user.identity.unwrap().user(), Some(&name("alice")));
        assert_eq!(user.alpn.as_deref(), Some(H2));
        assert_eq!(peer.identity.unwrap().subject, Subject::Proxy(name("p1")));
        assert_eq!(
            tls::authority_of(&stream),
            Some(cluster.authority.certificate().pin())
        );
    }
    // Without a certificate a client is nobody, and may come in.
    let client = Client::new(&Believe::Trust(cluster.trust()), None, &[H2]).unwrap();
    let (there, here) = shake(&server, &client, PROXY).await;
    let (_, user) = there.unwrap();
    assert!(here.is_ok() && user.identity.is_none() && user.certificate.is_none());
}

#[tokio::test]
async fn another_process_may_sign() {
    use std::io::Error;

    #[derive(Debug)]
    struct Elsewhere(Key);
    impl tls::Signer for Elsewhere {
        fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
            let hash = tls::client_handshake_hash(message)
                .ok_or_else(|| Error::other("not a client's handshake"))?;
            assert_eq!(hash.len(), 48, "TLS_AES_256_GCM_SHA384 is first");
            Ok(self.0.sign(message))
        }
    }
    let cluster = Cluster::new();
    let key = Key::generate();
    let leaf = cluster
        .authority
        .issue(&fleetgate_net::x509::Leaf {
            public: key.public().spki(),
            names: &[tls::node_name("web1")],
            client: true,
            server: true,
            identity: None,
            validity: now() - 60..now() + 60,
        })
        .unwrap();
    let node = Credentials::remote(Arc::new(Elsewhere(key)), [leaf]).unwrap();
    let server = Server::new(shown(&proxy(&cluster)), Some(&cluster.trust()), &[tls::TUNNEL]).unwrap();
    let client = Client::new(&Believe::Trust(cluster.trust()), Some(&node), &[tls::TUNNEL]).unwrap();
    let (there, here) = shake(&server, &client, PROXY).await;
    assert!(here.is_ok());
    let (_, peer) = there.unwrap();
    assert_eq!(peer.certificate.unwrap().names(), ["web1.node.fleetgate"]);
    // The same as a server's is refused by the other process.
    let server = Server::new(shown(&node), None, &[]).unwrap();
    let client = Client::new(&Believe::Trust(cluster.trust()), None, &[]).unwrap();
    let (there, _) = shake(&server, &client, PROXY).await;
    assert!(
        there
            .unwrap_err()
            .to_string()
            .contains("not a client's handshake")
    );
    for no in [
        &b""[..],
        &[b' '; 64],
        &[&[b' '; 64][..], b"TLS 1.3, client CertificateVerify\0short"].concat(),
    ] {
        assert_eq!(tls::client_handshake_hash(no), None);
    }
}

/// What is said of somebody's certificate that was made in a second and looked at in another.
type Words = fn(whose: &str, made: u64, seen: u64) -> String;

/// A certificate that is shown, and what each side says.
struct Case {
    what: &'static str,
    wanted: CertificateRequest,
    foreign: bool,
    kind: Kind,
    words: Words,
}

fn cases() -> Vec<Case> {
    let good = CertificateRequest {
        subject: Some(Subject::Proxy(name("p1"))),
        names: vec![PROXY.to_owned()],
        client: true,
        server: true,
        ..CertificateRequest::default()
    };
    let case = |what, wanted: CertificateRequest, foreign, kind, words: Words| Case {
        what,
        wanted,
        foreign,
        kind,
        words,
    };
    vec![
        case(
            "expired",
            CertificateRequest {
                validity: -7200..-3600,
                ..good.clone()
            },
            false,
            Kind::Time,
            |whose, made, seen| {
                format!(
                    "{whose} expired at {}, and this machine's clock says {}: renew it, or set the clock right",
                    instant(made - 3601),
                    instant(seen)
                )
            },
        ),
        case(
            "not yet valid",
            CertificateRequest {
                validity: 3600..7200,
                ..good.clone()
            },
            false,
            Kind::Time,
            |whose, made, seen| {
                format!(
                    "{whose} is valid from {}, and this machine's clock says {}: one of the two clocks is wrong; set it right",
                    instant(made + 3600),
                    instant(seen)
                )
            },
        ),
        case(
            "another authority",
            good.clone(),
            true,
            Kind::Authority,
            |whose, _, _| {
                format!(
                    "{whose} is by an authority that is not believed here: is it another cluster, or was its authority replaced?"
                )
            },
        ),
        case(
            "for nothing",
            CertificateRequest {
                client: false,
                server: false,
                ..good.clone()
            },
            false,
            Kind::Usage,
            |whose, _, _| format!("{whose} is for something else: it may not be shown in this place"),
        ),
    ]
}

/// Holds words to a sentence about the second in which a certificate was made and the one in which it was looked at.
/// Both lie between `since` and now, the first before the second.
fn assert_said(words: &str, since: u64, sentence: impl Fn(u64, u64) -> String) {
    let until = now();
    let said = (since..=until).any(|made| (made..=until).any(|seen| words == sentence(made, seen)));
    assert!(said, "{words:?} is not {:?}", sentence(until, until));
}

#[tokio::test]
async fn a_servers_certificate_that_does_not_hold_is_refused_in_words() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let mut all = cases();
    all[3].wanted.client = true;
    for pinned in [false, true] {
        for case in &all {
            let since = now();
            let credentials = if case.foreign {
                other.make(&case.wanted)
            } else {
                cluster.make(&case.wanted)
            };
            let server = Server::new(shown(&credentials), None, &[]).unwrap();
            let believe = if pinned {
                Believe::Pin(cluster.authority.certificate().pin())
            } else {
                Believe::Trust(cluster.trust())
            };
            let client = Client::new(&believe, None, &[]).unwrap();
            let (_, here) = shake(&server, &client, PROXY).await;
            let error = here.err().unwrap_or_else(|| panic!("{} was believed", case.what));
            assert_eq!(error.kind(), case.kind, "{}: {error}", case.what);
            assert_said(&error.to_string(), since, |made, seen| {
                (case.words)("the server's certificate", made, seen)
            });
        }
    }
    // Another name than the one asked for.
    let server = Server::new(Shown::new().otherwise(&proxy(&cluster)), None, &[]).unwrap();
    let client = Client::new(&Believe::Trust(cluster.trust()), None, &[]).unwrap();
    let error = shake(&server, &client, AUTH).await.1.err().unwrap();
    assert_eq!(error.kind(), Kind::Name);
    assert_eq!(
        error.to_string(),
        "the server's certificate is not for the name auth.fleetgate: is it the right address?"
    );
    assert!(shake(&server, &client, PROXY).await.1.is_ok(), "control");
    // A leaf whose own key is pinned is no authority.
    let leaf = proxy(&cluster);
    let client = Client::new(&Believe::Pin(leaf.certificate().pin()), None, &[]).unwrap();
    assert_eq!(
        shake(&server, &client, PROXY).await.1.err().unwrap().kind(),
        Kind::Authority
    );
}

#[tokio::test]
async fn a_clients_certificate_that_does_not_hold_is_refused_in_words_on_both_sides() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let server = Server::new(shown(&proxy(&cluster)), Some(&cluster.trust()), &[]).unwrap();
    let mut all = cases();
    all[3].wanted.server = true;
    let told = [
        "the other side says that our certificate is not valid now; this machine's clock says NOW: renew the certificate (log in again), or set the clock right",
        "the other side says that our certificate is not valid now; this machine's clock says NOW: renew the certificate (log in again), or set the clock right",
        "the other side does not believe the authority of our certificate: log in again, or is it another cluster?",
        "the other side refuses our certificate: it is not made for this; log in or join again",
    ];
    for (case, told) in all.iter().zip(told) {
        let since = now();
        let credentials = if case.foreign {
            other.make(&case.wanted)
        } else {
            cluster.make(&case.wanted)
        };
        let client = Client::new(&Believe::Trust(cluster.trust()), Some(&credentials), &[]).unwrap();
        let (there, here) = shake(&server, &client, PROXY).await;
        let error = there
            .err()
            .unwrap_or_else(|| panic!("{} was believed", case.what));
        assert_eq!(error.kind(), case.kind, "{}: {error}", case.what);
        assert_said(&error.to_string(), since, |made, seen| {
            (case.words)("the client's certificate", made, seen)
        });
        // The client is through its half of the handshake before it hears.
        let (mut stream, _) = here.unwrap();
        let error = stream.read(&mut [0; 1]).await.unwrap_err();
        let words = tls::Error::told(&error)
            .unwrap_or_else(|| panic!("{}: {error:?}", case.what))
            .to_string();
        assert_said(&words, since, |_, seen| told.replace("NOW", &instant(seen)));
    }
}

#[test]
fn what_does_not_fit_together_is_said_before_any_connection() {
    let (one, other) = (Cluster::new(), Cluster::new());
    let chain: Vec<Vec<u8>> = one.user("alice", &[]).chain().map(<[u8]>::to_vec).collect();
    let none: [&[u8]; 0] = [];
    for (error, words) in [
        (
            Credentials::new(Key::generate(), &chain).unwrap_err(),
            "the private key does not belong to the certificate: use the pair that was made together",
        ),
        (
            Credentials::new(Key::generate(), none).unwrap_err(),
            "the chain has no certificate in it",
        ),
        (
            Trust::new(none).unwrap_err(),
            "there is no TLS authority to believe",
        ),
        (
            Trust::new([&chain[0]]).unwrap_err(),
            "a certificate among the authorities' may not issue others",
        ),
        (
            Trust::new(std::iter::repeat_n(other.authority.certificate().der(), 65)).unwrap_err(),
            "there are more than 64 TLS authorities",
        ),
        (
            Credentials::given(b"", b"").unwrap_err(),
            "the key file cannot be read as PEM: nothing of the kind is in it",
        ),
    ] {
        assert_eq!((error.kind(), error.to_string().as_str()), (Kind::Setting, words));
    }
}

/// openssl, if this machine has it.
fn openssl(arguments: &[&str]) -> Option<Child> {
    Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .ok()
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64ct::{Base64, Encoding};
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        Base64::encode_string(der)
    )
}

#[tokio::test]
async fn openssls_client_comes_in_by_the_classical_group_and_by_nothing_older() {
    let cluster = Cluster::new();
    let server = Server::new(shown(&proxy(&cluster)), Some(&cluster.trust()), &[H2]).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let arguments = [
        "s_client",
        "-connect",
        &address,
        "-servername",
        PROXY,
        "-alpn",
        "h2",
        "-quiet",
    ];
    let Some(child) = openssl(&arguments) else {
        return eprintln!("skipped: openssl is not installed");
    };
    let (_, peer) = server.accept(listener.accept().await.unwrap().0).await.unwrap();
    let group = peer.group.unwrap();
    // Debian 12's does not know ML-KEM; 3.5 does.
    assert!(
        matches!(group, NamedGroup::X25519 | NamedGroup::X25519MLKEM768),
        "{group:?}"
    );
    drop(child);
    let _old = openssl(&["s_client", "-connect", &address, "-servername", PROXY, "-tls1_2"]).unwrap();
    let error = server
        .accept(listener.accept().await.unwrap().0)
        .await
        .err()
        .unwrap();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (Kind::Incompatible, "the client does not speak TLS 1.3")
    );
}

#[tokio::test]
async fn openssls_server_is_reached_without_a_second_hello() {
    let cluster = Cluster::new();
    let key = Key::generate();
    let leaf = cluster
        .authority
        .issue(&fleetgate_net::x509::Leaf {
            public: key.public().spki(),
            names: &[PROXY.to_owned()],
            client: false,
            server: true,
            identity: None,
            validity: now() - 60..now() + 60,
        })
        .unwrap();
    let folder = std::env::temp_dir().join(format!("fleetgate-net-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (key_file, chain_file) = (folder.join("key"), folder.join("chain"));
    std::fs::write(&key_file, pem("PRIVATE KEY", key.pkcs8())).unwrap();
    std::fs::write(&chain_file, pem("CERTIFICATE", &leaf)).unwrap();
    let arguments = [
        "s_server",
        "-accept",
        "127.0.0.1:0",
        "-naccept",
        "1",
        "-tls1_3",
        "-key",
        key_file.to_str().unwrap(),
        "-cert",
        chain_file.to_str().unwrap(),
    ];
    if let Some(mut child) = openssl(&arguments) {
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines
                .next_line()
                .await
                .unwrap()
                .expect("it says where it listens");
            if let Some(address) = line.strip_prefix("ACCEPT ") {
                break address.to_owned();
            }
        };
        let client = Client::new(&Believe::Trust(cluster.trust()), None, &[]).unwrap();
        let tcp = tokio::net::TcpStream::connect(&address).await.unwrap();
        let (mut stream, peer) = client.connect(PROXY, tcp).await.unwrap();
        let kind = stream.handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::Full), "{:?}", peer.group);
        stream.shutdown().await.unwrap();
    } else {
        eprintln!("skipped: openssl is not installed");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn what_is_no_tls_is_named() {
    let cluster = Cluster::new();
    let server = Server::new(shown(&proxy(&cluster)), None, &[]).unwrap();
    let (there, mut here) = duplex(1024);
    let (ended, ()) = tokio::join!(server.accept(there), async {
        here.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    });
    assert_eq!(
        ended.err().unwrap().to_string(),
        "the client does not speak TLS here: is it the right address and port?"
    );
    let (there, here) = duplex(1024);
    drop(here);
    assert_eq!(
        server.accept(there).await.err().unwrap().to_string(),
        "the client closed the connection during the TLS handshake"
    );
    let client = Client::new(&Believe::Pin(Pin::of(b"")), None, &[]).unwrap();
    let (there, here) = duplex(1024);
    drop(there);
    assert_eq!(
        client.connect(PROXY, here).await.err().unwrap().kind(),
        Kind::Broken
    );
}

#[tokio::test(start_paused = true)]
async fn a_handshake_has_its_time() {
    let cluster = Cluster::new();
    let server = Server::new(shown(&proxy(&cluster)), None, &[]).unwrap();
    let (there, _here) = duplex(1024);
    let error = server.accept(there).await.err().unwrap();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (Kind::Deadline, "the TLS handshake took longer than 10 s")
    );
}
