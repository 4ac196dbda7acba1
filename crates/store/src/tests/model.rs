//! Compare-and-set against a model: the same random requests to a map in memory and to the store, which must say the
//! same each time, also through a close in between.

use super::{Home, block, key, prefix, value};
use crate::{Change, Conflict, Entry, Expect, Key, Outcome, Range, Revision, Step, Store, Then, Update, all};
use std::collections::{BTreeMap, BTreeSet};

/// A linear congruential generator (Knuth's MMIX constants): the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What the store should be.
#[derive(Default)]
struct Model {
    entries: BTreeMap<Key, Entry>,
    revision: u64,
    updates: Vec<Update>,
}

impl Model {
    fn transact(&mut self, steps: &[Step]) -> Outcome {
        for (number, step) in steps.iter().enumerate() {
            let found = self.entries.get(&step.key);
            let fits = match step.expect {
                Expect::Anything => true,
                Expect::Absent => found.is_none(),
                Expect::At(revision) => found.map(|e| e.revision) == Some(revision),
            };
            if !fits {
                return Outcome::Conflict(Conflict {
                    step: number,
                    found: found.cloned(),
                });
            }
        }
        let revision = Revision(self.revision + 1);
        let mut changes = Vec::new();
        for step in steps {
            let key = step.key.clone();
            match &step.then {
                Then::Put { value, lease } => {
                    let entry = Entry {
                        key: key.clone(),
                        value: value.clone(),
                        revision,
                        lease: *lease,
                    };
                    self.entries.insert(key, entry.clone());
                    changes.push(Change::Put(entry));
                }
                Then::Delete => {
                    if self.entries.remove(&key).is_some() {
                        changes.push(Change::Delete(key));
                    }
                }
                Then::Keep => {}
            }
        }
        if !changes.is_empty() {
            self.revision += 1;
            self.updates.push(Update { revision, changes });
        }
        Outcome::Done(Revision(self.revision))
    }

    /// A step that is often right and often wrong.
    fn step(&self, dice: &mut Dice, key: Key) -> Step {
        let there = self.entries.get(&key).map(|e| e.revision);
        let expect = match dice.roll(6) {
            0 => Expect::Anything,
            1 => Expect::Absent,
            2 => Expect::At(Revision(dice.roll(self.revision + 2))),
            _ => there.map_or(Expect::Absent, Expect::At),
        };
        let then = match dice.roll(5) {
            0 => Then::Delete,
            1 => Then::Keep,
            _ => Then::Put {
                value: value(&"v".repeat(dice.roll(300) as usize)),
                lease: None,
            },
        };
        Step { key, expect, then }
    }
}

#[test]
fn compare_and_set_is_what_a_map_in_memory_does() {
    for seed in [1, 20, 300] {
        let home = Home::new();
        let (mut dice, mut model) = (Dice(seed), Model::default());
        let mut outcomes = [0, 0];
        for _ in 0..4 {
            let store = home.open();
            for _ in 0..100 {
                let keys: BTreeSet<Key> = (0..=dice.roll(3))
                    .map(|_| key(&format!("/k/{}", dice.roll(8))))
                    .collect();
                let steps: Vec<Step> = keys.into_iter().map(|k| model.step(&mut dice, k)).collect();
                let ours = block(store.transact(steps.clone())).unwrap();
                let theirs = model.transact(&steps);
                assert_eq!(ours, theirs, "seed {seed}: {steps:?}");
                outcomes[usize::from(matches!(ours, Outcome::Done(_)))] += 1;
                let one = key(&format!("/k/{}", dice.roll(8)));
                assert_eq!(block(store.get(&one)).unwrap(), model.entries.get(&one).cloned());
            }
            let (entries, revision) = block(all(&store, &prefix("/k/"))).unwrap();
            assert_eq!(entries, model.entries.values().cloned().collect::<Vec<_>>());
            assert_eq!(revision, Revision(model.revision));
        }
        assert!(outcomes.iter().all(|n| *n > 100), "seed {seed}: {outcomes:?}");
        let store = home.open();
        let mut watch = block(store.watch(prefix("/"), Revision(0))).unwrap();
        for update in &model.updates {
            assert_eq!(block(watch.next()).as_ref(), Ok(update));
        }
    }
}

/// Many add one to the same number, each by reading and compare-and-set: none is lost.
#[test]
fn nobody_overwrites_what_he_has_not_read() {
    const WRITERS: usize = 4;
    const EACH: usize = 50;
    let home = Home::new();
    let store = home.open();
    let counter = key("/counter");
    block(store.put(counter.clone(), value("0"), None)).unwrap();
    let add = || {
        loop {
            let entry = block(store.get(&counter)).unwrap().unwrap();
            let number: usize = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
            let more = value(&(number + 1).to_string());
            let step = Step::replace(counter.clone(), entry.revision, more);
            if let Outcome::Done(_) = block(store.compare_and_set(step)).unwrap() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| (0..EACH).for_each(|_| add()));
        }
    });
    let end = block(store.get(&counter)).unwrap().unwrap();
    assert_eq!(&*end.value, (WRITERS * EACH).to_string().as_bytes());
    assert_eq!(end.revision, Revision((WRITERS * EACH + 1) as u64));
    let page = block(store.range(Range::prefix(&prefix("")))).unwrap();
    assert_eq!(page.entries.len(), 1);
}
