//! Calls with their meaning, as text or as JSON: what [`crate::decode`] says, in the form that a report asks for.

use super::json::Json;
use super::text::Text;
use super::words::{EndingCall, Words};
use crate::catch::Enter;
use crate::decode::{self, CallProgress, Limits, Out};
use fleetgate_calls::memory::Memory;
use fleetgate_calls::select::Selection;

/// As strace prints them.
pub struct AsText(pub Choice);

/// As members of an object.
pub struct AsJson(pub Choice);

/// How much is said of which call.
#[derive(Clone, Debug)]
pub struct Choice {
    limits: Limits,
    raw: Selection,
    abbreviated: Selection,
    /// Neither selection says anything else than usual.
    plain: bool,
}

impl Choice {
    /// Calls in `raw` are shown as their registers, and only those in `abbreviated` are ever cut short.
    #[must_use]
    pub fn new(limits: Limits, raw: Selection, abbreviated: Selection) -> Choice {
        let plain = raw == Selection::none() && abbreviated == Selection::everything();
        Choice {
            limits,
            raw,
            abbreviated,
            plain,
        }
    }

    fn limits(&self, enter: &Enter) -> Limits {
        let wants = |selection: &Selection| {
            enter
                .call
                .is_some_and(|call| selection.wants(call, &enter.arguments))
        };
        if self.plain {
            return self.limits;
        }
        Limits {
            abbreviate: self.limits.abbreviate && wants(&self.abbreviated),
            raw: wants(&self.raw),
            ..self.limits
        }
    }
}

/// An [`Out`] into a buffer; text has results in a column, and a comma behind what was shown when a call began.
trait Form {
    fn choice(&self) -> &Choice;
    fn out<'a>(&self, into: &'a mut Vec<u8>, column: usize, comma: bool) -> impl Out + 'a;
    /// Whether the comma is written before the wait for what follows, as strace has it.
    const COMMA: bool;
}

impl Form for AsText {
    const COMMA: bool = true;

    fn choice(&self) -> &Choice {
        &self.0
    }

    fn out<'a>(&self, into: &'a mut Vec<u8>, column: usize, comma: bool) -> impl Out + 'a {
        Text::new(into, 0, column).behind_comma(comma)
    }
}

impl Form for AsJson {
    const COMMA: bool = false;

    fn choice(&self) -> &Choice {
        &self.0
    }

    fn out<'a>(&self, into: &'a mut Vec<u8>, _: usize, _: bool) -> impl Out + 'a {
        Json::new(into)
    }
}

impl<F: Form> Words for F {
    type CallProgress = CallProgress;

    fn begin(&mut self, enter: &Enter, memory: &dyn Memory, into: &mut Vec<u8>) -> CallProgress {
        let limits = self.choice().limits(enter);
        let begun = decode::begin(enter, memory, &limits, &mut self.out(into, 0, false));
        if F::COMMA && begun.awaits_argument() {
            into.extend_from_slice(b", ");
        }
        begun
    }

    fn is_whole(&self, begun: CallProgress) -> bool {
        begun.is_whole()
    }

    fn finish(
        &mut self,
        call: EndingCall<'_, CallProgress>,
        result: i64,
        memory: &dyn Memory,
        into: &mut Vec<u8>,
    ) {
        let limits = self.choice().limits(call.enter);
        let mut out = self.out(into, call.column, call.begun.awaits_argument());
        decode::finish(call.enter, call.begun, result, memory, &limits, &mut out);
    }

    fn abandon(&mut self, call: EndingCall<'_, CallProgress>, memory: &dyn Memory, into: &mut Vec<u8>) {
        let limits = self.choice().limits(call.enter);
        let mut out = self.out(into, call.column, call.begun.awaits_argument());
        decode::abandon(call.enter, call.begun, memory, &limits, &mut out);
    }
}
