//! Other formats, as other programs read them.

use super::*;
use crate::export::{asciicast, json, svg, text};
use crate::screen::Screen;
use serde_json::Value;

fn recording() -> Recording {
    let mut r = Recording::new();
    r.output(500 * MS, "\x1b]0;title\x07$ l\x1b[1;31ms\x1b[0m\r\n");
    r.output(1500 * MS, "日本\r\n")
        .resized(2000 * MS, 30, 4)
        .output(2500 * MS, "end");
    r.push(Kind::Output, 2600 * MS, b"\xff")
        .push(Kind::Event, 2700 * MS, br#"{"event":"x"}"#);
    r.sign("node").end(3000 * MS).sign("node");
    r
}

fn lines(bytes: Vec<u8>) -> Vec<Value> {
    let text = String::from_utf8(bytes).expect("UTF-8");
    text.lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect()
}

#[test]
fn an_asciicast_shows_the_same_screen() {
    let mut out = Vec::new();
    asciicast(&mut recording().source(), &mut out).expect("memory");
    let lines = lines(out);
    assert_eq!(
        (&lines[0]["version"], &lines[0]["width"], &lines[0]["height"]),
        (&2.into(), &20.into(), &5.into())
    );
    assert_eq!(lines[0]["timestamp"], 1_795_946_400_u64);
    assert_eq!(lines[0]["title"], "ada root web1: shell");
    let mut screen = Screen::new(20, 5);
    let mut before = 0.0;
    for event in &lines[1..] {
        let (at, kind, data) = (
            event[0].as_f64().unwrap(),
            event[1].as_str().unwrap(),
            event[2].as_str().unwrap(),
        );
        assert!(at >= before && !data.contains("title"));
        before = at;
        match kind {
            "o" => screen.feed(data.as_bytes()),
            _ => {
                assert_eq!((kind, data), ("r", "30x4"));
                screen.resize(30, 4);
            }
        }
    }
    assert_eq!(screen.text(), "$ ls\n日本\nend\u{fffd}\n\n");
    assert!(screen.row(0).nth(3).is_some_and(|cell| cell.style.bold));
}

#[test]
fn the_json_has_everything() {
    let mut out = Vec::new();
    json(&mut recording().source(), &mut out).expect("memory");
    let lines = lines(out);
    let kinds: Vec<&str> = lines.iter().map(|l| l["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "begin",
            "output",
            "output",
            "resize",
            "output",
            "output",
            "event",
            "signature",
            "end",
            "signature"
        ]
    );
    assert_eq!(lines[0]["data"]["user"], "ada");
    assert_eq!(lines[1]["text"], "\x1b]0;title\x07$ l\x1b[1;31ms\x1b[0m\r\n");
    assert_eq!(lines[3]["size"]["columns"], 30);
    assert_eq!(
        (&lines[5]["base64"], &lines[5]["at"]),
        (&"/w==".into(), &2_600_000.into())
    );
    assert_eq!(lines[6]["data"]["event"], "x");
    assert!(
        lines[7]["text"]
            .as_str()
            .unwrap()
            .starts_with("fleetgate recording\nsession abab")
    );
    assert_eq!(lines[8]["data"]["status"], 3);
    let mut cut = recording();
    cut.file.truncate(cut.file.len() - 1);
    let mut out = Vec::new();
    json(&mut cut.source(), &mut out).expect("memory");
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(
        text.lines().last().unwrap().contains(r#""kind":"fault""#),
        "{text}"
    );
}

#[test]
fn text_has_times_where_they_are_wanted() {
    let mut out = Vec::new();
    text(&mut recording().source(), true, &mut out).expect("memory");
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "    0:00  $ ls\n    0:01  日本\n    0:02  end\n    0:02  end\u{fffd}\n"
    );
}

#[test]
fn a_picture_has_colours_bold_and_wide_characters() {
    let mut screen = Screen::new(20, 3);
    screen.feed(
        "<a> & \"b\" \x1b[1;31mred\x1b[0m\r\n日x\x1b[7m inverse \x1b[0m\x1b[48;5;21m \x1b[38;2;1;2;3mz"
            .as_bytes(),
    );
    let mut out = Vec::new();
    svg(&screen, &mut out).expect("memory");
    let picture = String::from_utf8(out).unwrap();
    for part in [
        "&lt;a&gt; &amp; &quot;b&quot; ",
        "font-weight=\"bold\">red</text>",
        "<text x=\"8.0\" y=\"40\" textLength=\"16.8\" lengthAdjust=\"spacingAndGlyphs\">日</text>",
        "fill=\"#0000ff\"",
        "fill=\"#010203\">z</text>",
    ] {
        assert!(picture.contains(part), "{part} in {picture}");
    }
    assert!(!picture.contains("<script") && !picture.contains("href"));
}
