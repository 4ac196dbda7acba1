//! The key exchange group X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem): ML-KEM-768 (FIPS 203) and X25519 together, so that
//! what is recorded today cannot be read by a quantum computer later. The primitives are ml-kem's and ring's; nothing of
//! a cipher is written here.

use ml_kem::kem::{Decapsulate, DecapsulationKey, EncapsulationKey};
use ml_kem::{
    B32, Ciphertext, EncapsulateDeterministic, Encoded, EncodedSizeUser, KemCore, MlKem768, MlKem768Params,
};
use ring::agreement::{self, EphemeralPrivateKey, UnparsedPublicKey, X25519};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};
use zeroize::{Zeroize, Zeroizing};

/// An encapsulation key and a ciphertext of ML-KEM-768 (FIPS 203 §8), a share of X25519. ML-KEM's part stands first.
const EK: usize = 1184;
const CT: usize = 1088;
const X: usize = 32;

/// The group, as rustls takes it.
pub(crate) static GROUP: &dyn SupportedKxGroup = &Hybrid;

#[derive(Debug)]
struct Hybrid;

/// A client's half.
struct Share {
    curve: EphemeralPrivateKey,
    /// Boxed: 2.4 KB for the time between two messages. Wiped when it goes.
    kem: Box<DecapsulationKey<MlKem768Params>>,
    public: Vec<u8>,
}

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let (mut d, mut z) = (random32()?, random32()?);
        let (kem, encapsulation) = MlKem768::generate_deterministic(&d, &z);
        d.as_mut_slice().zeroize();
        z.as_mut_slice().zeroize();
        let (curve, curve_public) = curve_pair()?;
        let mut public = Vec::with_capacity(EK + X);
        public.extend_from_slice(&encapsulation.as_bytes());
        public.extend_from_slice(curve_public.as_ref());
        Ok(Box::new(Share {
            curve,
            kem: Box::new(kem),
            public,
        }))
    }

    fn start_and_complete(&self, client: &[u8]) -> Result<CompletedKeyExchange, Error> {
        if client.len() != EK + X {
            return Err(BAD);
        }
        let (encapsulation, curve_peer) = client.split_at(EK);
        let encoded =
            Encoded::<EncapsulationKey<MlKem768Params>>::try_from(encapsulation).map_err(|_| BAD)?;
        let key = EncapsulationKey::<MlKem768Params>::from_bytes(&encoded);
        // FIPS 203 §7.2: coefficients are below the modulus, which is so exactly where they encode to the same bytes.
        if key.as_bytes() != encoded {
            return Err(BAD);
        }
        let mut m = random32()?;
        let encapsulated = key.encapsulate_deterministic(&m);
        m.as_mut_slice().zeroize();
        let (ciphertext, kem) = encapsulated.map_err(|()| BAD)?;
        let kem: Zeroizing<[u8; 32]> = Zeroizing::new(kem.into());
        let (curve, curve_public) = curve_pair()?;
        let mut pub_key = Vec::with_capacity(CT + X);
        pub_key.extend_from_slice(&ciphertext);
        pub_key.extend_from_slice(curve_public.as_ref());
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key,
            secret: agree(curve, curve_peer, Some(&kem))?,
        })
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

impl ActiveKeyExchange for Share {
    fn complete(self: Box<Self>, server: &[u8]) -> Result<SharedSecret, Error> {
        if server.len() != CT + X {
            return Err(BAD);
        }
        let (ciphertext, curve_peer) = server.split_at(CT);
        let ciphertext = Ciphertext::<MlKem768>::try_from(ciphertext).map_err(|_| BAD)?;
        let kem: Zeroizing<[u8; 32]> =
            Zeroizing::new(self.kem.decapsulate(&ciphertext).map_err(|_| BAD)?.into());
        agree(self.curve, curve_peer, Some(&kem))
    }

    /// The X25519 share alone is sent beside it, for a server that knows no more: it answers without a
    /// HelloRetryRequest.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((NamedGroup::X25519, &self.public[EK..]))
    }

    fn complete_hybrid_component(self: Box<Self>, server: &[u8]) -> Result<SharedSecret, Error> {
        agree(self.curve, server, None)
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

const BAD: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

fn curve_pair() -> Result<(EphemeralPrivateKey, agreement::PublicKey), Error> {
    let private =
        EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).map_err(|_| GetRandomFailed)?;
    let public = private.compute_public_key().map_err(|_| GetRandomFailed)?;
    Ok((private, public))
}

/// The secret: ML-KEM's, then X25519's. ring refuses an all-zero result (RFC 8446 §7.4.2).
fn agree(
    curve: EphemeralPrivateKey,
    peer: &[u8],
    kem: Option<&Zeroizing<[u8; 32]>>,
) -> Result<SharedSecret, Error> {
    agreement::agree_ephemeral(curve, &UnparsedPublicKey::new(&X25519, peer), |shared| {
        let mut both = Vec::with_capacity(32 + shared.len());
        if let Some(kem) = kem {
            both.extend_from_slice(&kem[..]);
        }
        both.extend_from_slice(shared);
        // SharedSecret wipes it.
        SharedSecret::from(both)
    })
    .map_err(|_| BAD)
}

fn random32() -> Result<B32, Error> {
    let mut bytes = B32::default();
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| GetRandomFailed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_come_to_the_same_secret() {
        let client = GROUP.start().unwrap();
        let server = GROUP.start_and_complete(client.pub_key()).unwrap();
        assert_eq!((client.pub_key().len(), server.pub_key.len()), (1216, 1120));
        let secret = client.complete(&server.pub_key).unwrap();
        assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
        assert_eq!(secret.secret_bytes().len(), 64);
    }

    #[test]
    fn the_classical_half_completes_alone() {
        let client = GROUP.start().unwrap();
        let (group, share) = client.hybrid_component().unwrap();
        assert_eq!(group, NamedGroup::X25519);
        let server = rustls::crypto::ring::kx_group::X25519
            .start_and_complete(share)
            .unwrap();
        let secret = client.complete_hybrid_component(&server.pub_key).unwrap();
        assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
    }

    #[test]
    fn bad_shares_are_refused() {
        let good = GROUP.start().unwrap().pub_key().to_vec();
        assert!(GROUP.start_and_complete(&good).is_ok(), "control");
        let mut above_the_modulus = good.clone();
        above_the_modulus[..EK - 32].fill(0xff);
        let mut zero_curve = good.clone();
        zero_curve[EK..].fill(0);
        for share in [
            &good[1..],
            &[good.as_slice(), &[0]].concat(),
            &above_the_modulus,
            &zero_curve,
            &[],
        ] {
            assert!(GROUP.start_and_complete(share).is_err(), "{}", share.len());
        }
        for answer in [vec![0; CT + X], vec![9; CT + X + 1], vec![9; CT + X - 1], vec![]] {
            assert!(
                GROUP.start().unwrap().complete(&answer).is_err(),
                "{}",
                answer.len()
            );
        }
    }
}
