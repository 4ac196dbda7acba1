//! What is not a frame is an error, whatever the bytes; and nothing is longer than its bound.
#![forbid(unsafe_code)]

use fleetgate_wire::common::Ids;
use fleetgate_wire::home::CheckHome;
use fleetgate_wire::order::{Order, Role, Work};
use fleetgate_wire::{Error, MAX_ITEMS, MAX_ORDER, MAX_STRING, decode, encode};
use std::ffi::CString;

fn order() -> Order {
    let work = Work::CheckHome(CheckHome {
        ids: Ids {
            uid: 1000,
            gid: 1000,
            groups: vec![4, 24, 1000],
        },
        home: CString::from(c"/home/ada"),
        files: vec![
            CString::from(c".ssh/authorized_keys"),
            CString::from(c"/etc/keys/ada"),
        ],
        strict_modes: true,
    });
    Order {
        work,
        roles: vec![Role::Resolver, Role::Events],
    }
}

fn read(frame: &[u8]) -> Result<Order, Error> {
    decode(frame)
}

#[test]
fn an_order_is_understood_as_it_was_meant() {
    assert_eq!(read(&encode(&order())), Ok(order()));
}

#[test]
fn a_frame_that_ends_anywhere_before_its_end_is_refused() {
    let frame = encode(&order());
    for end in 0..frame.len() {
        assert_eq!(
            read(&frame[..end]),
            Err(Error::Truncated),
            "{end} of {} bytes",
            frame.len()
        );
    }
    let mut longer = frame.clone();
    longer.push(0);
    assert_eq!(read(&longer), Err(Error::Trailing));
}

#[test]
fn a_changed_byte_is_refused_or_means_something_else() {
    let frame = encode(&order());
    for at in 0..frame.len() {
        for bit in 0..8 {
            let mut changed = frame.clone();
            changed[at] ^= 1 << bit;
            // A frame has one form: what is understood is written as the same bytes.
            if let Ok(other) = read(&changed) {
                assert_eq!(encode(&other), changed, "bit {bit} of byte {at}");
                assert_ne!(other, order(), "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn other_marks_versions_and_kinds_are_refused() {
    let frame = encode(&order());
    let with = |at: usize, byte: u8| {
        let mut changed = frame.clone();
        changed[at] = byte;
        read(&changed)
    };
    assert_eq!(with(0, b'x'), Err(Error::NotAFrame));
    assert_eq!(with(2, 77), Err(Error::Version(77)));
    // Two roles stand before the kind of work.
    assert_eq!(
        with(7, 200),
        Err(Error::Unknown {
            what: "descriptor role",
            tag: 200
        })
    );
    assert_eq!(
        with(9, 200),
        Err(Error::Unknown {
            what: "order",
            tag: 200
        })
    );
}

/// A frame of one value whose length says `len`, with as many zero bytes as it says, up to the longest order.
fn claiming(len: usize) -> Vec<u8> {
    let mut frame = encode(&(len as u32));
    frame.resize(frame.len() + len.min(MAX_ORDER), 0);
    frame
}

#[test]
fn a_frame_is_bounded() {
    for len in [MAX_STRING + 1, u32::MAX as usize] {
        assert!(
            matches!(decode::<CString>(&claiming(len)), Err(Error::TooLong { .. })),
            "{len}"
        );
    }
    let mut longest = encode(&(MAX_STRING as u32));
    longest.resize(longest.len() + MAX_STRING, b'x');
    assert!(decode::<CString>(&longest).is_ok());

    let list = |len: usize| {
        let mut frame = encode(&(len as u32));
        frame.resize(frame.len() + 4 * len, 0);
        decode::<Vec<u32>>(&frame).map(|l| l.len())
    };
    assert_eq!(list(MAX_ITEMS), Ok(MAX_ITEMS));
    assert!(matches!(list(MAX_ITEMS + 1), Err(Error::TooLong { .. })));

    let bytes = |len: usize| decode::<Vec<u8>>(&claiming(len)).map(|b| b.len());
    assert_eq!(bytes(MAX_ORDER), Ok(MAX_ORDER));
    assert!(matches!(bytes(MAX_ORDER + 1), Err(Error::TooLong { .. })));
}

#[test]
fn a_count_that_the_frame_cannot_hold_costs_no_memory() {
    let frame = encode(&(MAX_ITEMS as u32));
    assert_eq!(decode::<Vec<u32>>(&frame), Err(Error::Truncated));
}

#[test]
fn a_zero_byte_in_a_string_is_refused() {
    let mut frame = encode(&3u32);
    frame.extend_from_slice(b"a\0b");
    assert_eq!(decode::<CString>(&frame), Err(Error::Nul));
}
