//! What a process gives back when nothing has happened for a while: the pages of its code, which the kernel still has
//! and maps again at a touch, and large buffers. The next thing that happens finds it as it was; it costs some fifty
//! page faults once. It never wakes a process a second time for the same quiet.

use fleetgate_sys::pages::{Mappings, Program};

/// So long nothing happens before.
const AFTER_MS: u32 = 2000;

/// Where the program is in memory.
enum Place {
    Known(Program),
    /// To be read the first time that something is given back.
    Unread(Mappings),
    /// It cannot be told.
    Unknown,
}

/// Of one loop.
pub struct Rest {
    program: Place,
    /// Something happened since the last time.
    due: bool,
    /// The wait at hand ends for this.
    capped: bool,
}

impl Rest {
    /// To be made before the sandbox is entered: it reads where the program lies in memory.
    pub fn now() -> Rest {
        Rest::of(Program::find().map(Place::Known))
    }

    /// As [`Rest::now`], but it is read when it is needed, by a descriptor and read(2), and never by who ends before.
    pub fn later() -> Rest {
        Rest::of(Mappings::open().map(Place::Unread))
    }

    fn of<E>(program: Result<Place, E>) -> Rest {
        Rest {
            program: program.unwrap_or(Place::Unknown),
            due: true,
            capped: false,
        }
    }

    /// How long the loop may wait that is to end soon: what it has goes with it.
    pub fn wait_for_the_end(&mut self, timeout_ms: Option<u32>) -> Option<u32> {
        self.capped = false;
        timeout_ms
    }

    /// Something happened without an event.
    pub fn stir(&mut self) {
        self.due = true;
    }

    /// How long the loop may wait, if it otherwise would wait for `timeout_ms`.
    pub fn wait(&mut self, timeout_ms: Option<u32>) -> Option<u32> {
        self.capped = self.due && timeout_ms.is_none_or(|ms| ms > AFTER_MS);
        if self.capped { Some(AFTER_MS) } else { timeout_ms }
    }

    /// The wait ended with so many events. True: nothing happened for long enough, and the program's pages are given
    /// back; whoever keeps something else aside gives it back too.
    pub fn woke(&mut self, events: usize) -> bool {
        if events > 0 {
            self.due = true;
            return false;
        }
        if !self.capped {
            return false;
        }
        self.due = false;
        self.program = match std::mem::replace(&mut self.program, Place::Unknown) {
            Place::Unread(mappings) => mappings.read().map_or(Place::Unknown, Place::Known),
            known => known,
        };
        if let Place::Known(program) = &self.program {
            // Where the kernel refuses, they stay.
            let _ = program.release();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_once_for_each_quiet() {
        assert!(matches!(Rest::now().program, Place::Known(_)));
        let mut rest = Rest::later();
        assert!(matches!(rest.program, Place::Unread(_)));
        // (what the loop would wait for, what it waits for, events, whether it rests)
        for (row, (would, waits, events, rests)) in [
            (None, Some(AFTER_MS), 1, false),
            (Some(10), Some(10), 0, false),
            (Some(AFTER_MS + 1), Some(AFTER_MS), 0, true),
            (None, None, 0, false),
            (Some(AFTER_MS + 1), Some(AFTER_MS + 1), 2, false),
            (None, Some(AFTER_MS), 0, true),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(rest.wait(would), waits, "row {row}");
            assert_eq!(rest.woke(events), rests, "row {row}");
        }
        assert!(matches!(rest.program, Place::Known(_)));
        // Who is about to end does not rest before.
        assert_eq!(rest.wait(None), None);
        rest.woke(1);
        assert_eq!((rest.wait_for_the_end(None), rest.woke(0)), (None, false));
    }
}
