//! `fleetgate trace`: what was asked, put together; the tracing itself is the crate `trace`.

mod asked;
mod start;

use crate::flags::{Given, Outcome};
use crate::print;
use asked::{Asked, Subject};
use fleetgate_sys::process;
use fleetgate_trace::abi::Call;
use fleetgate_trace::catch::End;
use fleetgate_trace::filter::{self, Answers};
use fleetgate_trace::interrupt::{Does, Interrupt};
use fleetgate_trace::report::Reports;
use fleetgate_trace::report::output::Output;
use fleetgate_trace::report::picture::Picture;
use fleetgate_trace::report::sums::Sums;
use fleetgate_trace::run::{Over, Run};
use std::fs::File;
use std::io::Write;

/// `trace`
pub fn run(given: &Given) -> Outcome {
    let asked = Asked::read(given)?;
    match &asked.subject {
        Subject::Filter => {
            let answers = match asked.notify {
                true => Answers::notify(),
                false => Answers::trace(0),
            };
            let program = filter::compile(&asked.expressions.trace, &answers)?;
            print(&filter::show(&program, &Call::name))
        }
        Subject::Command(_) | Subject::Processes(_) => trace(&asked),
    }
}

fn trace(asked: &Asked) -> Outcome {
    let output = Output::open(&asked.target)?;
    // A picture that could not be written is better known now than after the build.
    let picture = match &asked.svg {
        Some(path) => Some(File::create(path).map_err(|e| format!("{}: {e}", path.display()))?),
        None => None,
    };
    let mut started = start::start(asked)?;
    for note in &started.notes {
        eprintln!("fleetgate: {note}");
    }
    let does = match started.first {
        Some(first) => Does::PassesOn(first),
        None => Does::Leaves,
    };
    let interrupt = Interrupt::begin(does)?;
    let wake = interrupt.descriptor().map_err(|e| format!("a descriptor: {e}"))?;
    started.way.wake_by(&wake);
    let mut reports = Reports {
        log: asked.log(output),
        sums: asked
            .sums
            .map(|sums| Sums::new(sums.wall, sums.sort)),
        picture: picture.as_ref().map(|_| Picture::default()),
    };
    reports.log.output().begin();
    let over = Run {
        catch: started.way.catch(),
        reports: &mut reports,
        relatives: started.relatives.take(),
        wanted: &mut *asked.wanted(),
        descriptors: asked.descriptors,
        results: asked.results,
        first: started.first,
        is_told_to_leave: &|| interrupt.is_told_to_leave(),
    }
    .run();
    let drawn = reports.close(asked.json);
    if let (Some(mut file), Some(picture)) = (picture, drawn) {
        let title = asked.subject.to_string();
        file.write_all(picture.svg(&title).as_bytes())
            .map_err(|e| format!("{}: {e}", asked.svg.as_deref().unwrap_or("".as_ref()).display()))?;
    }
    let end = match over? {
        Over::Left => None,
        Over::Ended(end) => end.or(started.way.end()),
    };
    match end {
        Some(End::Exited(code)) => Ok(code),
        Some(End::Killed(signal, _)) => process::end_by(signal),
        Some(End::Left) | None => Ok(0),
    }
}
