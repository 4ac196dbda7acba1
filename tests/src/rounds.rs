//! Rounds in which somebody is killed at a random moment: the random numbers of a seed, how many rounds there are, and what
//! of a recording was on a disk before a kill.

use fleetgate_record::frame::{Frames, Kind};
use fleetgate_record::reader::{Content, Reader};
use fleetgate_record::tail;
use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

/// splitmix64.
pub struct Random(u64);

impl Random {
    /// From `FLEETGATE_SEED`, or else from the clock; prints what repeats the run.
    pub fn of_run(rounds: u64) -> (Random, u64) {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seed = number("FLEETGATE_SEED").unwrap_or_else(|| clock.expect("after 1970").as_secs());
        println!("{rounds} rounds: FLEETGATE_SEED={seed} repeats them");
        (Random(seed), seed)
    }

    /// A number below this bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// `FLEETGATE_ROUNDS`, or else this many.
pub fn rounds(default: u64) -> u64 {
    number("FLEETGATE_ROUNDS").unwrap_or(default)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// What of a recording is on the disk: nobody's death may take it away.
#[derive(Debug, Default)]
pub struct Saved {
    /// The chain behind each block.
    pub chains: Vec<Vec<u8>>,
    /// So many blocks are signed.
    pub signed: u64,
    /// What the terminal showed, in blocks and tail.
    pub shown: Vec<u8>,
}

impl Saved {
    /// Reads what there is, while it is being written.
    pub fn now(path: &Path) -> Saved {
        let mut saved = Saved::default();
        // The tail comes first: if its block is closed meanwhile, it is one of the block before.
        let open = std::fs::read(path.with_extension("tail")).unwrap_or_default();
        let mut reader = Reader::new(File::open(path).expect("a recording")).expect("a beginning");
        // The last block may be on its way.
        while let Ok(Some(block)) = reader.next_block() {
            if let Content::Signature { statement, .. } = &block.content {
                saved.signed = statement.blocks;
            }
            show(block.frames(), &mut saved.shown);
            saved.chains.push(reader.chain().to_vec());
        }
        let open = tail::read(&open, reader.anchor());
        show(Frames::new(&open.plain, open.first), &mut saved.shown);
        saved
    }

    /// That the recording, as it is now, has all of it.
    pub fn is_in(&self, path: &Path, round: &str) {
        let after = Saved::now(path);
        assert!(after.chains.starts_with(&self.chains), "{round}: a block is gone");
        assert!(after.signed >= self.signed, "{round}: a signature is gone");
        assert!(
            after.shown.starts_with(&self.shown),
            "{round}: {} bytes were on the disk, and {} are there",
            self.shown.len(),
            after.shown.len()
        );
    }
}

fn show(frames: Frames<'_>, out: &mut Vec<u8>) {
    for frame in frames.map_while(Result::ok).filter(|f| f.kind == Kind::Output) {
        out.extend_from_slice(frame.bytes);
    }
}
