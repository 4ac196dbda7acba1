//! What is said of each kind of mistake.

use super::*;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(dead_code)]
struct File {
    names: Vec<String>,
    text: String,
    maybe: Option<String>,
    flag: bool,
    number: u32,
    listen: Vec<SocketAddr>,
    at: Option<SocketAddr>,
    path: PathBuf,
    word: Word,
    part: Part,
    parts: BTreeMap<String, Part>,
    map: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    #[default]
    Yes,
    No,
    Maybe,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Part {
    needed: Vec<String>,
    #[serde(default)]
    number: u32,
}

const EXAMPLES: [Example; 2] = [("names", "names = [\"web*\"]"), ("needed", "needed = [\"x\"]")];

fn said(text: &str) -> String {
    let error = toml::from_str::<File>(text).expect_err(text);
    let mistake = Mistake::new(text, &error, &EXAMPLES);
    format!("{}:{} {}", mistake.line, mistake.column, mistake.why)
}

#[test]
fn a_value_of_another_kind_is_named_with_its_key_and_an_example() {
    for (text, wanted) in [
        (
            "names = \"web\"",
            "1:9 `names` is a list, not the text \"web\": write names = [\"web*\"]",
        ),
        (
            "names = [\"a\",\n 5]",
            "2:2 an entry of `names` is a text in quotes, not the number 5: write names = [\"web*\"]",
        ),
        (
            "text = 22",
            "1:8 `text` is a text in quotes, not the number 22: write text = \"22\"",
        ),
        (
            "maybe = 1.5",
            "1:9 `maybe` is a text in quotes, not the number 1.5: write maybe = \"1.5\"",
        ),
        (
            "path = [\"/x\"]",
            "1:8 `path` is a text in quotes, not a list: write path = \"TEXT\"",
        ),
        (
            "text = 1979-05-27",
            "1:8 `text` is a text in quotes, not a date: write text = \"1979-05-27\"",
        ),
        (
            "flag = \"no\"",
            "1:8 `flag` is true or false, not the text \"no\": write flag = false",
        ),
        (
            "flag = 1",
            "1:8 `flag` is true or false, not the number 1: write flag = true",
        ),
        (
            "number = \"3\"",
            "1:10 `number` is a number from 0 to 4294967295, not the text \"3\": write number = 3",
        ),
        (
            "number = -1",
            "1:10 `number` is a number from 0 to 4294967295, not the number -1: write number = 10",
        ),
        (
            "listen = \"[::]:22\"",
            "1:10 `listen` is a list, not the text \"[::]:22\": write listen = [\"[::]:22\"]",
        ),
        (
            "listen = [22]",
            "1:11 an entry of `listen` is an address with its port, as \"127.0.0.1:22\" or \"[::]:22\", not the number 22",
        ),
        (
            "at = \"::1:22\"",
            "1:6 `at` is an address with its port, as \"127.0.0.1:22\" or \"[::]:22\", not the text \"::1:22\"",
        ),
        (
            "word = 22",
            "1:8 `word` is a text in quotes, not 22: write word = \"22\"",
        ),
        (
            "word = \"x\"",
            "1:8 `word` is one of `yes`, `no`, `maybe`, not `x`",
        ),
        (
            "part = 22",
            "1:8 `part` is a table, not the number 22: write [part] and its keys in the lines below",
        ),
        (
            "part = []",
            "1:8 `part` is a table, not a list: write [part] and its keys in the lines below",
        ),
        (
            "map = { a = 1 }",
            "1:13 `map.a` is a text in quotes, not the number 1: write a = \"1\"",
        ),
    ] {
        assert_eq!(said(text), wanted, "{text}");
    }
}

#[test]
fn the_tables_around_a_key_are_named() {
    for (text, wanted) in [
        (
            "[parts.\"a b\"]\nneeded = \"y\"",
            "2:10 `parts.\"a b\".needed` is a list, not the text \"y\": write needed = [\"x\"]",
        ),
        (
            "part.needed = 3",
            "1:15 `part.needed` is a list, not the number 3: write needed = [\"x\"]",
        ),
        (
            "[part]\nnumber = 1",
            "1:1 missing field `needed` in [part]: write needed = [\"x\"]",
        ),
        (
            "[parts.a]\nnumbr = 3",
            "2:1 unknown field `numbr`, expected `needed` or `number`",
        ),
        (
            "[parts.a]\nnumbers = 3",
            "2:1 unknown field `numbers`, did you mean `number`?",
        ),
        (
            "flag = true\n[[part]]\nneeded = []",
            "2:1 `part` is a table, and [[part]] makes a list of tables: write [part]",
        ),
    ] {
        assert_eq!(said(text), wanted, "{text}");
    }
}

#[test]
fn what_is_no_toml_is_named_with_its_key() {
    for (text, wanted) in [
        (
            "names = [web, db]",
            "1:10 `names`: web is no value: a text stands in quotes, as \"web\": write names = [\"web*\"]",
        ),
        (
            "number = 5m",
            "1:10 `number`: 5m is no value: a text stands in quotes, as \"5m\"",
        ),
        ("flag = yes", "1:8 `flag`: yes is no value: write true"),
        (
            "flag = tru",
            "1:8 `flag`: tru is no value: a text stands in quotes, as \"tru\"",
        ),
        (
            "text = name",
            "1:8 `text`: name is no value: a text stands in quotes, as \"name\"",
        ),
        (
            "text = info",
            "1:8 `text`: info is no value: a text stands in quotes, as \"info\"",
        ),
        ("flag = no", "1:8 `flag`: no is no value: write false"),
        (
            "text =\nflag = true",
            "1:7 `text` has no value: leave the line out for the default",
        ),
        (
            "path = 'a' b",
            "1:12 `path`: something stands behind the value: a text with spaces stands in quotes",
        ),
        (
            "flag = true\nflag = false",
            "2:1 `flag` stands there twice: keep one of the two",
        ),
        ("number = 010", "1:10 `number`: unexpected leading zero"),
        ("text = \"abc", "1:12 `text`: invalid basic string, expected `\"`"),
        (
            "names = [\"a\"\nflag = true",
            "2:1 `names`: missing comma between array elements, expected `,`",
        ),
        ("[part\nx", "1:6 unclosed table, expected `]`"),
        ("x", "1:2 key with no value, expected `=`"),
    ] {
        assert_eq!(said(text), wanted, "{text}");
    }
}

#[test]
fn a_message_is_one_line_that_can_be_shown_whatever_the_file_has() {
    for text in [
        "text = [\"a\\u001b\\n\"]",
        "flag = \"\u{202e}x\"",
        "é = 3",
        "flag = é",
        "[é]",
        "names = \"é",
        "\u{0}",
    ] {
        let said = said(text);
        assert!(!said.chars().any(text::is_unseen), "{text:?}: {said:?}");
    }
    let long = format!("flag = {:?}", "x".repeat(1000));
    assert!(said(&long).len() < 200, "{}", said(&long));
}

#[test]
fn no_message_repeats_what_may_be_a_secret() {
    for text in [
        "environment = { DB = hunter2 }",
        "environment = { DB = 4711 }",
        "environment = \"hunter2\"",
        "password = hunter2",
        "[environment]\nDB = [\"hunter2\"]",
        "[map]\ntoken = 4711",
        "[map]\nPASSWORD = hunter2",
        "[map]\nAPI_KEY = { a = \"hunter2\" }",
    ] {
        #[derive(Debug, Deserialize)]
        #[allow(dead_code)]
        struct Given {
            #[serde(default)]
            environment: BTreeMap<String, String>,
            #[serde(default)]
            password: String,
            #[serde(default)]
            map: BTreeMap<String, String>,
        }
        let error = toml::from_str::<Given>(text).expect_err(text);
        let why = Mistake::new(text, &error, &[]).why;
        assert!(!why.contains("hunter2") && !why.contains("4711"), "{text}: {why}");
        assert!(why.contains('`'), "{text}: {why}");
    }
}

#[test]
fn a_key_of_any_length_makes_no_longer_message() {
    let why = said(&format!("{} = 3", "k".repeat(1 << 20)));
    assert!(why.len() < 4100, "{}", why.len());
}

#[test]
fn a_key_s_line_is_found() {
    let text = "[role.\"eu.dev\"]\nnodes = []\n\nlogins = [\n\"a\"]";
    assert_eq!(line_of(text, &["role", "eu.dev", "logins"]), Some(4));
    assert_eq!(line_of(text, &["role", "eu", "logins"]), None);
    assert_eq!(line_of(text, &[]), None);
}
