//! What each step of a login comes to, without a resolver: the calendar, and which keys are the same.

use super::calendar::days_from_civil;
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

#[test]
fn days_are_counted_from_1970() {
    for (date, days) in [
        ((1970, 1, 1), 0),
        ((1970, 3, 1), 59),
        ((2000, 2, 29), 11_016),
        ((2026, 11, 21), 20_778),
        ((1969, 12, 31), -1),
    ] {
        assert_eq!(days_from_civil(date.0, date.1, date.2), days, "{date:?}");
    }
}
