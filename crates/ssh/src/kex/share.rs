//! The key exchange methods: each side's share, and the secret that both come to. The primitives are ring's and
//! ml-kem's.

use crate::codec::Write;
use crate::method::Method;
use crate::random;
use ml_kem::kem::{Decapsulate, DecapsulationKey, EncapsulationKey};
use ml_kem::{
    B32, Ciphertext, EncapsulateDeterministic, Encoded, EncodedSizeUser, KemCore, MlKem768, MlKem768Params,
};
use ring::agreement::{self, ECDH_P256, ECDH_P384, EphemeralPrivateKey, UnparsedPublicKey, X25519};
use ring::digest;
use ring::rand::SystemRandom;
use zeroize::{Zeroize, Zeroizing};

/// An encapsulation key and a ciphertext of ML-KEM-768 (FIPS 203 §8); a public share of X25519.
const EK: usize = 1184;
const CT: usize = 1088;
const X: usize = 32;

/// The secret as it stands in the exchange hash: an encoded mpint, or a string for the post-quantum method.
pub(crate) type Secret = Zeroizing<Vec<u8>>;

/// A share that is not one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadShare;

/// A client's half.
pub(crate) struct ClientShare {
    method: Method,
    private: EphemeralPrivateKey,
    /// Boxed: 2.4 KB for the time between two messages. Wiped when it goes.
    kem: Option<Box<DecapsulationKey<MlKem768Params>>>,
    public: Vec<u8>,
}

impl Method {
    /// Lengths of the client's and the server's share.
    pub(crate) fn share_lengths(self) -> (usize, usize) {
        match self {
            Method::MlKem768X25519 => (EK + X, CT + X),
            Method::Curve25519 | Method::Curve25519Libssh => (X, X),
            Method::EcdhP256 => (65, 65),
            Method::EcdhP384 => (97, 97),
        }
    }

    /// The hash of the exchange and of the keys.
    pub(crate) fn hash(self) -> &'static digest::Algorithm {
        match self {
            Method::EcdhP384 => &digest::SHA384,
            _ => &digest::SHA256,
        }
    }

    fn curve(self) -> &'static agreement::Algorithm {
        match self {
            Method::MlKem768X25519 | Method::Curve25519 | Method::Curve25519Libssh => &X25519,
            Method::EcdhP256 => &ECDH_P256,
            Method::EcdhP384 => &ECDH_P384,
        }
    }
}

impl ClientShare {
    /// A fresh one.
    pub(crate) fn new(method: Method) -> ClientShare {
        let (private, curve_public) = key_pair(method);
        let mut public = Vec::with_capacity(method.share_lengths().0);
        let kem = (method == Method::MlKem768X25519).then(|| {
            let (mut d, mut z) = (random32(), random32());
            let (decapsulation, encapsulation) = MlKem768::generate_deterministic(&d, &z);
            d.as_mut_slice().zeroize();
            z.as_mut_slice().zeroize();
            public.extend_from_slice(&encapsulation.as_bytes());
            Box::new(decapsulation)
        });
        public.extend_from_slice(curve_public.as_ref());
        ClientShare {
            method,
            private,
            kem,
            public,
        }
    }

    /// Of which method.
    pub(crate) fn method(&self) -> Method {
        self.method
    }

    /// What is sent.
    pub(crate) fn public(&self) -> &[u8] {
        &self.public
    }

    /// The secret, by the server's share. What was sent comes back with it.
    pub(crate) fn agree(self, server: &[u8]) -> Result<(Vec<u8>, Secret), BadShare> {
        if server.len() != self.method.share_lengths().1 {
            return Err(BadShare);
        }
        let (ciphertext, curve) = server.split_at(server.len() - self.method.curve_len());
        let kem = match self.kem {
            Some(key) => {
                let ciphertext = Ciphertext::<MlKem768>::try_from(ciphertext).map_err(|_| BadShare)?;
                Some(Zeroizing::new(
                    key.decapsulate(&ciphertext).map_err(|_| BadShare)?.into(),
                ))
            }
            None => None,
        };
        Ok((self.public, agree(self.method, self.private, curve, kem)?))
    }
}

/// A server's half: its share and the secret, by the client's share.
pub(crate) fn respond(method: Method, client: &[u8]) -> Result<(Vec<u8>, Secret), BadShare> {
    if client.len() != method.share_lengths().0 {
        return Err(BadShare);
    }
    let (encapsulation, curve) = client.split_at(client.len() - method.curve_len());
    let mut public = Vec::with_capacity(method.share_lengths().1);
    let kem = if method == Method::MlKem768X25519 {
        let encoded =
            Encoded::<EncapsulationKey<MlKem768Params>>::try_from(encapsulation).map_err(|_| BadShare)?;
        let key = EncapsulationKey::<MlKem768Params>::from_bytes(&encoded);
        // FIPS 203 §7.2: coefficients are below the modulus, which is so exactly where they encode to the same bytes.
        if key.as_bytes() != encoded {
            return Err(BadShare);
        }
        let mut m = random32();
        let (ciphertext, secret) = key.encapsulate_deterministic(&m).map_err(|()| BadShare)?;
        m.as_mut_slice().zeroize();
        public.extend_from_slice(&ciphertext);
        Some(Zeroizing::new(secret.into()))
    } else {
        None
    };
    let (private, curve_public) = key_pair(method);
    public.extend_from_slice(curve_public.as_ref());
    Ok((public, agree(method, private, curve, kem)?))
}

impl Method {
    fn curve_len(self) -> usize {
        match self {
            Method::MlKem768X25519 => X,
            _ => self.share_lengths().0,
        }
    }
}

fn key_pair(method: Method) -> (EphemeralPrivateKey, agreement::PublicKey) {
    let private = EphemeralPrivateKey::generate(method.curve(), &SystemRandom::new())
        .expect("the kernel gives random bytes once it has started");
    let public = private
        .compute_public_key()
        .expect("a fresh key has its public half");
    (private, public)
}

fn agree(
    method: Method,
    private: EphemeralPrivateKey,
    peer: &[u8],
    kem: Option<Zeroizing<[u8; 32]>>,
) -> Result<Secret, BadShare> {
    // ring refuses points off the curve and an all-zero result (RFC 8731 §3).
    let peer = UnparsedPublicKey::new(method.curve(), peer);
    agreement::agree_ephemeral(private, &peer, |shared| {
        let mut secret = Zeroizing::new(Vec::with_capacity(4 + 1 + shared.len()));
        match kem {
            Some(kem) => {
                let mut both = digest::Context::new(&digest::SHA256);
                both.update(&kem[..]);
                both.update(shared);
                secret.put_string(both.finish());
            }
            None => secret.put_mpint(shared),
        }
        secret
    })
    .map_err(|_| BadShare)
}

fn random32() -> B32 {
    let mut bytes = B32::default();
    random::fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_come_to_the_same_secret() {
        for method in Method::ALL {
            let client = ClientShare::new(method);
            let (server_share, server) = respond(method, client.public()).unwrap();
            assert_eq!(
                (client.public().len(), server_share.len()),
                method.share_lengths(),
                "{}",
                method.name()
            );
            let (_, secret) = client.agree(&server_share).unwrap();
            assert_eq!(secret, server, "{}", method.name());
        }
    }

    #[test]
    fn bad_shares_are_refused() {
        for method in Method::ALL {
            let (client, server) = method.share_lengths();
            let good = ClientShare::new(method);
            assert!(
                respond(method, good.public()).is_ok(),
                "control: {}",
                method.name()
            );
            // Too short, too long; all zeros is no point of the curves and gives an all-zero secret of X25519; all ones
            // has coefficients above ML-KEM's modulus.
            for share in [vec![4; client - 1], vec![4; client + 1], vec![0; client], vec![]] {
                assert!(
                    respond(method, &share).is_err(),
                    "{} {}",
                    method.name(),
                    share.len()
                );
            }
            assert!(ClientShare::new(method).agree(&vec![0; server]).is_err());
            assert!(ClientShare::new(method).agree(&vec![9; server + 1]).is_err());
        }
        let mut share = ClientShare::new(Method::MlKem768X25519).public().to_vec();
        share[..EK - 32].fill(0xff);
        assert!(respond(Method::MlKem768X25519, &share).is_err());
    }
}
