//! Known answers: sealed packets, derived keys and exchange hashes that were computed by other implementations of the
//! primitives (OpenSSL and Python's hashlib) from the texts of the RFCs and of OpenSSH's PROTOCOL files.

use crate::cipher::{Cipher, Keys, Mac, Secrets};
use crate::event::Exchange;
use crate::kex::Method;
use crate::kex::exchange::Derivation;
use zeroize::Zeroizing;

/// Bytes that count up by a step.
fn row(len: usize, step: usize, from: usize) -> Vec<u8> {
    (0..len).map(|i| (i * step + from) as u8).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn keys(cipher: Cipher, mac: Option<Mac>) -> Keys {
    Keys::new(Secrets {
        cipher,
        mac,
        key: Zeroizing::new(row(cipher.key_len(), 7, 1)),
        iv: Zeroizing::new(row(cipher.iv_len(), 5, 3)),
        mac_key: Zeroizing::new(row(mac.map_or(0, Mac::len), 11, 9)),
    })
    .unwrap()
}

/// Two packets of 32 bytes each, numbered 2^32 - 2 and 2^32 - 1.
#[test]
fn packets_are_sealed_and_opened_as_others_do() {
    let cases = [
        (
            (Cipher::Aes128Gcm, None),
            [
                "00000020c2f7a67895f8063fe96c2294c74365d829b426a336973631018abe9b7480f65f9ad558d518406a9be47f033038e1c40e",
                "000000201603d70782857b50ab8a199328d236cf7f8165c5b5b2a669678ad6391047eddf0029e111085fde23500fcbe35b4119ff",
            ],
        ),
        (
            (Cipher::Aes256Gcm, None),
            [
                "000000209ab9dacb5d2856ffa8438e947024f2fab8e1c96fb77ac2d91c51bb4d53d2c6528d610f88516cf442dd5d2cbd3a8ae7b1",
                "0000002074175bb064d7b7f5c70d1bd822a4d9e13feff8806a6de0ce52ba095d56755e83b914cad52fe3c5e4cad084fab36c82f1",
            ],
        ),
        (
            (Cipher::ChaCha20Poly1305, None),
            [
                "9fcfc9ec6b611d9f55c8467d565ada255381267af65286fa20406c93e4d45cd57775bc5742417bb217d48b20c1b57896e9dd2f5f",
                "5d99df3200f2bc9169d2c9e09025bd44f581bd7d2fe5b0bbc0edf21b25bd8fcfd8e25845bbbbcb71ecfa143f79b186195d62c0b6",
            ],
        ),
        (
            (Cipher::Aes128Ctr, Some(Mac::HmacSha256Etm)),
            [
                "000000203c14884948d63429f77990c9de03292d5ddb2b263c37f92227bf1cf51e11eb26f9988544b5dd107b9f28caaf6c8ae8c6bdcc77496e939d3d9c2541a98976a54d",
                "000000206a3f6783412edba866e5a30a008a85038360ea6af92816d151802ff060ba9029e081aa663dfcd7e0611fc6ade4043560940c92200620d4a18891f1dfc34d099b",
            ],
        ),
        (
            (Cipher::Aes256Ctr, Some(Mac::HmacSha512Etm)),
            [
                "000000208075a939fc4600f9d4931622cad80c2091054af2bd0d47e52e4da1ce95c9b416f867e6d145f2e2b6259094230b9855b78e173ffb59951532910a9c99f141d72dec2b5d23e6bd493d9753c46ac7dc127f25bbe1c7963592f3362aaf82730db11c",
                "00000020fafb0bc7def4201b8676669b6cb8b0a2d12ba40877643cf849096cfecb3ba27aeeaa675d717690f94c2cfd59e3e5f710a288ba5d93dc1a33d9cc5b2489586494d457e4c0141b4a430ebb175adc6d126c086c1833de68ab037e9379ab32dadce5",
            ],
        ),
    ];
    for (cipher, mac, sealed) in cases.map(|((cipher, mac), sealed)| (cipher, mac, sealed)) {
        let (mut ours, mut theirs) = (keys(cipher, mac), keys(cipher, mac));
        for (i, sealed) in sealed.into_iter().enumerate() {
            let sequence = 0xffff_fffe + i as u32;
            let plain = [&[0, 0, 0, 32][..], &row(32, 13, i)].concat();
            let mut packet = plain.clone();
            let mut tag = vec![0; ours.tag_len()];
            ours.seal(sequence, &mut packet, &mut tag);
            assert_eq!(
                hex(&[&packet[..], &tag].concat()),
                sealed,
                "{} {i}",
                cipher.name()
            );

            let sealed = unhex(sealed);
            let (packet, tag) = sealed.split_at(36);
            let mut packet = packet.to_vec();
            assert_eq!(theirs.length(sequence, packet[..4].try_into().unwrap()), 32);
            theirs.open(sequence, &mut packet, tag).unwrap();
            assert_eq!(packet[4..], plain[4..], "{} {i}", cipher.name());
        }
    }
}

#[test]
fn keys_are_derived_as_others_do() {
    let secret = [&[0, 0, 0, 32][..], &row(32, 7, 1)].concat();
    let cases = [
        (
            Method::Curve25519,
            32,
            [
                "9022d038b564ddde752aa8de",
                "82f423e9782346f36b79494225306caec90cae2ad9069bbaa393c6584bb60a5ebe7bc6078428c0a2cfa4a5eb82bd6e902c23121e52b29baccd1df6c203206102",
                "dd488767eacd72b4c9619b6742c833b5719c185a608a811a387900a1a9d906da40cfdcda59c293cc66456469ea34d6016090710094b40f73a99301f702295366",
            ],
        ),
        (
            Method::EcdhP384,
            48,
            [
                "819e4c7f1091509c2afd84d2",
                "4140e57472a9749ba866444690ea0179028fd354e8e0e9e920250647ea8952e5e8f95b2a652fe214b3627aec03c012b6a295e4d872a7c7b4ba2754e966816076",
                "94f722c4953b28d4a7a5755834aaf5d4050dfc3d7b8f062a06efc45eeb6659c6136ffb8e2e849ac4895ef257f3b7c8b10b277138781bea87f1256f7c4f3b33a8",
            ],
        ),
    ];
    for (method, len, answers) in cases {
        let (hash, session_id) = (row(len, 5, 3), row(len, 11, 9));
        let from = Derivation {
            method,
            secret: &secret,
            hash: &hash,
            session_id: &session_id,
        };
        let mut client = from.keys(true, Cipher::Aes128Gcm, None).unwrap();
        assert_eq!(
            hex(&client.secrets().unwrap().iv),
            answers[0],
            "{}",
            method.name()
        );
        // Longer than the hash: in more than one step.
        let mut client = from.keys(true, Cipher::ChaCha20Poly1305, None).unwrap();
        assert_eq!(
            hex(&client.secrets().unwrap().key),
            answers[1],
            "{}",
            method.name()
        );
        let mut server = from
            .keys(false, Cipher::Aes128Ctr, Some(Mac::HmacSha512Etm))
            .unwrap();
        assert_eq!(
            hex(&server.secrets().unwrap().mac_key),
            answers[2],
            "{}",
            method.name()
        );
    }
}

#[test]
fn an_exchange_is_hashed_as_others_do() {
    for (method, answer) in [
        (
            Method::EcdhP256,
            "7c93f003805da2833edd2a62db9be8278a88ab2a932635af47622328da7238f8",
        ),
        (
            Method::EcdhP384,
            "b322f282e4012595a6af058d5db37dd7a1edd7b1c92bf25ba31d8466854805632385c1f3a59620e43e2cb9165296594d",
        ),
    ] {
        let exchange = Exchange {
            kex: method.name().into(),
            host_key_algorithm: "ssh-ed25519".into(),
            client_version: b"SSH-2.0-c".to_vec(),
            server_version: b"SSH-2.0-s".to_vec(),
            client_kexinit: b"ic".to_vec(),
            server_kexinit: b"is".to_vec(),
            host_key: b"hk".to_vec(),
            client_share: b"qc".to_vec(),
            server_share: b"qs".to_vec(),
            secret: [&[0, 0, 0, 32][..], &row(32, 7, 1)].concat(),
        };
        assert_eq!(
            hex(exchange.hash().unwrap().as_ref()),
            answer,
            "{}",
            method.name()
        );
    }
}
