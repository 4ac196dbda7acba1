//! Floods, and streams that were given up: HTTP/2 by hand, so that the test decides every frame.

use super::{served, served_as};
use fleetgate_net::h2::{self, Tuning};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Frames of HTTP/2 by hand (RFC 9113 §4.1).
fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// :method POST, :scheme https, :path /, by the static table (RFC 7541 appendix A).
const REQUEST: &[u8] = &[0x83, 0x87, 0x84];
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const NO_ERROR: [u8; 4] = [0; 4];
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// What gathers in a connection while the server stands still is looked at at once when it goes on.
#[tokio::test]
async fn streams_that_were_given_up_meanwhile_end_no_members_connection() {
    let (stranger, member) = (h2::PENDING_RESETS, h2::MEMBER_PENDING_RESETS);
    for (tuning, resets, goes_on) in [
        (Tuning::AUTH, stranger, true),
        (Tuning::AUTH, stranger + 1, false),
        (Tuning::AUTH_MEMBER, member, true),
        (Tuning::AUTH_MEMBER, member + 1, false),
        (Tuning::TUNNEL, member, true),
    ] {
        let (mut stream, ended) = served_as(tuning);
        let mut all = [PREFACE, &raw(SETTINGS, 0, 0, &[])].concat();
        for n in 0..resets as u32 {
            all.extend(raw(HEADERS, END_HEADERS, 2 * n + 1, REQUEST));
            all.extend(raw(RESET, 0, 2 * n + 1, &8u32.to_be_bytes()));
        }
        all.extend(raw(PING, 0, 0, b"are you?"));
        // All of it is there before the server has its first turn.
        stream.write_all(&all).await.unwrap();
        let mut heard = Vec::new();
        let answer = raw(PING, 1, 0, b"are you?");
        let answered = loop {
            match stream.read_buf(&mut heard).await {
                Ok(0) | Err(_) => break false,
                Ok(_) if heard.windows(answer.len()).any(|part| part == answer) => break true,
                Ok(_) => {}
            }
        };
        assert_eq!(answered, goes_on, "{resets} resets");
        drop(stream);
        assert_eq!(ended.await.unwrap().is_ok(), goes_on, "{resets} resets");
    }
}

/// A stream that the server has ended and forgotten may get more from a client that did not know yet.
#[tokio::test]
async fn late_frames_for_ended_streams_end_no_long_connection() {
    // The server knows fifty at once, each for a second: twice the bound is beyond it on a slow machine too.
    for (tuning, late, goes_on) in [
        (Tuning::AUTH, h2::ERROR_RESETS, true),
        (Tuning::AUTH, 2 * h2::ERROR_RESETS, false),
        (Tuning::USER, h2::USER_ERROR_RESETS, true),
        (Tuning::USER, 2 * h2::USER_ERROR_RESETS, false),
        (Tuning::TUNNEL, 2 * h2::USER_ERROR_RESETS, true),
    ] {
        let (mut stream, ended) = served_as(tuning);
        stream
            .write_all(&[PREFACE, &raw(SETTINGS, 0, 0, &[])].concat())
            .await
            .unwrap();
        let ids: Vec<u32> = (0..late as u32).map(|n| 2 * n + 1).collect();
        let mut heard = Vec::new();
        let mut lives = true;
        for some in ids.chunks(100) {
            let requests: Vec<u8> = some
                .iter()
                .flat_map(|id| raw(HEADERS, END_HEADERS, *id, REQUEST))
                .collect();
            lives = lives && stream.write_all(&requests).await.is_ok();
            let mut resets = 0;
            while lives && resets < some.len() {
                match read_raw(&mut stream, &mut heard).await {
                    Some((RESET, reason)) if reason == NO_ERROR => resets += 1,
                    Some(_) => {}
                    None => lives = false,
                }
            }
            let frames: Vec<u8> = some.iter().flat_map(|id| raw(DATA, 0, *id, b"late")).collect();
            lives = lives && stream.write_all(&frames).await.is_ok();
        }
        lives = lives && stream.write_all(&raw(PING, 0, 0, b"are you?")).await.is_ok();
        while lives {
            match read_raw(&mut stream, &mut heard).await {
                Some((PING, _)) => break,
                Some(_) => {}
                None => lives = false,
            }
        }
        assert_eq!(lives, goes_on, "{late} late frames");
        drop(stream);
        assert_eq!(ended.await.unwrap().is_ok(), goes_on, "{late} late frames");
    }
}

/// The next frame's type and payload; None at the end, or when the server leaves.
async fn read_raw(stream: &mut DuplexStream, heard: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    loop {
        if let [high, middle, low, kind, _, _, _, _, _, rest @ ..] = heard.as_slice() {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if let Some(payload) = rest.get(..length) {
                let frame = (*kind, payload.to_vec());
                heard.drain(..9 + length);
                return (frame.0 != GOAWAY).then_some(frame);
            }
        }
        match stream.read_buf(heard).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

#[tokio::test]
async fn floods_end_the_flooding_connection() {
    type Flood = fn(u32) -> Vec<u8>;
    let floods: [(&str, Flood); 4] = [
        ("resets", |n| {
            let stream = 2 * n + 1;
            [
                raw(HEADERS, END_HEADERS, stream, REQUEST),
                raw(RESET, 0, stream, &8u32.to_be_bytes()),
            ]
            .concat()
        }),
        ("continuations", |n| match n {
            0 => raw(HEADERS, 0, 1, REQUEST),
            _ => raw(
                CONTINUATION,
                0,
                1,
                &[&[0x00, 0x01, b'x', 0x7f, 0x81, 0x1e][..], &[b'y'; 400]].concat(),
            ),
        }),
        ("header bombs", |n| match n {
            // One large header is put into the table, then named again and again: 1 byte each.
            0 => raw(
                HEADERS,
                0,
                1,
                &[REQUEST, &[0x40, 0x01, b'x', 0x7f, 0x81, 0x1e], &[b'y'; 272]].concat(),
            ),
            _ => raw(CONTINUATION, 0, 1, &[0xbe; 16_000]),
        }),
        ("frames of a megabyte", |_| raw(0, 0, 1, &[0; 1 << 20])),
    ];
    for (what, flood) in floods {
        let (stream, ended) = served();
        let (mut reader, mut writer) = tokio::io::split(stream);
        writer
            .write_all(&[PREFACE, &raw(SETTINGS, 0, 0, &[])].concat())
            .await
            .unwrap();
        let drain = tokio::spawn(async move {
            let mut all = Vec::new();
            let _ = reader.read_to_end(&mut all).await;
            all.len()
        });
        // It may take what it is sent until it says no more; a hundred thousand turns are far beyond every bound.
        let mut over = None;
        for turn in 0..100_000 {
            if writer.write_all(&flood(turn)).await.is_err() {
                over = Some(turn);
                break;
            }
        }
        assert!(over.is_some(), "{what}: the connection goes on");
        assert!(ended.await.unwrap().is_err(), "{what}");
        assert!(
            drain.await.unwrap() < 1 << 20,
            "{what}: the answers are bounded too"
        );
    }
}

#[tokio::test]
async fn pings_are_answered_one_at_a_time() {
    // Whoever pings without reading the answers is read no further.
    let (mut stream, _ended) = served();
    stream
        .write_all(&[PREFACE, &raw(SETTINGS, 0, 0, &[])].concat())
        .await
        .unwrap();
    let ping = raw(PING, 0, 0, &[7; 8]);
    let lot: Vec<u8> = ping.iter().copied().cycle().take(ping.len() * 1000).collect();
    let mut written = 0;
    let mut flood = Box::pin(async {
        loop {
            stream.write_all(&lot).await.unwrap();
            written += lot.len();
        }
    });
    // As many turns of the runtime as it wants; then it waits for good.
    for _ in 0..10_000 {
        tokio::select! {
            biased;
            () = &mut flood => {}
            () = tokio::task::yield_now() => {}
        }
    }
    drop(flood);
    assert!(written < 512 * 1024, "{written}");
}
