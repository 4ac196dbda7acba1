//! Logins of both sides as conversations: what may come when, what it leads to, and what has no place.

use super::{Client, InfoResponse, Request, Server};
use crate::codec::Write;
use crate::event::{AuthAnswer, AuthReply, End, Event};
use crate::recording_outbox::RecordingOutbox;

/// What happens to a side of a login. The strings are the events and ends in short words, and what is sent.
enum Step {
    /// A message comes.
    Get(Vec<u8>, &'static str),
    /// The owner answers; this message goes out.
    Answer(AuthAnswer, Vec<u8>),
}
use Step::{Answer, Get};

fn service(number: u8, name: &str) -> Vec<u8> {
    let mut p = vec![number];
    p.put_string(name);
    p
}

fn ask_service() -> Step {
    Get(service(5, "ssh-userauth"), "sends 6")
}

fn none() -> Vec<u8> {
    Request::none(b"ann").to_vec()
}

fn reject(methods: &[&str], partial: bool) -> AuthAnswer {
    AuthAnswer::Reject {
        methods: methods.iter().map(|&m| m.into()).collect(),
        partial,
    }
}

fn failure(methods: &str, partial: u8) -> Vec<u8> {
    let mut p = service(51, methods);
    p.push(partial);
    p
}

fn ask() -> AuthAnswer {
    AuthAnswer::Ask {
        name: b"t".to_vec(),
        instruction: Vec::new(),
        prompts: vec![(b"Password: ".to_vec(), false)],
    }
}

/// The message of `ask`.
fn asked() -> Vec<u8> {
    let mut p = service(60, "t");
    p.put_string("");
    p.put_string("");
    p.put_u32(1);
    p.put_string("Password: ");
    p.put_bool(false);
    p
}

fn key_ok(key: &str) -> Vec<u8> {
    let mut p = service(60, "ssh-ed25519");
    p.put_string(key);
    p
}

fn banner(text: &str) -> Vec<u8> {
    let mut p = service(53, text);
    p.put_string("");
    p
}

fn short(got: Result<Option<Event<'_>>, End>, out: &mut RecordingOutbox) -> String {
    match got {
        Ok(None) => match out.packets.drain(..).next() {
            Some(packet) => format!("sends {}", packet[0]),
            None => "-".into(),
        },
        Ok(Some(Event::Auth(_))) => "auth".into(),
        Ok(Some(Event::AuthInfo(_))) => "info".into(),
        Ok(Some(Event::Banner(text))) => format!("banner {}", String::from_utf8_lossy(text)),
        Ok(Some(Event::AuthReply(reply))) => match reply {
            AuthReply::Rejected { methods, partial } => format!("rejected {} {partial}", methods.join("+")),
            AuthReply::Ask { prompts, .. } => format!("asked {}", prompts.len()),
            other => format!("{other:?}"),
        },
        Ok(Some(other)) => format!("{other:?}"),
        Err(End::Ours { reason, text }) => format!("{reason:?}: {text}"),
        Err(other) => other.to_string(),
    }
}

#[test]
fn a_server_takes_what_has_its_place() {
    let info = |answers: &[&[u8]]| InfoResponse::write(answers).to_vec();
    let mut other_service = none();
    let at = other_service.len() - 8 - 14;
    other_service[at..at + 14].copy_from_slice(b"ssh-connectiox");
    let interactive = Request::keyboard_interactive(b"ann", "").to_vec();
    for steps in [
        // The usual: asked, refused, a key's query, in; and again what comes late is ignored.
        vec![
            ask_service(),
            Get(none(), "auth"),
            Answer(
                reject(&["publickey", "password"], false),
                failure("publickey,password", 0),
            ),
            Get(Request::query(b"ann", "ssh-ed25519", b"key").to_vec(), "auth"),
            Answer(
                AuthAnswer::KeyOk {
                    algorithm: b"ssh-ed25519".to_vec(),
                    key: b"key".to_vec(),
                },
                key_ok("key"),
            ),
            Get(none(), "auth"),
            Answer(reject(&["password"], true), failure("password", 1)),
            Get(none(), "auth"),
            Answer(AuthAnswer::Accept, vec![52]),
            Get(none(), "-"),
            Get(vec![50, 0xff], "-"),
            Get(service(5, "ssh-connection"), "sends 6"),
            Get(
                service(5, "ssh-userauth"),
                "ServiceNotAvailable: there is no service \"ssh-userauth\" now",
            ),
        ],
        // Questions, twice, then a refusal without further methods.
        vec![
            ask_service(),
            Get(interactive.clone(), "auth"),
            Answer(ask(), asked()),
            Get(info(&[b"secret"]), "info"),
            Answer(ask(), asked()),
            Get(info(&[]), "info"),
            Answer(reject(&[], false), failure("", 0)),
            Get(
                info(&[]),
                "ProtocolError: message 61 has no place here in a login",
            ),
        ],
        // A new request, or the service asked for anew, abandons questions.
        vec![
            ask_service(),
            Get(interactive.clone(), "auth"),
            Answer(ask(), asked()),
            Get(none(), "auth"),
            Answer(ask(), asked()),
            ask_service(),
            Get(
                info(&[]),
                "ProtocolError: message 61 has no place here in a login",
            ),
        ],
        // Between a request and its answer nothing has its place.
        vec![
            ask_service(),
            Get(none(), "auth"),
            Get(none(), "ProtocolError: message 50 has no place here in a login"),
        ],
        vec![Get(
            none(),
            "ProtocolError: message 50 has no place here in a login",
        )],
        vec![
            ask_service(),
            Get(vec![52], "ProtocolError: message 52 has no place here in a login"),
        ],
        vec![
            ask_service(),
            Get(vec![79], "ProtocolError: message 79 has no place here in a login"),
        ],
        vec![Get(
            vec![],
            "ProtocolError: message 0 has no place here in a login",
        )],
        vec![Get(
            service(5, "ssh-connection"),
            "ServiceNotAvailable: there is no service \"ssh-connection\" now",
        )],
        vec![
            ask_service(),
            Get(
                other_service,
                "ServiceNotAvailable: there is no service \"ssh-connectiox\" now",
            ),
        ],
        vec![
            ask_service(),
            Get(
                vec![50, 0, 0],
                "ProtocolError: USERAUTH_REQUEST cannot be read: it ends inside its user",
            ),
        ],
        vec![Get(
            vec![5, 0, 0, 0, 1],
            "ProtocolError: SERVICE_REQUEST cannot be read: it ends inside its service",
        )],
        vec![
            ask_service(),
            Get(interactive, "auth"),
            Answer(ask(), asked()),
            Get(
                vec![61, 0xff, 0, 0, 0],
                "ProtocolError: USERAUTH_INFO_RESPONSE cannot be read: its number of answers is invalid",
            ),
        ],
    ] {
        let (mut server, mut out) = (Server::new(), RecordingOutbox::new());
        for step in steps {
            match step {
                Get(payload, then) => {
                    let got = server.receive(&payload, &mut out);
                    let got = short(got, &mut out);
                    assert_eq!(got, then);
                    assert!(server.deciding() || !matches!(then, "auth" | "info"));
                }
                Answer(answer, sent) => {
                    let accepted = answer == AuthAnswer::Accept;
                    server.answer(answer, &mut out);
                    assert_eq!(out.packets, [sent]);
                    out.packets.clear();
                    assert_eq!((server.deciding(), server.done()), (false, accepted));
                }
            }
        }
    }
}

#[test]
fn a_banner_comes_before_the_login_only() {
    let mut out = RecordingOutbox::new();
    Server::new().banner(b"hello", &mut out);
    assert_eq!(out.packets, [banner("hello")]);
    Server::logged_in().banner(b"hello", &mut out);
    assert_eq!(out.packets.len(), 1);
}

/// A client that sent these requests without waiting, as its first flight has it.
fn asking(requests: &[Vec<u8>]) -> Client {
    let (mut client, mut out) = (Client::new(), RecordingOutbox::new());
    assert!(!client.asked());
    for request in requests {
        client.authenticate(request, &mut out);
    }
    let mut sent = requests.to_vec();
    if !requests.is_empty() {
        sent.insert(0, service(5, "ssh-userauth"));
        assert!(client.asked());
    }
    assert_eq!(out.packets, sent);
    client
}

#[test]
fn a_client_understands_the_answers_to_what_it_asked() {
    let accept = || Get(service(6, "ssh-userauth"), "-");
    let signed = Request::unsigned(b"id", b"ann", "ssh-ed25519", b"key", None).signed(b"sig");
    let query = Request::query(b"ann", "ssh-ed25519", b"key").to_vec();
    let interactive = Request::keyboard_interactive(b"ann", "").to_vec();
    let password = Request::password(b"ann", b"secret", None).to_vec();
    for (requests, steps) in [
        (
            vec![signed.clone()],
            vec![
                accept(),
                Get(banner("hello"), "banner hello"),
                Get(
                    failure("publickey,password", 1),
                    "rejected publickey+password true",
                ),
                Get(
                    failure("", 0),
                    "ProtocolError: message 51 has no place here in a login",
                ),
            ],
        ),
        (
            vec![none(), signed.clone()],
            vec![
                accept(),
                Get(failure("publickey", 0), "rejected publickey false"),
                Get(vec![52], "Accepted"),
                Get(
                    banner("late"),
                    "ProtocolError: message 53 has no place here in a login",
                ),
            ],
        ),
        (
            vec![query.clone(), signed.clone()],
            vec![accept(), Get(key_ok("key"), "KeyOk"), Get(vec![52], "Accepted")],
        ),
        (
            vec![query.clone()],
            vec![
                accept(),
                Get(
                    key_ok("another"),
                    "ProtocolError: USERAUTH_PK_OK cannot be read: its key is invalid",
                ),
            ],
        ),
        (
            vec![interactive],
            vec![
                accept(),
                Get(asked(), "asked 1"),
                Get(asked(), "asked 1"),
                Get(failure("", 0), "rejected  false"),
                Get(asked(), "ProtocolError: message 60 has no place here in a login"),
            ],
        ),
        // A demand for a new password is a refusal.
        (vec![password], vec![accept(), Get(key_ok(""), "rejected  false")]),
        // Nothing counts before the service is there, and nothing that was not asked for.
        (
            vec![signed.clone()],
            vec![Get(
                vec![52],
                "ProtocolError: message 52 has no place here in a login",
            )],
        ),
        (
            vec![],
            vec![Get(
                service(6, "ssh-userauth"),
                "ProtocolError: message 6 has no place here in a login",
            )],
        ),
        (
            vec![signed.clone()],
            vec![Get(
                service(6, "ssh-connection"),
                "ProtocolError: message 6 has no place here in a login",
            )],
        ),
        (
            vec![signed.clone()],
            vec![
                accept(),
                Get(
                    vec![52, 0],
                    "ProtocolError: message 52 has no place here in a login",
                ),
            ],
        ),
        (
            vec![signed],
            vec![
                accept(),
                Get(
                    failure(&"a,".repeat(65), 0),
                    "ProtocolError: USERAUTH_FAILURE cannot be read: its list of methods is invalid",
                ),
            ],
        ),
    ] {
        let mut client = asking(&requests);
        for step in steps {
            let Get(payload, then) = step else { continue };
            let got = short(client.receive(&payload), &mut RecordingOutbox::new());
            assert_eq!(got, then);
            if then == "asked 1" {
                let mut out = RecordingOutbox::new();
                client.answer_prompts(&[b"secret"], &mut out);
                assert_eq!(out.packets, [InfoResponse::write(&[b"secret"]).to_vec()]);
            }
            assert!(!client.done() || then != "-");
        }
    }
}

#[test]
fn a_client_that_is_in_asks_no_more() {
    let mut client = asking(&[none()]);
    client
        .receive(&service(6, "ssh-userauth"))
        .expect("it was asked for");
    client.receive(&[52]).expect("it was asked for");
    assert!(client.done());
    let mut out = RecordingOutbox::new();
    client.authenticate(&none(), &mut out);
    client.answer_prompts(&[b"secret"], &mut out);
    assert!(out.packets.is_empty());
    assert!(Client::logged_in().done());
}
