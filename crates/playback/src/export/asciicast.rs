//! asciicast v2, which asciinema plays. What is in it is drawn anew from the screen, so it acts on no terminal that it is
//! played on: titles, clipboard and the like of the recorded session are not there.

use crate::about::Begin;
use crate::clock::{self, SECOND};
use crate::paint::Painter;
use crate::play::{screen, show};
use crate::screen::Screen;
use crate::source::Source;
use fleetgate_policy::text::{printable, printable_json};
use fleetgate_record::frame::Kind;
use serde_json::json;
use std::io::{self, Read, Write};

/// Writes it.
pub fn asciicast<R: Read>(source: &mut Source<R>, out: &mut dyn Write) -> io::Result<()> {
    let mut begin = Begin::default();
    let mut model: Option<(Screen, Painter)> = None;
    while let Some(frame) = source.next_frame()? {
        if frame.kind == Kind::Begin {
            begin = Begin::read(frame.bytes);
        }
        if !matches!(
            frame.kind,
            Kind::Output | Kind::Stdout | Kind::Stderr | Kind::Resize
        ) {
            continue;
        }
        if model.is_none() {
            model = Some(start(&begin, out)?);
        }
        let Some((screen, painter)) = &mut model else {
            continue;
        };
        show(screen, &frame);
        let at = seconds(frame.at);
        let (columns, rows) = screen.size();
        if frame.kind == Kind::Resize {
            *painter = Painter::new(columns, rows);
            event(at.as_str(), "r", &format!("{columns}x{rows}"), out)?;
        }
        let drawn = painter.draw(screen);
        if !drawn.is_empty() {
            event(&at, "o", &drawn, out)?;
        }
    }
    if model.is_none() {
        start(&begin, out)?;
    }
    Ok(())
}

/// Writes the header.
fn start(begin: &Begin, out: &mut dyn Write) -> io::Result<(Screen, Painter)> {
    let screen = screen(begin);
    let (columns, rows) = screen.size();
    let mut header = json!({ "version": 2, "width": columns, "height": rows });
    if let Some(started) = clock::parse(&begin.started) {
        header["timestamp"] = (started / SECOND).into();
    }
    let who = [begin.user.as_str(), begin.login.as_str(), begin.node.as_str()];
    let who: Vec<String> = who
        .iter()
        .filter(|w| !w.is_empty())
        .map(|w| printable(w))
        .collect();
    header["title"] = format!("{}: {}", who.join(" "), printable(begin.what())).into();
    if let Some(terminal) = &begin.terminal {
        header["env"] = json!({ "TERM": printable(&terminal.term) });
    }
    writeln!(out, "{}", printable_json(&header.to_string()))?;
    Ok((screen, Painter::new(columns, rows)))
}

fn event(at: &str, kind: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "[{at},{},{}]", json!(kind), json!(text))
}

fn seconds(at: u64) -> String {
    format!("{}.{:06}", at / SECOND, at % SECOND)
}
