//! The logins of a world: what the client tries, what the server decides. Every message is read and checked on its way.

use crate::chance::Chance;
use fleetgate_ssh::Connection;
use fleetgate_ssh::auth::{InfoResponse, Method, Request};
use fleetgate_ssh::codec::{Reader, Write as _};
use fleetgate_ssh::event::{AuthAnswer, AuthReply};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

/// How it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A signature at once; channels are opened behind it.
    Ahead,
    /// Nothing, a query, a signature.
    Key,
    /// A password that is not enough, then two rounds of questions.
    Questions,
}

const USER: &[u8] = b"ann";
const ED: &str = "ssh-ed25519";

pub fn user_key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[9; 32]).expect("any 32 bytes are a key")
}

pub fn blob(key: &Ed25519KeyPair) -> Vec<u8> {
    let mut blob = Vec::new();
    blob.put_string(ED);
    blob.put_string(key.public_key());
    blob
}

pub fn sign(key: &Ed25519KeyPair, message: &[u8]) -> Vec<u8> {
    let mut signature = Vec::new();
    signature.put_string(ED);
    signature.put_string(key.sign(message));
    signature
}

impl Way {
    pub fn of(chance: &mut Chance) -> Way {
        chance.pick(&[Way::Ahead, Way::Ahead, Way::Key, Way::Questions])
    }

    /// The client's first request.
    pub fn begin(self, client: &mut Connection) {
        match self {
            Way::Ahead => signed(client),
            Way::Key => client.authenticate(&Request::none(USER)),
            Way::Questions => client.authenticate(&Request::password(USER, b"right", None)),
        }
    }

    /// The client's next step.
    pub fn go_on(self, client: &mut Connection, reply: &AuthReply) {
        match (self, reply) {
            (Way::Key, AuthReply::Rejected { methods, partial }) => {
                assert_eq!((methods, *partial), (&vec!["publickey".to_owned()], false));
                client.authenticate(&Request::query(USER, ED, &blob(&user_key())));
            }
            (Way::Key, AuthReply::KeyOk) => signed(client),
            (Way::Questions, AuthReply::Rejected { methods, partial }) => {
                assert_eq!(
                    (methods, *partial),
                    (&vec!["keyboard-interactive".to_owned()], true)
                );
                client.authenticate(&Request::keyboard_interactive(USER, ""));
            }
            (Way::Questions, AuthReply::Ask { prompts, .. }) => {
                let answers: Vec<&[u8]> = prompts.iter().map(|(p, _)| &p[..]).collect();
                client.answer_prompts(&answers);
            }
            (way, reply) => panic!("{way:?} got {reply:?}"),
        }
    }

    /// The server's decision about a USERAUTH_REQUEST.
    pub fn decide(self, session_id: &[u8], payload: &[u8]) -> AuthAnswer {
        let request = Request::parse(payload).expect("the connection read it already");
        assert_eq!(request.user, USER);
        match (self, request.method) {
            (Way::Key, Method::None) => reject("publickey", false),
            (Way::Key | Way::Ahead, Method::PublicKey(key)) => {
                let (algorithm, blob) = (key.algorithm.as_bytes().to_vec(), key.key.to_vec());
                let Some(signature) = key.signature else {
                    return AuthAnswer::KeyOk { algorithm, key: blob };
                };
                let data = key.signed_data(session_id);
                let mut fields = Reader::new(signature);
                assert_eq!(fields.text("algorithm"), Ok(ED));
                let signature = fields.string("signature").expect("a blob");
                UnparsedPublicKey::new(&ED25519, user_key().public_key())
                    .verify(&data, signature)
                    .expect("it is over what was sent");
                AuthAnswer::Accept
            }
            (Way::Questions, Method::Password { password, new }) => {
                assert_eq!((password, new), (&b"right"[..], None));
                reject("keyboard-interactive", true)
            }
            (Way::Questions, Method::KeyboardInteractive { .. }) => ask(&["one", "two"]),
            (way, method) => panic!("{way:?} got {method:?}"),
        }
    }

    /// The server's decision about answers: the questions' own words are right; then one more round.
    pub fn judge(self, payload: &[u8]) -> AuthAnswer {
        let said = InfoResponse::parse(payload).expect("the connection read it already");
        let said: Vec<&[u8]> = said.answers.iter().map(|a| &a[..]).collect();
        match said[..] {
            [b"one", b"two"] => ask(&[]),
            [] => AuthAnswer::Accept,
            ref other => panic!("{other:?}"),
        }
    }
}

fn signed(client: &mut Connection) {
    let id = client.session_id().expect("a host was trusted").to_vec();
    let unsigned = Request::unsigned(&id, USER, ED, &blob(&user_key()), None);
    let signature = sign(&user_key(), unsigned.to_sign());
    client.authenticate(&unsigned.signed(&signature));
}

fn reject(method: &str, partial: bool) -> AuthAnswer {
    AuthAnswer::Reject {
        methods: vec![method.to_owned()],
        partial,
    }
}

fn ask(prompts: &[&str]) -> AuthAnswer {
    AuthAnswer::Ask {
        name: Vec::new(),
        instruction: b"say it".to_vec(),
        prompts: prompts.iter().map(|p| (p.as_bytes().to_vec(), false)).collect(),
    }
}
