//! What a process gives back when nothing has happened for a while: the pages of its code, which the kernel still has
//! and maps again at a touch, and large buffers. The next thing that happens finds it as it was; it costs some fifty
//! page faults once. It never wakes a process a second time for the same quiet.

use fleetgate_sys::pages::Program;

/// So long nothing happens before.
const AFTER_MS: u32 = 2000;

/// Of one loop.
pub(crate) struct Rest {
    /// None where it cannot be told where the program is.
    program: Option<Program>,
    /// Something happened since the last time.
    due: bool,
    /// The wait at hand ends for this.
    capped: bool,
}

impl Rest {
    /// To be made before the sandbox is entered: it reads where the program lies in memory.
    pub(crate) fn new() -> Rest {
        Rest {
            program: Program::find().ok(),
            due: true,
            capped: false,
        }
    }

    /// How long the loop may wait, if it otherwise would wait for `timeout_ms`.
    pub(crate) fn wait(&mut self, timeout_ms: Option<u32>) -> Option<u32> {
        self.capped = self.due && timeout_ms.is_none_or(|ms| ms > AFTER_MS);
        if self.capped { Some(AFTER_MS) } else { timeout_ms }
    }

    /// The wait ended with so many events. True: nothing happened for long enough, and the program's pages are given
    /// back; whoever keeps something else aside gives it back too.
    pub(crate) fn woke(&mut self, events: usize) -> bool {
        if events > 0 {
            self.due = true;
            return false;
        }
        if !self.capped {
            return false;
        }
        self.due = false;
        if let Some(program) = &self.program {
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
        let mut rest = Rest::new();
        assert!(rest.program.is_some());
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
    }
}
