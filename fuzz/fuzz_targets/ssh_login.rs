//! Any bytes as a request for a login and as answers to questions: never a panic, nothing beyond the bounds, no password
//! in what is shown, and what was read is written as it was.
#![no_main]

use fleetgate_ssh::auth::{InfoResponse, Method, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = Request::parse(data) {
        let shown = format!("{:?}", request.method);
        match request.method {
            Method::Password { password, new } => {
                assert_eq!(shown, "password");
                let again = Request::password(request.user, password, new);
                assert_eq!(Request::parse(&again).map(|r| r.method), Ok(request.method));
            }
            Method::PublicKey(key) => {
                let signed = key.signed_data(b"id");
                assert!(data.starts_with(&signed[6..]), "what is signed is what came");
                if let Some(signature) = key.signature {
                    let unsigned =
                        Request::unsigned(b"id", request.user, key.algorithm, key.key, key.host_key);
                    let again = unsigned.signed(signature);
                    let Ok(Method::PublicKey(again)) = Request::parse(&again).map(|r| r.method) else {
                        panic!("it was a key")
                    };
                    assert_eq!((again.key, again.signature), (key.key, key.signature));
                }
            }
            _ => {}
        }
    }
    if let Ok(said) = InfoResponse::parse(data) {
        let answers: Vec<&[u8]> = said.answers.iter().map(|a| &a[..]).collect();
        assert_eq!(&InfoResponse::write(&answers)[..], data, "answers have one form");
    }
});
