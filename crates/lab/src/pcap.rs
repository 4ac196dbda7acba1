//! Packets as a file of libpcap's classic form: a header of 24 bytes, then each packet with a header of 16. Numbers are
//! little-endian, times are in microseconds, and a packet begins with the header of the internet protocol (LINKTYPE_RAW).

use crate::tap::Packet;
use std::time::Duration;

const MAGIC: u32 = 0xa1b2_c3d4;
const MAJOR: u16 = 2;
const MINOR: u16 = 4;
/// The longest packet.
const SNAP: u32 = 65_536;
const LINKTYPE_RAW: u32 = 101;
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

/// The file's bytes.
pub(crate) fn write(packets: &[Packet]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FILE_HEADER);
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&MAJOR.to_le_bytes());
    out.extend_from_slice(&MINOR.to_le_bytes());
    // The time zone and the times' accuracy, which nobody has ever filled in.
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&SNAP.to_le_bytes());
    out.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
    for packet in packets {
        let len = u32::try_from(packet.bytes.len()).unwrap_or(SNAP);
        for number in [
            u32::try_from(packet.at.as_secs()).unwrap_or(u32::MAX),
            packet.at.subsec_micros(),
            len,
            len,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&packet.bytes);
    }
    out
}

/// What a file holds that [`write`] made; else why not.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Packet>, &'static str> {
    let (header, mut rest) = bytes
        .split_at_checked(FILE_HEADER)
        .ok_or("it has no file header")?;
    if (number(header, 0), number(header, 20)) != (MAGIC, LINKTYPE_RAW) {
        return Err("it is no recording of a lab");
    }
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let (header, after) = rest
            .split_at_checked(PACKET_HEADER)
            .ok_or("a packet's header is cut")?;
        let [sec, micros, kept, whole] = [0, 4, 8, 12].map(|at| number(header, at));
        if kept != whole || kept > SNAP || micros >= 1_000_000 {
            return Err("a packet's header is not ours");
        }
        let (bytes, after) = after.split_at_checked(kept as usize).ok_or("a packet is cut")?;
        packets.push(Packet {
            at: Duration::new(sec.into(), micros * 1000),
            bytes: bytes.to_vec(),
        });
        rest = after;
    }
    Ok(packets)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets() -> Vec<Packet> {
        let packet = |sec, micros: u32, bytes: &[u8]| Packet {
            at: Duration::new(sec, micros * 1000),
            bytes: bytes.to_vec(),
        };
        vec![
            packet(1_700_000_000, 999_999, b"E\0\0\x14"),
            packet(1_700_000_001, 0, b""),
        ]
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(read(&write(&packets())), Ok(packets()));
        assert_eq!(read(&write(&[])), Ok(vec![]));
    }

    #[test]
    fn the_form_is_libpcaps() {
        let expected = [
            0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 101, 0, 0,
            0, // the file
            0x00, 0xf1, 0x53, 0x65, 0x3f, 0x42, 0x0f, 0x00, 4, 0, 0, 0, 4, 0, 0, 0, b'E', 0, 0, 0x14,
        ];
        assert_eq!(write(&packets()[..1]), expected);
    }

    #[test]
    fn damage_is_an_error() {
        let good = write(&packets());
        let second = FILE_HEADER + PACKET_HEADER + 4;
        for len in 0..good.len() {
            let whole = [FILE_HEADER, second].contains(&len);
            assert_eq!(read(&good[..len]).is_ok(), whole, "cut to {len}");
        }
        for at in [0, 20, FILE_HEADER + 8] {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            assert!(read(&bad).is_err(), "byte {at}");
        }
    }
}
