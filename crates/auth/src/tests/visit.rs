//! A user's login at a proxy that stands for a plain sshd, both ends played here: what the proxy has to hand over then.

use fleetgate_ssh::Connection;
use fleetgate_ssh::auth::Request;
use fleetgate_ssh::event::{Event, Exchange};
use fleetgate_ssh::key::{HostKey, PrivateKey, PublicKey};
use fleetgate_ssh::settings::{HostKeyOffer, Settings};

/// The user.
pub struct Visitor<'a> {
    /// Signs.
    pub key: &'a PrivateKey,
    /// What is shown as its certificate.
    pub certificate: &'a [u8],
    /// The name given to SSH.
    pub login: &'a str,
    /// Whether the request is signed.
    pub signs: bool,
}

/// What came of it: the first exchange, encoded, and the USERAUTH_REQUEST.
pub fn visit(host: &HostKey, cookie: [u8; 16], user: &Visitor<'_>) -> (Vec<u8>, Vec<u8>) {
    let offers = host.algorithms().into_iter().map(|algorithm| HostKeyOffer {
        algorithm: algorithm.to_owned(),
        blob: host.blob(algorithm).expect("its own").to_vec(),
    });
    let settings = Settings {
        host_keys: offers.collect(),
        ..Settings::default()
    };
    let mut server = Connection::server(settings.into(), cookie);
    let mut client = Connection::client(Settings::default().into());
    let mut first: Option<Exchange> = None;
    let (mut exchange, mut asked) = (None, false);
    for _ in 0..100 {
        carry(&mut client, &mut server);
        while let Some(event) = server.poll().expect("it goes on") {
            match event {
                Event::SignExchange(found) => {
                    first.get_or_insert((*found).clone());
                    exchange = Some(found);
                }
                Event::Auth(_) => {
                    return (first.expect("before").encode().to_vec(), signed(&client, user));
                }
                _ => {}
            }
            if let Some(found) = exchange.take() {
                let hash = found.hash().expect("known");
                let signature = host
                    .sign(&found.host_key_algorithm, hash.as_ref())
                    .expect("signed");
                server.signed(&signature, [0; 16]);
            }
        }
        carry(&mut server, &mut client);
        let mut trust = false;
        while let Some(event) = client.poll().expect("it goes on") {
            trust |= matches!(event, Event::HostKey(_));
            asked |= matches!(event, Event::Established);
            if trust {
                break;
            }
        }
        if trust {
            client.trust_host(true);
        }
        if std::mem::take(&mut asked) {
            // Only that it comes: which request it is, is decided below.
            let session = client.session_id().expect("established").to_vec();
            let any = PrivateKey::generate(fleetgate_ssh::key::KeyType::Ed25519, "")
                .expect("a key")
                .0;
            let unsigned = Request::unsigned(&session, b"any", "ssh-ed25519", any.public().blob(), None);
            let signature = any.sign("ssh-ed25519", unsigned.to_sign()).expect("signed");
            client.authenticate(&unsigned.signed(&signature));
        }
    }
    panic!("no login came");
}

/// The request that this user makes on the connection.
fn signed(client: &Connection, user: &Visitor<'_>) -> Vec<u8> {
    let session = client.session_id().expect("established");
    let algorithm = match PublicKey::parse(user.certificate) {
        Ok(_) => "ssh-ed25519",
        Err(_) => "ssh-ed25519-cert-v01@openssh.com",
    };
    let unsigned = Request::unsigned(session, user.login.as_bytes(), algorithm, user.certificate, None);
    let signature = user.key.sign("ssh-ed25519", unsigned.to_sign()).expect("signed");
    match user.signs {
        true => unsigned.signed(&signature),
        false => Request::query(user.login.as_bytes(), algorithm, user.certificate).to_vec(),
    }
}

fn carry(from: &mut Connection, to: &mut Connection) {
    let bytes = from.output().to_vec();
    from.sent(bytes.len());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let room = to.room(rest.len());
        let n = room.len().min(rest.len());
        room[..n].copy_from_slice(&rest[..n]);
        to.received(n);
        rest = &rest[n..];
    }
}
