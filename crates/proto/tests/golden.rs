//! Protocol version 1 as files: what an older side sends is understood for ever, and what a newer one sends is skipped where
//! it is not known. Each file is one message as it went over the wire; `FLEETGATE_BLESS=1` writes those that are missing.
#![forbid(unsafe_code)]

use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{
    AuditBatch, AuditPosition, Denied, Dial, Frame, FromNode, NodeFacts, Opened, Renew, Renewed, Signed,
    Span, Spans, Statement, ToNode, Via, denied::Reason, from_node, to_node,
};
use prost::Message;
use std::collections::HashMap;
use std::path::PathBuf;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

/// The file reads as this message, and the message is written as the file.
fn check<M: Message + Default + PartialEq + std::fmt::Debug>(name: &str, message: M) {
    let path = file(name);
    if !path.exists() && std::env::var_os("FLEETGATE_BLESS").is_some() {
        std::fs::write(&path, message.encode_to_vec()).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(M::decode(bytes.as_slice()).unwrap(), message, "{name}");
    assert_eq!(
        message.encode_to_vec(),
        bytes,
        "{name} is written otherwise now: an older side would not understand"
    );
}

fn frames() -> Vec<(&'static str, Kind)> {
    vec![
        (
            "frame-dial",
            Kind::Dial(Dial {
                node: "web1".to_owned(),
                login: "root".to_owned(),
                ssh: b"SSH-2.0-fleetgate\r\n".as_slice().into(),
                trace: vec![7; 24].into(),
                explain: true,
                via: Some(Via {
                    source: "192.0.2.1:40000".to_owned(),
                    proxy: "p1".to_owned(),
                    user: "alice".to_owned(),
                }),
            }),
        ),
        ("frame-ssh", Kind::Ssh(b"bytes".as_slice().into())),
        (
            "frame-opened",
            Kind::Opened(Opened {
                node: "web1".to_owned(),
                terminated: true,
            }),
        ),
        (
            "frame-denied",
            Kind::Denied(Denied {
                reason: Reason::Mfa.into(),
                words: "run fleetgate login --mfa".to_owned(),
                rule: "role dba".to_owned(),
            }),
        ),
        (
            "frame-spans",
            Kind::Spans(Spans {
                spans: vec![Span {
                    id: vec![1; 8].into(),
                    parent: vec![2; 8].into(),
                    name: "decide".to_owned(),
                    place: "proxy".to_owned(),
                    start: 1,
                    end: 2,
                    round_trips: 1,
                    leg: "proxy-node".to_owned(),
                }],
            }),
        ),
        ("frame-ssh-end", Kind::SshEnd(true)),
    ]
}

#[test]
fn frames_of_the_first_version_are_understood_and_written_as_ever() {
    for (name, kind) in frames() {
        check(name, Frame { kind: Some(kind) });
    }
    let signed = Signed {
        document: b"{}".as_slice().into(),
        signature: b"signature".as_slice().into(),
    };
    let to_node = |kind| ToNode { kind: Some(kind) };
    check("to-node-state", to_node(to_node::Kind::State(signed.clone())));
    check("to-node-fresh", to_node(to_node::Kind::Fresh(signed)));
    check(
        "to-node-renewed",
        to_node(to_node::Kind::Renewed(Renewed {
            tls_chain: vec![b"leaf".as_slice().into(), b"authority".as_slice().into()],
            host_certificates: vec![b"host".as_slice().into()],
            refused: "why".to_owned(),
        })),
    );
    let position = AuditPosition {
        log: "1".to_owned(),
        offset: 512,
    };
    check("to-node-kept", to_node(to_node::Kind::Kept(position.clone())));
    check("to-node-unkept", to_node(to_node::Kind::Unkept(position)));
    check("to-node-leaving", to_node(to_node::Kind::Leaving(true)));
    let from_node = |kind| FromNode { kind: Some(kind) };
    check(
        "from-node-facts",
        from_node(from_node::Kind::Facts(NodeFacts {
            labels: HashMap::from([("env".to_owned(), "prod".to_owned())]),
            version: "0.1.0".to_owned(),
            address: "192.0.2.2:22".to_owned(),
            serial: 3,
        })),
    );
    check(
        "from-node-renew",
        from_node(from_node::Kind::Renew(Renew {
            tls_public: b"public".as_slice().into(),
            host_keys: vec![b"key".as_slice().into()],
            signature: b"signature".as_slice().into(),
            tls_certificate: b"certificate".as_slice().into(),
        })),
    );
    check(
        "from-node-statement",
        from_node(from_node::Kind::Statement(Statement {
            document: b"document".as_slice().into(),
            signature: b"signature".as_slice().into(),
            key: b"key".as_slice().into(),
        })),
    );
    check(
        "from-node-audit",
        from_node(from_node::Kind::Audit(AuditBatch {
            log: "1".to_owned(),
            offset: 512,
            lines: b"{}\n".as_slice().into(),
            signature: b"signature".as_slice().into(),
            certificate: b"certificate".as_slice().into(),
        })),
    );
}

#[test]
fn a_newer_sides_kinds_and_fields_are_skipped() {
    // A kind that is not known (number 15, bytes): the frame has no kind, and is no error.
    let unknown = [0x7a, 3, 1, 2, 3];
    assert_eq!(Frame::decode(unknown.as_slice()).unwrap(), Frame { kind: None });
    assert_eq!(ToNode::decode(unknown.as_slice()).unwrap(), ToNode { kind: None });
    // A field that is not known, in every known frame: the rest is there.
    for (name, kind) in frames() {
        let bytes = Frame {
            kind: Some(kind.clone()),
        };
        let bytes = [bytes.encode_to_vec(), unknown.to_vec()].concat();
        assert_eq!(
            Frame::decode(bytes.as_slice()).unwrap().kind,
            Some(kind),
            "{name}"
        );
    }
    // A reason that is not known is a number, not an error.
    let newer = Denied {
        reason: 99,
        ..Denied::default()
    };
    assert_eq!(
        Denied::decode(newer.encode_to_vec().as_slice()).unwrap().reason(),
        Reason::Unknown
    );
}
