//! Any bytes as a recording that is on its way to auth, and blocks whose hashes are right with any content: never a panic, the
//! same proof in whatever pieces they come, and nothing is proven that did not come or that no signature covers.
#![no_main]

use fleetgate_archive::checker::{Checker, Proof};
use fleetgate_fuzz::recordings::sealed;
use fleetgate_record::signature::LastKey;
use libfuzzer_sys::fuzz_target;

fn feed(bytes: &[u8], piece: usize, is_signed: bool) -> Option<Proof> {
    let mut checker = Checker::new([7; 16]);
    let (mut fed, mut proof) = (0, None);
    let check = |_: &str, _: &[u8]| match is_signed {
        true => Ok(()),
        false => Err("of nobody".to_owned()),
    };
    for piece in bytes.chunks(piece) {
        if checker.feed(piece, &check).is_err() {
            break;
        }
        fed += piece.len() as u64;
        assert_eq!(checker.next(), fed);
        proof = checker.proof().copied().or(proof);
        if let Some(proof) = checker.proof() {
            assert!(is_signed && proof.covered.offset < proof.length && proof.length <= fed);
            // It goes on from there as well.
            let rest = &bytes[proof.covered.offset as usize..fed as usize];
            let mut again = Checker::resume([7; 16], proof.covered, vec![LastKey::of(b"")]);
            again.feed(rest, &check).expect("it was fed before");
            assert_eq!(again.next(), fed);
        }
    }
    proof
}

fuzz_target!(|data: &[u8]| {
    let (file, _, _) = sealed(data);
    for bytes in [data, &file] {
        let whole = feed(bytes, 4096, true);
        let pieces = feed(bytes, 61, true);
        // The last piece with a fault in it is not taken at all, so smaller ones may prove more.
        assert!(whole.is_none_or(|whole| pieces.is_some_and(|p| p.covered.offset >= whole.covered.offset)));
        assert_eq!(feed(bytes, 4096, false), None);
    }
});
