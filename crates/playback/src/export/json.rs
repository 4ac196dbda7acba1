//! Every frame as a JSON document on a line of its own, with all its bytes: as text where they are UTF-8, else in base64.

use crate::source::{Item, Source};
use base64ct::{Base64, Encoding};
use fleetgate_policy::text::{hex, printable_json};
use fleetgate_record::frame::{Frame, Kind};
use serde_json::{Value, json};
use std::io::{self, Read, Write};

/// Writes them, and a last line with the fault if there is one.
pub fn json<R: Read>(source: &mut Source<R>, out: &mut dyn Write) -> io::Result<()> {
    while let Some(item) = source.next_item()? {
        let document = match item {
            Item::Frame(frame) => of_frame(&frame),
            Item::Signature {
                block,
                statement,
                signature,
            } => json!({
                "kind": "signature",
                "block": block,
                "blocks": statement.blocks,
                "chain": hex(&statement.chain),
                "signed": statement.signed,
                "text": statement.text(),
                "signature": Base64::encode_string(signature),
            }),
            Item::Encrypted(of) => json!({
                "at": of.times.0, "until": of.times.1, "kind": "encrypted", "block": of.block, "bytes": of.plain,
                "base64": Base64::encode_string(of.file),
            }),
        };
        // No character in it acts on a terminal, and a program reads the same.
        out.write_all(printable_json(&format!("{document}\n")).as_bytes())?;
    }
    if let Some(fault) = source.fault() {
        let document = json!({
            "kind": "fault", "fault": fault.fault.to_string(), "block": fault.block, "offset": fault.offset,
        });
        writeln!(out, "{document}")?;
    }
    Ok(())
}

fn of_frame(frame: &Frame<'_>) -> Value {
    let mut document = json!({ "at": frame.at, "kind": frame.kind.name() });
    let (field, value) = match frame.kind {
        Kind::Begin | Kind::End | Kind::Event | Kind::Gap => match serde_json::from_slice(frame.bytes) {
            Ok(value) => ("data", value),
            Err(_) => bytes(frame.bytes),
        },
        Kind::Resize => match frame.size() {
            Some((columns, rows)) => ("size", json!({ "columns": columns, "rows": rows })),
            None => bytes(frame.bytes),
        },
        Kind::Omitted => match frame.omitted() {
            Some((stream, count)) => ("omitted", json!({ "stream": stream.name(), "bytes": count })),
            None => bytes(frame.bytes),
        },
        Kind::Hidden => match frame.hidden() {
            Some(count) => ("hidden", count.into()),
            None => bytes(frame.bytes),
        },
        _ => bytes(frame.bytes),
    };
    document[field] = value;
    document
}

fn bytes(bytes: &[u8]) -> (&'static str, Value) {
    match std::str::from_utf8(bytes) {
        Ok(text) => ("text", text.into()),
        Err(_) => ("base64", Base64::encode_string(bytes).into()),
    }
}
