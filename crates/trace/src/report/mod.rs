//! What people read of a trace: lines as strace has them, JSON, sums, a picture, and what differs between two runs. Nothing
//! here touches a traced task, and everything that a traced program chose (paths, names, data) is escaped before it gets out.

pub mod decoded;
pub mod diff;
pub mod events;
pub mod json;
pub mod lines;
pub mod output;
pub mod picture;
pub mod signals;
pub mod sockets;
pub mod stamp;
pub mod sums;
pub mod text;
pub mod words;

use crate::catch::Event;
use fleetgate_calls::memory::Memory;
use output::Output;
use picture::Picture;
use stamp::Moment;
use sums::Sums;

/// Whoever writes down what happens while it does.
pub trait Log {
    /// Writes down what happened. Of calls that are not wanted it hears nothing.
    fn tell(&mut self, event: &Event, memory: &dyn Memory, now: Moment);

    /// Whether a moment is needed with each event.
    fn needs_time(&self) -> bool;

    /// Everybody was left.
    fn leave(&mut self, now: Moment);

    /// Where it writes.
    fn output(&mut self) -> &mut Output;

    /// Takes the way out back, at the end.
    fn into_output(self: Box<Self>) -> Output;
}

/// Nothing is written down while it happens.
pub struct Silent(pub Output);

impl Log for Silent {
    fn tell(&mut self, _: &Event, _: &dyn Memory, _: Moment) {}

    fn needs_time(&self) -> bool {
        false
    }

    fn leave(&mut self, _: Moment) {}

    fn output(&mut self) -> &mut Output {
        &mut self.0
    }

    fn into_output(self: Box<Self>) -> Output {
        self.0
    }
}

/// Everybody who is told.
pub struct Reports {
    /// Each event.
    pub log: Box<dyn Log>,
    /// The table at the end.
    pub sums: Option<Sums>,
    /// The picture at the end.
    pub picture: Option<Picture>,
}

impl Reports {
    /// Tells all of them.
    pub fn tell(&mut self, event: &Event, memory: &dyn Memory, now: Moment) {
        self.log.tell(event, memory, now);
        if let Some(sums) = &mut self.sums {
            sums.tell(event, now);
        }
        if let Some(picture) = &mut self.picture {
            picture.tell(event, now);
        }
    }

    /// Whether a moment is needed with each event.
    #[must_use]
    pub fn needs_time(&self) -> bool {
        self.sums.is_some() || self.picture.is_some() || self.log.needs_time()
    }

    /// Whether something is to be written before a wait.
    pub fn is_due(&mut self) -> bool {
        self.log.output().is_due()
    }

    /// Writes what has gathered.
    pub fn flush(&mut self) {
        self.log.output().flush();
    }

    /// Everybody was left.
    pub fn leave(&mut self, now: Moment) {
        self.log.leave(now);
    }

    /// The table behind the rest, and the end of all writing. The picture is left to whoever knows its file.
    pub fn close(self, as_json: bool) -> Option<Picture> {
        let mut output = self.log.into_output();
        if let Some(sums) = self.sums {
            let text = match as_json {
                true => format!("{}\n", sums.document()),
                false => sums.table(),
            };
            if output.is_each() {
                eprint!("{text}");
            } else {
                output.put(0, text.as_bytes());
            }
        }
        output.close();
        self.picture
    }
}
