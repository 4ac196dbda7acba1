//! Newer certificates: when they are asked for, which is when a third of their life is left, their authority retires or the host
//! has other keys, and which of those that came are taken: only what was asked for. It sends and writes nothing.

use crate::identity::NodeIdentity;
use fleetgate_net::tls::{Trust, node_name};
use fleetgate_net::x509::{Certificate, Key};
use fleetgate_policy::cluster::{Retiring, State, Subject, Trust as PolicyTrust};
use fleetgate_ssh::key::{Certificate as HostCertificate, PublicKey};
use std::cmp::Ordering;
use std::ops::Range;
use std::time::Duration;

/// An answer is waited for, and a refusal slept over, so long at least and at most.
pub const AGAIN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));
/// Clocks may differ by so much.
const SKEW: u64 = 60;

/// When (Unix seconds) newer ones are asked for.
pub fn due(validity: &Range<u64>) -> u64 {
    validity.end - validity.end.saturating_sub(validity.start) / 3
}

/// When newer ones are asked for because an authority that signed one of these signs no more; none: no such authority.
pub fn retirement(of: &NodeIdentity, trust: &PolicyTrust, now: u64) -> Option<Retiring> {
    let signed_host = |ca: &[u8]| {
        let certificates = of.host_certificates.iter();
        let mut read = certificates.filter_map(|blob| HostCertificate::parse(blob).ok());
        read.any(|certificate| certificate.ca().blob() == ca)
    };
    let signed_tls = |ca: &Vec<u8>| {
        Trust::new(std::slice::from_ref(ca)).is_ok_and(|trust| trust.check_client(&of.tls_chain, now).is_ok())
    };
    let all = trust.retiring.iter();
    let ours = all.filter(|r| signed_host(&r.authority) || signed_tls(&r.authority));
    ours.min_by_key(|r| r.until).cloned()
}

/// Whether its host certificates are for these keys. Where they are not, the cluster knows the host by keys that it has no more:
/// users are not shown the new ones, and auth refuses what they signed.
pub fn is_for(of: &NodeIdentity, host_keys: &[Vec<u8>]) -> bool {
    let certificates = of.host_certificates.iter();
    let certificates: Vec<HostCertificate> = certificates
        .filter_map(|blob| HostCertificate::parse(blob).ok())
        .collect();
    let is_certified = |key: &Vec<u8>| {
        certificates
            .iter()
            .any(|certificate| certificate.key().blob() == key)
    };
    let is_there =
        |certificate: &HostCertificate| host_keys.iter().any(|key| certificate.key().blob() == key);
    host_keys.iter().all(is_certified) && certificates.iter().all(is_there)
}

/// Where in the time for it this machine asks: another place for each, and the same one every time.
pub fn place(of: &NodeIdentity) -> u32 {
    let leaf = of.tls_chain.first().map_or(&[][..], Vec::as_slice);
    let last = leaf.last_chunk().copied().unwrap_or_default();
    u32::from_be_bytes(last)
}

/// How long after one try the next is made: a certificate of an hour is worth more tries than one of a month.
pub fn again(validity: &Range<u64>) -> Duration {
    let life = Duration::from_secs(validity.end.saturating_sub(validity.start));
    (life / 50).clamp(AGAIN.0, AGAIN.1)
}

/// What came of a request: `old` with newer certificates, or the sentence that says why not. Each must be of an authority
/// of the state, for our own key and in our own name.
pub fn accept(
    old: &NodeIdentity,
    key: &Key,
    host_keys: &[Vec<u8>],
    state: &State,
    tls_chain: Vec<Vec<u8>>,
    host_certificates: Vec<Vec<u8>>,
    now: u64,
) -> Result<NodeIdentity, String> {
    let bad = |why: String| format!("the certificates that came are not ours: {why}");
    let first = tls_chain.first().map(Vec::as_slice).unwrap_or_default();
    let leaf = Certificate::read(first).map_err(|e| bad(e.to_string()))?;
    // A proxy may have kept an earlier answer, and would let ours run out by it. First, since it costs no signature. Where the host
    // got other keys right after a renewal, the answer to that may end in the same second.
    let present = old.tls_chain.first().and_then(|der| Certificate::read(der).ok());
    let is_earlier = |present: Certificate| match leaf.validity().end.cmp(&present.validity().end) {
        Ordering::Less => true,
        Ordering::Equal => is_for(old, host_keys),
        Ordering::Greater => false,
    };
    if present.is_some_and(is_earlier) {
        return Err(bad("they end no later than those that are there".to_owned()));
    }
    let trust = Trust::new(&state.trust.tls_ca).map_err(|e| e.to_string())?;
    // Ours may be behind the clock of whoever signed it.
    trust
        .check_client(&tls_chain, now)
        .or_else(|_| trust.check_client(&tls_chain, now + SKEW))
        .map_err(|e| bad(e.to_string()))?;
    if leaf.public() != key.public().spki() {
        return Err(bad("the TLS certificate is for another key".to_owned()));
    }
    let identity = leaf.identity().map_err(|e| bad(e.to_string()))?;
    let is_ours = identity.is_some_and(|i| {
        i.cluster.as_str() == old.cluster
            && matches!(&i.subject, Subject::Node(name) if name.as_str() == old.node)
    });
    if !is_ours || !leaf.names().contains(&node_name(&old.node)) {
        return Err(bad("the TLS certificate is for another name".to_owned()));
    }
    let read = |blob: &Vec<u8>| HostCertificate::parse(blob).map_err(|e| bad(e.to_string()));
    let certificates: Vec<HostCertificate> = host_certificates.iter().map(read).collect::<Result<_, _>>()?;
    let before: Vec<HostCertificate> = old
        .host_certificates
        .iter()
        .filter_map(|blob| read(blob).ok())
        .collect();
    let ends = |all: &[HostCertificate], key: &[u8]| {
        let of_key = all.iter().filter(|certificate| certificate.key().blob() == key);
        of_key.map(HostCertificate::valid_before).max()
    };
    // Without one, users would not know the node any more.
    if host_keys
        .iter()
        .any(|key| ends(&certificates, key) < ends(&before, key))
    {
        return Err(bad(
            "a host key that has one gets none, or one that ends before it".to_owned(),
        ));
    }
    for certificate in &certificates {
        if !host_keys.iter().any(|key| key == certificate.key().blob()) {
            return Err(bad("a host certificate is for another key".to_owned()));
        }
        let is_ca = |ca: &PublicKey| state.trust.host_ca.iter().any(|blob| blob == ca.blob());
        certificate
            .check_host(&old.node, now, SKEW, is_ca)
            .map_err(|e| bad(e.to_string()))?;
    }
    Ok(NodeIdentity {
        tls_chain,
        host_certificates,
        ..old.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_net::x509::{Authority, Leaf};
    use fleetgate_policy::cluster::{Identity, Name};
    use fleetgate_ssh::key::{CertificateKind, Draft, KeyType, PrivateKey};

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn two_thirds_of_a_life_go_by() {
        assert_eq!(due(&(100..400)), 300);
        assert_eq!(again(&(0..60)), AGAIN.0);
        assert_eq!(again(&(0..3600)), Duration::from_secs(72));
        assert_eq!(again(&(0..30 * 86_400)), AGAIN.1);
    }

    fn issue(authority: &Authority, key: &Key, node: &str, validity: Range<u64>) -> Vec<u8> {
        let name = |text: &str| Name::parse(text).expect("a name");
        let identity = Identity::of(&name("home"), Subject::Node(name(node)), NOW);
        let names = [node_name(node)];
        authority
            .issue(&Leaf {
                public: key.public().spki(),
                names: &names,
                client: true,
                server: true,
                identity: Some(&identity),
                validity,
            })
            .expect("issued")
    }

    #[test]
    fn only_our_own_certificates_of_the_states_authorities_are_taken() {
        let life = NOW - 10..NOW + 3600;
        let authority = Authority::generate("home", NOW - 100..NOW + 100_000).expect("made");
        let stranger = Authority::generate("home", NOW - 100..NOW + 100_000).expect("made");
        let (key, other) = (Key::generate(), Key::generate());
        let old = NodeIdentity {
            cluster: "home".into(),
            node: "web1".into(),
            proxies: Vec::new(),
            tls_chain: Vec::new(),
            host_certificates: Vec::new(),
            labels: Default::default(),
        };
        let mut state = State::new(Name::parse("home").expect("a name"));
        state.trust.tls_ca = vec![authority.certificate().der().to_vec()];
        let take = |leaf: Vec<u8>, host: Vec<Vec<u8>>| accept(&old, &key, &[], &state, vec![leaf], host, NOW);
        let good = issue(&authority, &key, "web1", life.clone());
        assert_eq!(
            take(good.clone(), Vec::new()).map(|i| i.tls_chain),
            Ok(vec![good.clone()])
        );
        for (what, leaf, host) in [
            (
                "of a stranger",
                issue(&stranger, &key, "web1", life.clone()),
                Vec::new(),
            ),
            (
                "another key's",
                issue(&authority, &other, "web1", life.clone()),
                Vec::new(),
            ),
            (
                "another node's",
                issue(&authority, &key, "web2", life.clone()),
                Vec::new(),
            ),
            (
                "over",
                issue(&authority, &key, "web1", NOW - 50..NOW - 20),
                Vec::new(),
            ),
            ("none", b"none".to_vec(), Vec::new()),
            (
                "with a host certificate that is none",
                good,
                vec![b"none".to_vec()],
            ),
        ] {
            assert!(take(leaf, host).is_err(), "{what}");
        }
    }

    #[test]
    fn what_a_proxy_kept_of_an_earlier_renewal_is_not_taken_again_and_nothing_is_left_out() {
        let authority = Authority::generate("home", NOW - 100..NOW + 100_000).expect("made");
        let (ca, _) = PrivateKey::generate(KeyType::Ed25519, "").expect("a key");
        let (host, _) = PrivateKey::generate(KeyType::Ed25519, "").expect("a key");
        let key = Key::generate();
        let mut state = State::new(Name::parse("home").expect("a name"));
        state.trust.tls_ca = vec![authority.certificate().der().to_vec()];
        state.trust.host_ca = vec![ca.public().blob().to_vec()];
        let certified = |end: u64| {
            let draft = Draft {
                kind: CertificateKind::Host,
                serial: 1,
                key_id: "web1",
                principals: &["web1"],
                valid_after: NOW - 10,
                valid_before: end,
                critical: &[],
                extensions: &[],
            };
            let made = draft.sign(host.public(), &ca).expect("signed");
            made.blob().to_vec()
        };
        let made = |end: u64| issue(&authority, &key, "web1", NOW - 10..end);
        let old = NodeIdentity {
            cluster: "home".into(),
            node: "web1".into(),
            proxies: Vec::new(),
            tls_chain: vec![made(NOW + 1000)],
            host_certificates: vec![certified(NOW + 1000)],
            labels: Default::default(),
        };
        let keys = [host.public().blob().to_vec()];
        assert!(is_for(&old, &keys));
        let (other, _) = PrivateKey::generate(KeyType::Ed25519, "").expect("a key");
        let other = other.public().blob().to_vec();
        for (what, host_keys) in [
            ("another key", vec![other.clone()]),
            ("one more", vec![keys[0].clone(), other]),
            ("none", Vec::new()),
        ] {
            assert!(!is_for(&old, &host_keys), "{what}");
        }
        // For another key than the one that was certified in the same second.
        let before = NodeIdentity {
            host_certificates: Vec::new(),
            ..old.clone()
        };
        let again = |end: u64| {
            let (leaf, hosts) = (vec![made(end)], vec![certified(end)]);
            accept(&before, &key, &keys, &state, leaf, hosts, NOW).is_ok()
        };
        assert!(again(NOW + 1000) && !again(NOW + 999));
        let take = |leaf: u64, hosts: &[u64]| {
            let hosts = hosts.iter().map(|end| certified(*end)).collect();
            accept(&old, &key, &keys, &state, vec![made(leaf)], hosts, NOW).is_ok()
        };
        for (leaf, hosts, is_taken) in [
            (NOW + 2000, &[NOW + 2000][..], true),
            // An older one, and the very one that is had.
            (NOW + 500, &[NOW + 2000], false),
            (NOW + 1000, &[NOW + 2000], false),
            (NOW + 2000, &[NOW + 500], false),
            // Users would not know the node any more.
            (NOW + 2000, &[], false),
        ] {
            assert_eq!(take(leaf, hosts), is_taken, "{leaf} {hosts:?}");
        }
    }
}
