//! Counting round trips in what one side of a link saw.
//!
//! The side that asks sends a packet; every packet of the other side that acknowledges it (TCP's own numbers say so) may
//! be an answer to it; and whatever the asking side sends afterwards may need that answer. The longest chain of question
//! and answer that ends with more than an acknowledgement is the number of round trips. So
//!
//! - a TCP handshake is one; its last acknowledgement is a question, because a server that speaks first waits for it;
//! - packets that cross each other are one, however many they are and over however many connections;
//! - a word that was held back until the one before it was acknowledged (Nagle's algorithm, a full window) is one more;
//! - what was sent and not answered, as the last words of a connection, is none.
//!
//! It is the most that the sides can have waited for each other: a slow machine may acknowledge what it answers later,
//! which looks like one more, and never like one less. No time is looked at.

use crate::tap::Packet;
use std::collections::HashMap;
use std::net::Ipv4Addr;

const TCP: u8 = 6;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// What counts of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    from: Ipv4Addr,
    /// The port of the side that asks, then the other's.
    ports: (u16, u16),
    flags: u8,
    /// The number of its first byte.
    sequence: u32,
    acknowledged: u32,
    payload: u32,
}

/// What the asking side sent on one connection: up to which number, and how many round trips it knew of by then.
type Questions = Vec<(u32, u32)>;

/// Round trips in `packets`, which were seen at `asks`.
pub(crate) fn count(packets: &[Packet], asks: Ipv4Addr) -> u32 {
    let mut connections: HashMap<(u16, u16), Questions> = HashMap::new();
    // Over all connections, because what one has answered may be needed to open another.
    let (mut known, mut words) = (0, 0);
    for segment in packets.iter().filter_map(|p| parse(&p.bytes, asks)) {
        let questions = connections.entry(segment.ports).or_default();
        if segment.from == asks {
            ask(questions, &segment, known);
            continue;
        }
        known = known.max(answer(questions, &segment));
        if segment.flags & SYN != 0 || segment.payload > 0 {
            words = words.max(answer(questions, &segment));
        }
    }
    words
}

fn ask(questions: &mut Questions, segment: &Segment, known: u32) {
    let syn = segment.flags & SYN != 0;
    let end = segment.sequence.wrapping_add(segment.payload + u32::from(syn));
    let last = questions.last().copied();
    let new = last.is_none_or(|(sent, _)| after(end, sent));
    // The first packet after a SYN: nothing but the handshake's last acknowledgement may be in it.
    let ends_handshake = questions.len() == 1 && !syn && last.is_some_and(|(sent, _)| sent == end);
    if (syn || segment.payload > 0) && new || ends_handshake {
        questions.push((end, known));
    }
}

fn answer(questions: &Questions, segment: &Segment) -> u32 {
    if segment.flags & ACK == 0 {
        return 0;
    }
    let heard = questions
        .iter()
        .rev()
        .find(|(sent, _)| !after(*sent, segment.acknowledged));
    heard.map_or(0, |(_, known)| known + 1)
}

/// Whether number `a` comes after `b`; they wrap around (RFC 9293, 3.4).
fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// A TCP segment over version 4, which is all that the lab's links have addresses for.
fn parse(packet: &[u8], asks: Ipv4Addr) -> Option<Segment> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let long = u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]);
    if packet[0] >> 4 != 4 || *packet.get(9)? != TCP {
        return None;
    }
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let (from, to) = (address(12)?, address(16)?);
    let tcp = packet.get(header..usize::from(long))?;
    let two = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
    let four = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
    let offset = usize::from(tcp.get(12)? >> 4) * 4;
    let (source, destination) = (two(0)?, two(2)?);
    let ports = match asks {
        _ if asks == from => (source, destination),
        _ if asks == to => (destination, source),
        _ => return None,
    };
    Some(Segment {
        from,
        ports,
        flags: *tcp.get(13)? & (SYN | ACK | FIN),
        sequence: four(4)?,
        acknowledged: four(8)?,
        payload: u32::try_from(tcp.len().checked_sub(offset)?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const THEM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    /// Packets from a text: `connection direction what`, where the direction is `>` or `<`, and what is S (SYN), a
    /// number of bytes, A (nothing), F (FIN) or an earlier packet again (R). After `@` stands what the packet
    /// acknowledges of the other side; without it everything. Both sides' numbers begin shortly before they wrap.
    fn seen(text: &str) -> Vec<Packet> {
        let mut sides: HashMap<(u16, bool), (u32, u32)> = HashMap::new();
        let mut packets: Vec<Packet> = Vec::new();
        for line in text.split(';').map(str::trim) {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("three words");
            let port: u16 = word().parse().expect("a connection");
            let ours = word() == ">";
            let (what, acknowledged) = match word().split_once('@') {
                Some((what, ack)) => (what, Some(ack.parse::<u32>().expect("a number"))),
                None => (word_of(line), None),
            };
            if what == "R" {
                packets.push(packets.last().expect("one before").clone());
                continue;
            }
            const FIRST: u32 = u32::MAX - 3;
            let theirs = sides.get(&(port, !ours)).map_or(FIRST, |(next, _)| *next);
            let (next, _) = sides.entry((port, ours)).or_insert((FIRST, 0));
            let (flags, payload) = match what {
                "S" if theirs == FIRST => (SYN, 0),
                "S" => (SYN | ACK, 0),
                "A" => (ACK, 0),
                "F" => (ACK | FIN, 0),
                bytes => (ACK, bytes.parse().expect("bytes")),
            };
            let sequence = *next;
            *next = next.wrapping_add(payload + u32::from(flags & (SYN | FIN) != 0));
            let acknowledged = acknowledged.map_or(theirs, |n| FIRST.wrapping_add(n));
            let (from, to) = if ours { (US, THEM) } else { (THEM, US) };
            let ports = if ours {
                [40_000 + port, 22]
            } else {
                [22, 40_000 + port]
            };
            let mut bytes = vec![0x45, 0];
            bytes.extend((40 + payload as u16).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, TCP, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            bytes.extend(ports.iter().flat_map(|p| p.to_be_bytes()));
            bytes.extend(sequence.to_be_bytes());
            bytes.extend(acknowledged.to_be_bytes());
            bytes.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
            bytes.resize(bytes.len() + payload as usize, b'x');
            packets.push(Packet {
                at: Duration::ZERO,
                bytes,
            });
        }
        packets
    }

    fn word_of(line: &str) -> &str {
        line.rsplit(' ').next().expect("a word")
    }

    #[test]
    fn round_trips_are_chains_of_question_and_answer() {
        for (what, text, expected) in [
            ("nothing but a SYN", "1 > S", 0),
            ("a handshake", "1 > S; 1 < S; 1 > A", 1),
            ("a question on it", "1 > S; 1 < S; 1 > A; 1 > 5; 1 < A; 1 < 9", 2),
            ("a server that speaks first", "1 > S; 1 < S; 1 > A; 1 < 20", 2),
            (
                "both speak at once, and the server has not heard us yet",
                "1 > S; 1 < S; 1 > A; 1 > 21; 1 < 20@1; 1 < 30",
                2,
            ),
            (
                "two questions, one after the other",
                "1 > S; 1 < S; 1 > A; 1 > 5; 1 < 9; 1 > 5; 1 < 9",
                3,
            ),
            (
                "two questions at once",
                "1 > S; 1 < S; 1 > A; 1 > 5; 1 > 5; 1 < 9; 1 < 9",
                2,
            ),
            (
                "an answer that crosses a second question is the first one's",
                "1 > S; 1 < S; 1 > A; 1 > 5; 1 < 9; 1 > 5; 1 < 9@6",
                2,
            ),
            (
                "last words",
                "1 > S; 1 < S; 1 > A; 1 > 5; 1 < 9; 1 > 5; 1 > F; 1 < F",
                2,
            ),
            (
                "a packet again",
                "1 > S; 1 < S; 1 > A; 1 > 5; 1 > R; 1 < 9; 1 < R",
                2,
            ),
            (
                "a second word that waits until the first is acknowledged",
                "1 > S; 1 < S; 1 > A; 1 > 5; 1 < A; 1 > 5; 1 < 9",
                3,
            ),
            (
                "acknowledged before it is answered",
                "1 > S; 1 < S; 1 > A; 1 > 5; 1 < A; 1 < 9; 1 > 5; 1 < A; 1 < 9",
                3,
            ),
            ("only acknowledged", "1 > S; 1 < S; 1 > A; 1 > 5; 1 < A", 1),
            (
                "a connection after another",
                "1 > S; 1 < S; 1 > A; 1 > 5; 1 < 9; 2 > S; 2 < S; 2 > A; 2 > 5; 2 < 9",
                4,
            ),
            (
                "two connections side by side",
                "1 > S; 2 > S; 1 < S; 2 < S; 1 > A; 2 > A; 1 > 5; 2 > 5; 1 < 9; 2 < 9",
                2,
            ),
            (
                "a connection that was there before",
                "1 > 5; 1 < 9; 1 > 5; 1 < 9",
                2,
            ),
            ("a word that nobody asked for", "1 < 9", 0),
            (
                "a connection of the other side's",
                "1 < S; 1 > S; 1 < A; 1 < 7; 1 > 3; 1 < 8",
                2,
            ),
        ] {
            assert_eq!(count(&seen(text), US), expected, "{what}");
        }
    }

    #[test]
    fn what_is_not_tcp_or_is_cut_counts_nothing() {
        let all = seen("1 > S; 1 < S; 1 > A; 1 > 5; 1 < 9");
        let control = count(&all, US);
        assert_eq!(control, 2);
        for len in 0..40 {
            let cut = |p: &Packet| Packet {
                at: p.at,
                bytes: p.bytes[..len].to_vec(),
            };
            assert_eq!(
                count(&all.iter().map(cut).collect::<Vec<_>>(), US),
                0,
                "cut to {len}"
            );
        }
        let version_6 = |p: &Packet| Packet {
            at: p.at,
            bytes: [&[0x60], &p.bytes[1..]].concat(),
        };
        assert_eq!(count(&all.iter().map(version_6).collect::<Vec<_>>(), US), 0);
        assert_eq!(count(&all, Ipv4Addr::new(10, 0, 9, 9)), 0, "somebody else's");
    }
}
