//! What a hostile program writes never reaches the terminal of the one who plays, searches or exports, and makes no work
//! without end.

use super::*;
use crate::export::{asciicast, svg, text};
use crate::paint::Painter;
use crate::screen::{MAX_COLUMNS, MAX_ROWS, Screen};
use crate::text::each;
use std::time::{Duration, Instant};

/// Things that act on terminals.
fn streams() -> Vec<(&'static str, Vec<u8>)> {
    let mut enormous = b"\x1b[".to_vec();
    enormous.extend(b"1;".repeat(100_000));
    enormous.extend_from_slice(b"mHI");
    let mut string = b"\x1b]52;c;".to_vec();
    string.extend(b"QUJD".repeat(100_000));
    string.extend_from_slice(b"\x07HI");
    vec![
        ("title", b"\x1b]0;EVIL\x07\x1b]2;EVIL\x1b\\\x1b[21tHI".to_vec()),
        ("clipboard", b"\x1b]52;c;RVZJTA==\x07\x1b]52;c;?\x1b\\HI".to_vec()),
        (
            "link",
            b"\x1b]8;;http://evil.example\x1b\\\x1b]8;;\x1b\\HI".to_vec(),
        ),
        ("sixel", b"\x1bPq#0;2;0;0;0#0~~@@vv$\x1b\\HI".to_vec()),
        ("kitty picture", b"\x1b_Gf=24,s=10,v=20;RVZJTA==\x1b\\HI".to_vec()),
        (
            "questions",
            b"\x1b[c\x1b[>c\x1b[6n\x1b[5n\x1bZ\x05\x1b[?1$p\x1bP$qm\x1b\\\x1b[18tHI".to_vec(),
        ),
        (
            "mouse",
            b"\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?1004hHI".to_vec(),
        ),
        ("keys", b"\x1bP1;1|17/EVIL\x1b\\\x1b[>4;2mHI".to_vec()),
        ("printer", b"\x1b[5iEVIL\x1b[4i\x1b[2J\x1b[HHI".to_vec()),
        ("bell", b"\x07\x07HI".to_vec()),
        ("C1", "\u{9d}0;EVIL\u{9c}\u{90}EVIL\u{9c}HI".as_bytes().to_vec()),
        ("no UTF-8", b"\xff\xfe\x9d0;\xc0\x80HI".to_vec()),
        (
            "unseen",
            "H\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}\u{7f}I"
                .as_bytes()
                .to_vec(),
        ),
        ("enormous", enormous),
        ("string", string),
        ("unfinished", b"HI\x1b]0;EVIL".to_vec()),
    ]
}

/// Places, colours, clearing, the cursor's visibility, and text.
fn is_harmless(drawn: &str) -> bool {
    let mut rest = drawn;
    while let Some(at) = rest.find('\x1b') {
        let Some(sequence) = rest[at..].strip_prefix("\x1b[") else {
            return false;
        };
        let end = sequence.find(|c: char| ('@'..='~').contains(&c)).unwrap_or(0);
        let (parameters, last) = (&sequence[..end], &sequence[end..=end]);
        let is_known = match last {
            "H" | "G" | "m" | "K" | "J" => parameters.bytes().all(|b| b.is_ascii_digit() || b == b';'),
            "h" | "l" => parameters == "?25",
            _ => false,
        };
        if !is_known {
            return false;
        }
        rest = &sequence[end + 1..];
    }
    !drawn.chars().any(|c| c.is_control() && c != '\x1b')
}

#[test]
fn nothing_that_acts_on_a_terminal_comes_out_again() {
    for (name, bytes) in streams() {
        let mut screen = Screen::new(20, 5);
        // In pieces as well: a sequence may be cut anywhere.
        bytes.chunks(7).for_each(|piece| screen.feed(piece));
        let drawn = Painter::new(20, 5).draw(&screen);
        assert!(is_harmless(&drawn), "{name}: {drawn:?}");
        assert!(screen.text().contains("HI"), "{name}: {}", screen.text());
        assert!(name == "printer" || !drawn.contains("EVIL"), "{name}: {drawn:?}");
        let mut recording = Recording::new();
        recording.push(Kind::Output, MS, &bytes).end(2 * MS);
        let mut lines = Vec::new();
        each(&mut recording.source(), &mut |line| {
            lines.push(line.text.to_owned())
        })
        .expect("memory");
        let clean = |text: &str| !text.contains(|c: char| fleetgate_policy::text::is_unseen(c) && c != '\n');
        assert!(lines.iter().all(|line| clean(line)), "{name}: {lines:?}");
        let (mut cast, mut plain, mut picture) = (Vec::new(), Vec::new(), Vec::new());
        asciicast(&mut recording.source(), &mut cast).expect("memory");
        text(&mut recording.source(), true, &mut plain).expect("memory");
        svg(&screen, &mut picture).expect("memory");
        for out in [&cast, &plain, &picture] {
            let out = String::from_utf8(out.clone()).expect("UTF-8");
            assert!(
                clean(&out) && (name == "printer" || !out.contains("EVIL")),
                "{name}: {out}"
            );
        }
        for line in String::from_utf8(cast).expect("UTF-8").lines().skip(1) {
            let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert!(is_harmless(event[2].as_str().expect("text")), "{name}: {line}");
        }
        let mut json = Vec::new();
        crate::export::json(&mut recording.source(), &mut json).expect("memory");
        assert!(clean(&String::from_utf8(json).expect("UTF-8")), "{name}");
    }
}

#[test]
fn sizes_and_work_are_bounded() {
    let mut screen = Screen::new(0, 0);
    assert_eq!(screen.size(), (1, 1));
    screen.feed("日本語x\u{301}\r\n".as_bytes());
    screen.resize(u16::MAX, u16::MAX);
    let most = (usize::from(MAX_COLUMNS), usize::from(MAX_ROWS));
    assert_eq!(screen.size(), most);
    // Half a million cells for a few bytes, again and again.
    let start = Instant::now();
    for greedy in [
        "\x1b#8",
        "x\x1b[2J",
        "x\x1b[J",
        "\x1b[?1049h\x1b[?1049l",
        "\x1bc",
        "a\x1b[65535b",
        "\x1b[65535S",
        "\x1b[65535L",
    ] {
        screen.feed(greedy.repeat(4000).as_bytes());
    }
    assert!(screen.refused() > 0);
    for n in 0..2000_u16 {
        screen.resize(1 + n % 2 * 999, 500);
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    let _ = screen.text();
}

#[test]
fn no_program_that_behaves_is_refused_anything() {
    let mut screen = Screen::new(200, 60);
    for n in 0..20_000 {
        screen.feed(format!("\x1b[H\x1b[2Jpage {n} of a report that clears its screen first\r\n").as_bytes());
    }
    assert_eq!(screen.refused(), 0);
}
