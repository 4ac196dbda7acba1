//! The ladder: which rungs work here, in which order they are taken, what moves it and what does not.
#![forbid(unsafe_code)]

use fleetgate_seal::{Death, Ladder, Options, Source, Strategy, Verdict};
use fleetgate_tests::helper;
use std::time::Duration;

fn options(order: &[Strategy]) -> Options {
    Options {
        order: order.to_vec(),
        ..Options::default()
    }
}

fn open(order: &[Strategy]) -> Ladder {
    Ladder::open(Source::File(helper()), options(order)).expect("a rung works")
}

#[test]
fn every_strategy_but_installed_works_here() {
    for strategy in Strategy::ALL.into_iter().skip(1) {
        let ladder = open(&[strategy]);
        let image = ladder.image().expect("an image");
        assert_eq!(image.strategy(), strategy);
        assert_eq!(image.name(), c"fleetgate-session");
        let again = ladder.image().expect("another");
        let same = image.fd().raw() == again.fd().raw();
        assert_eq!(same, strategy.is_shared(), "{strategy}");
    }
}

#[test]
fn an_accusation_without_proof_moves_nothing() {
    let ladder = open(&[Strategy::Memfd, Strategy::Plain]);
    let image = ladder.image().expect("an image");
    let death = Death::Killed {
        signal: 9,
        lived: Duration::from_millis(1),
    };
    for _ in 0..1000 {
        assert_eq!(ladder.image_failed(&image, death), Verdict::ImageIsFine);
    }
    assert!(ladder.report().moves.is_empty());
}
