//! Feeds any bytes to each parser of the client that reads from a peer, for the fuzz target `client_peers` and a test with
//! pseudo-random bytes. It is in no build that is shipped.

use crate::agent::Agent;
use crate::error::ClientError;
use crate::ssh::forward::Target;
use crate::ssh::{Hosts, options, socks, x11};
use crate::stderr;
use crate::timings::Timings;
use crate::totp::Factor;
use crate::waterfall::Waterfall;
use fleetgate_policy::text::is_unseen;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Denied, Frame};
use fleetgate_wire::master::{FromMaster, ToMaster};
use prost::Message;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use tokio::runtime::Runtime;

/// Readers that there are.
pub const READERS: u8 = 10;

/// Gives `data` to one of the readers. Never a panic, and nothing is believed that nobody signed.
pub fn peers(reader: u8, data: &[u8]) {
    match reader % READERS {
        0 => agent(data),
        1 => display(data),
        2 => proxied(data),
        3 => master(data),
        4 => steps(data),
        5 => host(data),
        6 => words(data),
        7 => refusal(data),
        8 => factor(data),
        _ => status(data),
    }
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made")
    })
}

/// An ssh-agent's answers: a list of keys, a signature.
fn agent(data: &[u8]) {
    let Ok((ours, mut its)) = UnixStream::pair() else {
        return;
    };
    // More than a socket holds would wait for a reader.
    let data = &data[..data.len().min(64 * 1024)];
    let length = (data.len() as u32).to_be_bytes();
    for _ in 0..2 {
        let _ = its.write_all(&length).and_then(|()| its.write_all(data));
    }
    let _ = its.shutdown(std::net::Shutdown::Write);
    let mut agent = Agent::at(ours);
    if let Ok(keys) = agent.identities() {
        assert!(keys.len() <= fleetgate_ssh::agent::MAX_IDENTITIES);
        let _ = agent.sign(b"key", "ssh-ed25519", b"data", &|| {});
    }
}

/// The first packet of an X11 connection from the far side.
fn display(data: &[u8]) {
    let display = x11::known(Target::Socks);
    if let Ok(packet) = runtime().block_on(display.first_packet(&mut &data[..])) {
        assert!(data.len() >= packet.len(), "the cookie was shown whole");
    }
}

/// SOCKS, of whoever reaches a port of ours.
fn proxied(data: &[u8]) {
    let mut stream = tokio::io::join(data, tokio::io::sink());
    if let Ok((Target::Tcp { host, .. }, _)) = runtime().block_on(socks::ask(&mut stream)) {
        assert!(host.len() <= socks::MAX_NAME);
    }
}

/// The master, and who asks it: what is read is written as it was.
fn master(data: &[u8]) {
    if let Ok(word) = fleetgate_wire::decode::<ToMaster>(data) {
        assert_eq!(fleetgate_wire::encode(&word), data);
    }
    if let Ok(word) = fleetgate_wire::decode::<FromMaster>(data) {
        assert_eq!(fleetgate_wire::encode(&word), data);
    }
}

/// Steps that proxy and node tell.
fn steps(data: &[u8]) {
    if let Ok(Frame {
        kind: Some(Kind::Spans(told)),
    }) = Frame::decode(data)
    {
        let waterfall = Waterfall::new(&Timings::default(), &told.spans, true);
        let text = waterfall.text("web1", true);
        assert!(!text.chars().any(|c| c != '\n' && is_unseen(c)), "{text:?}");
        let _ = waterfall.json("web1").to_string();
    }
}

/// A host's key or certificate, where a cluster's authority is believed.
fn host(data: &[u8]) {
    static HOSTS: OnceLock<Hosts> = OnceLock::new();
    let hosts = HOSTS.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("fleetgate-fuzz-hosts-{}", std::process::id()));
        let authority = "@cert-authority * ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHdd3/8yFTSOYNTXaPVRmdTQJSKd2EtHfuOLIeYFgHlW demo\n";
        let _ = std::fs::write(&path, authority);
        let hosts = Hosts::of_cluster("web1", path.clone());
        let _ = std::fs::remove_file(path);
        hosts
    });
    assert!(hosts.check(data).is_err(), "the authority has signed nothing");
}

/// A server's words, and a file of options.
fn words(data: &[u8]) {
    let shown = stderr::printable(data);
    assert!(!shown.chars().any(|c| !matches!(c, '\n' | '\t') && is_unseen(c)));
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = options::read_file(text, "web1");
    }
}

/// A proxy's refusal.
fn refusal(data: &[u8]) {
    if let Ok(denied) = Denied::decode(data) {
        let _ = crate::transport::Refused::from(denied).to_string();
    }
}

/// The second factor that auth gives with an invite.
fn factor(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(factor) = Factor::parse(text) else { return };
    let code = factor.code(crate::time::now());
    assert!((6..=8).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_digit()));
    let _ = (factor.by_hand(), factor.next_code(u64::MAX, 0));
    let square = factor.square(false);
    assert!(!square.chars().any(|c| c != '\n' && is_unseen(c)));
}

/// An answer that is an error.
fn status(data: &[u8]) {
    let [code, words @ ..] = data else { return };
    let status = tonic::Status::new(
        tonic::Code::from(i32::from(*code)),
        String::from_utf8_lossy(words),
    );
    let error = ClientError::from(status);
    assert!((1..=255).contains(&error.code()), "an error is none");
    let _ = error.to_string();
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_proto::v1::{Span, Spans};

    /// xorshift: the same numbers in every run.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self, below: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % below.max(1) as u64) as usize
        }
    }

    #[test]
    fn nothing_that_a_peer_says_does_harm() {
        let span = |start, end| Span {
            place: "node\u{202e}\x1b[2J".into(),
            name: "x".repeat(99),
            start,
            end,
            round_trips: u32::MAX,
            ..Span::default()
        };
        let spans = vec![span(u64::MAX, 0), span(0, u64::MAX), span(1, 2)];
        let frame = Frame {
            kind: Some(Kind::Spans(Spans { spans })),
        };
        let mut x11 = b"l\0\x0b\0\0\0\x12\0\x10\0\0\0MIT-MAGIC-COOKIE-1\0\0".to_vec();
        x11.extend([7; 16]);
        let good: [Vec<u8>; READERS as usize] = [
            b"\x0c\0\0\0\x01\0\0\0\x03key\0\0\0\x02hi".to_vec(),
            x11,
            b"\x05\x01\0\x05\x01\0\x03\x03web\0\x50".to_vec(),
            br#"{"lent":{"steps":[{"what":"tcp","start":1,"end":2}]}}"#.to_vec(),
            frame.encode_to_vec(),
            b"\0\0\0\x0bssh-ed25519\0\0\0\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".to_vec(),
            "Host *\n Port 1\nno\u{202e}".as_bytes().to_vec(),
            Denied {
                words: "no\x1b".into(),
                rule: "r".into(),
                ..Denied::default()
            }
            .encode_to_vec(),
            b"otpauth://totp/demo:ada?secret=MZXW6YTBOI======&issuer=demo&digits=6&period=30".to_vec(),
            b"\x04auth: no answer".to_vec(),
        ];
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        for round in 0..20_000_usize {
            let reader = round % good.len();
            let mut data = match numbers.next(4) {
                0 => vec![0; numbers.next(200)],
                _ => good[reader].clone(),
            };
            for _ in 0..numbers.next(6) {
                let at = numbers.next(data.len());
                match (numbers.next(3), data.get_mut(at)) {
                    (0, _) => data.truncate(at),
                    (1, Some(byte)) => *byte = numbers.next(256) as u8,
                    _ => data.insert(at.min(data.len()), numbers.next(256) as u8),
                }
            }
            peers(reader as u8, &data);
        }
        // The good ones get through: what is refused is not refused for nothing.
        for (reader, data) in (0..).zip(&good) {
            peers(reader, data);
        }
        assert!(
            runtime()
                .block_on(x11::known(Target::Socks).first_packet(&mut &good[1][..]))
                .is_ok()
        );
    }
}
