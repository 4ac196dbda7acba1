//! Any bytes as a client's stream: found packet by packet, each parsed or refused, never a panic, never more memory
//! than was received.
#![no_main]

use fleetgate_session::sftp::protocol::MAX_PACKET;
use fleetgate_session::sftp::request::{Framing, Packet, Request, frame, ids, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = parse(data);
    let mut rest = data;
    while let Framing::Whole { end } = frame(rest) {
        assert!((4..=4 + MAX_PACKET).contains(&end) && end <= rest.len());
        let packet = &rest[4..end];
        if let Ok(Packet::Request { request, .. }) = parse(packet) {
            match request {
                Request::Write { data, .. } => assert!(data.len() <= packet.len()),
                Request::UsersGroupsById { uids, gids } => {
                    assert!(ids(uids).is_none_or(|ids| ids.len() * 4 == uids.len()));
                    let _ = ids(gids);
                }
                _ => {}
            }
        }
        rest = &rest[end..];
    }
});
