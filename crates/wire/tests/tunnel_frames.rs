//! The frames between monitor and tunnel: one of each kind, there and back, and never a panic when its bytes are cut or
//! changed. Each bit of a frame is turned in its turn, so nothing here is left to chance.
#![forbid(unsafe_code)]

use fleetgate_wire::common::Endpoint;
use fleetgate_wire::node::tunnel::{
    Credentials, FromTunnel, Label, LockedProxy, MAX_PIECE, MAX_SIGN, NodeDescription, Proxy, ProxyStatement,
    Settings, Span, ToTunnel, UploadAnswer,
};
use fleetgate_wire::node::{Blob, MAX_FRAME};
use fleetgate_wire::{Decode, Encode, decode, encode};
use std::fmt::Debug;

fn endpoint() -> Endpoint {
    Endpoint {
        address: [7; 16],
        scope: 3,
        port: 40_000,
    }
}

fn blobs() -> Vec<Blob> {
    [vec![], vec![0], vec![1; 40]]
        .map(|bytes| Blob { bytes })
        .to_vec()
}

fn to_tunnel() -> Vec<ToTunnel> {
    let proxies = vec![Proxy {
        host: c"proxy.example".into(),
        port: 443,
    }];
    let credentials = Credentials {
        chain: blobs(),
        authorities: blobs(),
        locked: vec![LockedProxy {
            name: c"edge2".into(),
            serial_before: u64::MAX,
            expires: 0,
        }],
    };
    let facts = NodeDescription {
        labels: vec![Label {
            name: c"env".into(),
            value: c"prod".into(),
        }],
        version: c"0.1.0".into(),
        address: c"".into(),
        serial: u64::MAX,
    };
    vec![
        ToTunnel::Begin {
            settings: Settings {
                cluster: c"c".into(),
                node: c"web1".into(),
                proxies: proxies.clone(),
                credentials: credentials.clone(),
                facts: facts.clone(),
            },
        },
        ToTunnel::Signed {
            ticket: 1,
            signature: Some(vec![9; 64]),
        },
        ToTunnel::Signed {
            ticket: 1,
            signature: None,
        },
        ToTunnel::Addresses {
            host: c"proxy.example".into(),
            found: vec![endpoint(), endpoint()],
        },
        ToTunnel::Session { ticket: u64::MAX },
        ToTunnel::NotTaken {
            ticket: 2,
            why: c"too many".into(),
        },
        ToTunnel::Spans {
            ticket: 2,
            spans: vec![Span {
                name: c"login".into(),
                place: c"node".into(),
                start: 1,
                end: 2,
            }],
        },
        ToTunnel::Facts { facts },
        ToTunnel::Proxies { proxies },
        ToTunnel::Credentials { credentials },
        ToTunnel::Renew { message: vec![1; 9] },
        ToTunnel::Audit { message: vec![2; 9] },
        ToTunnel::Drain { follows: true },
        ToTunnel::Statement {
            proxy: c"edge".into(),
            message: vec![1; 300],
        },
        ToTunnel::Upload {
            session: [7; 16],
            signed: 1 << 20,
            length: (1 << 20) + 300,
            whole: false,
        },
    ]
}

fn from_tunnel() -> Vec<FromTunnel> {
    vec![
        FromTunnel::Ready,
        FromTunnel::Sign {
            ticket: 3,
            message: vec![b' '; MAX_SIGN],
        },
        FromTunnel::Resolve {
            host: c"proxy.example".into(),
        },
        FromTunnel::Arrived {
            ticket: 4,
            vouched: ProxyStatement {
                source: endpoint(),
                proxy: c"p1".into(),
                user: c"alice".into(),
                trace: vec![5; 24],
                explain: true,
            },
            first: b"SSH-2.0-x\r\n".to_vec(),
        },
        FromTunnel::State {
            piece: vec![1; 300],
            signature: vec![],
            more: true,
        },
        FromTunnel::Fresh {
            document: vec![1; 30],
            signature: vec![2; 30],
        },
        FromTunnel::Renewed {
            tls_chain: blobs(),
            host_certificates: blobs(),
            refused: c"".into(),
        },
        FromTunnel::AuditKept {
            log: c"1".into(),
            offset: 1 << 40,
        },
        FromTunnel::Connected {
            proxy: c"p:443".into(),
        },
        FromTunnel::Attest {
            proxy: c"edge".into(),
        },
        FromTunnel::Lost {
            proxy: c"p:443".into(),
            why: c"closed".into(),
        },
        FromTunnel::Uploaded {
            session: [7; 16],
            proxy: c"edge".into(),
            answer: UploadAnswer::Wait {
                seconds: 30,
                why: c"the disk is full".into(),
            },
        },
        FromTunnel::Uploaded {
            session: [7; 16],
            proxy: c"edge".into(),
            answer: UploadAnswer::Kept { receipt: vec![1; 83] },
        },
    ]
}

fn check<T: Encode + Decode + PartialEq + Debug>(words: Vec<T>) {
    for word in words {
        let frame = encode(&word);
        assert_eq!(decode::<T>(&frame).as_ref(), Ok(&word));
        for cut in 0..frame.len() {
            assert!(decode::<T>(&frame[..cut]).is_err(), "{word:?} cut at {cut}");
        }
        for bit in 0..frame.len() * 8 {
            let mut spoilt = frame.clone();
            spoilt[bit / 8] ^= 1 << (bit % 8);
            // Whatever is still understood has one form.
            if let Ok(other) = decode::<T>(&spoilt) {
                assert_eq!(encode(&other), spoilt, "{word:?} with bit {bit} turned");
            }
        }
        let longer = [frame.as_slice(), &[0]].concat();
        assert!(decode::<T>(&longer).is_err(), "{word:?} with a byte more");
    }
}

#[test]
fn words_to_a_tunnel() {
    check(to_tunnel());
}

#[test]
fn words_of_a_tunnel() {
    check(from_tunnel());
}

#[test]
fn the_longest_piece_fits_a_frame() {
    let word = FromTunnel::State {
        piece: vec![0; MAX_PIECE],
        signature: vec![0; 1024],
        more: false,
    };
    assert!(encode(&word).len() <= MAX_FRAME);
}
