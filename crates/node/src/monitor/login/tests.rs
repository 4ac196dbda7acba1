//! What each step of a login comes to, without a resolver: which keys are the same.

use super::penalties::same_key;
use super::*;

#[test]
fn the_same_key_is_known_again_and_passwords_are_none() {
    let key = |f: &str| How::Key {
        fingerprint: f.to_owned(),
    };
    let certificate = |f: &str| How::Certificate {
        key_id: String::new(),
        serial: 0,
        fingerprint: f.to_owned(),
        ca: String::new(),
    };
    for (a, b, same) in [
        (key("x"), key("x"), true),
        (key("x"), certificate("x"), true),
        (key("x"), key("y"), false),
        (How::Password, How::Password, false),
        (key("x"), How::Password, false),
    ] {
        assert_eq!(same_key(&a, &b), same, "{a} {b}");
    }
}
