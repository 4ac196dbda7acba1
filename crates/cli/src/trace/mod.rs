//! `fleetgate trace`: what a command line asks for, put together; the tracing itself is the crate `trace`.

mod options;
mod start;
mod status;

use crate::flags::{Arguments, Outcome};
use crate::output::print;
use fleetgate_calls::abi::Call;
use fleetgate_calls::filter;
use fleetgate_sys::signals;
use fleetgate_trace::catch::End;
use fleetgate_trace::interrupt::{Does, Interrupt};
use fleetgate_trace::report::Reports;
use fleetgate_trace::report::diff::{Difference, Side};
use fleetgate_trace::report::output::Output;
use fleetgate_trace::report::picture::Picture;
use fleetgate_trace::report::sums::Sums;
use fleetgate_trace::run::{Over, Run};
use options::{Subject, TraceOptions};
use std::fs::File;
use std::io::Write;

/// `trace`
pub fn run(given: &Arguments) -> Outcome {
    if given.has("status") {
        return match given.operands.is_empty() {
            true => status::run(given.has("json")),
            false => Err(given.wrong("`--status` runs nothing: leave the rest away").into()),
        };
    }
    if given.has("diff") {
        return differ(given);
    }
    let options = TraceOptions::read(given).map_err(|why| given.wrong(why))?;
    match &options.subject {
        Subject::Filter => {
            let program = start::filter(&options)?;
            print(&filter::show(&program, &Call::name))
        }
        Subject::Command(_) | Subject::Processes(_) => trace(&options),
    }
}

/// As diff(1): 0 where nothing differs, 1 where something does, 2 where there is trouble.
fn differ(given: &Arguments) -> Outcome {
    let [first, second] = given.operands.as_slice() else {
        let words = "`--diff` compares two files that `fleetgate trace --json -o FILE` wrote";
        return Err(given.wrong(words).into());
    };
    let read = |path: &std::ffi::OsStr| Side::read(path.as_ref());
    let (a, b) = match (read(first), read(second)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(why), _) | (_, Err(why)) => {
            eprintln!("fleetgate: {why}");
            return Ok(2);
        }
    };
    let difference = Difference::between(&a, &b);
    print(&match given.has("json") {
        true => format!("{:#}\n", difference.document()),
        false => difference.text(&first.to_string_lossy(), &second.to_string_lossy()),
    })?;
    Ok(i32::from(!difference.is_empty()))
}

fn trace(options: &TraceOptions) -> Outcome {
    let output = Output::open(&options.target)?;
    // A picture that could not be written is better known now than after the build.
    let picture = match &options.svg {
        Some(path) => Some(File::create(path).map_err(|e| format!("{}: {e}", path.display()))?),
        None => None,
    };
    let mut started = start::start(options)?;
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
        log: options.log(output),
        sums: options.sums.map(|sums| Sums::new(sums.wall, sums.sort)),
        picture: picture.as_ref().map(|_| Picture::default()),
    };
    reports.log.output().begin();
    let over = Run {
        catch: started.way.catch(),
        reports: &mut reports,
        relatives: started.relatives.take(),
        wanted: &mut *options.wanted(),
        addresses: options.addresses,
        results: options.results,
        first: started.first,
        is_told_to_leave: &|| interrupt.is_told_to_leave(),
    }
    .run();
    let drawn = reports.close(options.json);
    if let (Some(mut file), Some(picture)) = (picture, drawn) {
        let title = options.subject.to_string();
        file.write_all(picture.svg(&title).as_bytes())
            .map_err(|e| format!("{}: {e}", options.svg.as_deref().unwrap_or("".as_ref()).display()))?;
    }
    let end = match over? {
        Over::Left => None,
        Over::Ended(end) => end.or(started.way.end()),
    };
    match end {
        Some(End::Exited(code)) => Ok(code),
        Some(End::Killed(signal, _)) => signals::end_by(signal),
        Some(End::Left) | None => Ok(0),
    }
}
