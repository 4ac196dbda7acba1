//! A client and a server joined in memory, thousands of times, each time by another seed: which side reads, writes or
//! acts next, how many bytes move, what the owners do with their channels and when they answer, is chance. Time is
//! virtual; nothing waits. What must hold whatever happens is checked all along: bytes arrive whole and in order,
//! replies come in the order of the requests, output stays bounded, a channel that nobody reads holds up no other, and
//! in the end nothing is left over.
#![forbid(unsafe_code)]

mod chance;
mod login;
mod owner;
mod world;

use chance::Chance;
use world::{Fate, World};

/// Runs `count` worlds. One that breaks is named by its seed, so that it can be run alone.
fn run(first: u64, count: u64, fate: fn(&mut Chance) -> Fate) -> Summary {
    let mut sum = Summary::default();
    for seed in first..first + count {
        let told = Told(seed);
        let mut chance = Chance::new(seed);
        let fate = fate(&mut chance);
        let world = World::new(seed, chance, fate).run();
        sum.channels += world.channels();
        sum.bytes += world.bytes();
        sum.exchanges += world.exchanges();
        sum.moves += world.moves();
        sum.broken += u64::from(world.broken());
        std::mem::forget(told);
    }
    sum
}

#[derive(Debug, Default)]
struct Summary {
    channels: u64,
    bytes: u64,
    exchanges: u64,
    moves: u64,
    broken: u64,
}

/// Names the seed when a world breaks.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        eprintln!("it was seed {}", self.0);
    }
}

#[test]
fn whatever_the_order_everything_arrives() {
    let sum = run(0, 2000, |_| Fate::End);
    // That chance did what it is there for.
    assert!(sum.channels > 3_000, "{sum:?}");
    assert!(sum.bytes > 10_000_000, "{sum:?}");
    assert!(sum.exchanges > 4_200, "{sum:?}");
    assert!(sum.moves > 100, "{sum:?}");
    assert_eq!(sum.broken, 0, "{sum:?}");
}

#[test]
fn a_cut_or_altered_connection_delivers_nothing_wrong() {
    let sum = run(1_000_000, 600, |chance| {
        let at = chance.below(30_000);
        if chance.percent(50) {
            Fate::Cut { at }
        } else {
            Fate::Altered { at }
        }
    });
    assert!(sum.broken > 100, "{sum:?}");
    assert!(sum.bytes > 100_000, "{sum:?}");
}
