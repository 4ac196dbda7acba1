//! `fleetgate seal doctor`: every strategy, tried, with what came of it.

use crate::flags::Outcome;
use crate::images;
use crate::output::print;
use fleetgate_seal::{Error, FallbackChain, Options, Refusal, Report, Source, Strategy};
use serde_json::{Value, json};

/// Shows each strategy with what was found. The exit code is 1 when nothing works.
pub fn doctor(as_json: bool) -> Outcome {
    let source = images::SESSION.as_ref().map_or(Source::Itself, Source::Embedded);
    let report = match FallbackChain::open(source, Options::default()) {
        Ok(ladder) => {
            ladder.examine();
            ladder.report()
        }
        Err(Error::NoStrategy { source, refusals }) => return nothing_works(as_json, &source, &refusals),
        Err(e) => return Err(e.into()),
    };
    print(&if as_json {
        format!("{:#}\n", document(&report))
    } else {
        table(&report)
    })
}

fn document(report: &Report) -> Value {
    let strategies: Vec<Value> = report
        .strategies
        .iter()
        .map(|rung| {
            json!({
                "strategy": rung.strategy.name(),
                "available": rung.available == Some(true),
                "current": rung.strategy == report.current,
                "container": Strategy::CONTAINER.contains(&rung.strategy),
                "place": rung.place.as_ref().map(|p| p.display().to_string()),
                "why": rung.why,
                "refusals": rung.refusals.iter().map(refusal).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "image": report.name,
        "source": report.source,
        "current": report.current.name(),
        "strategies": strategies,
    })
}

fn refusal(refusal: &Refusal) -> Value {
    let errno = refusal.cause.errno();
    json!({
        "step": refusal.step.name(),
        "errno": errno.and_then(|e| e.name()),
        "path": refusal.path.as_ref().map(|p| p.display().to_string()),
        "cause": refusal.cause.to_string(),
    })
}

fn table(report: &Report) -> String {
    let mut text = format!("{}, from {}\n\n", report.name, report.source);
    for rung in &report.strategies {
        let mark = if rung.strategy == report.current {
            "->"
        } else {
            "  "
        };
        let word = if rung.available == Some(true) { "yes" } else { "no" };
        text += &format!("{mark} {:<10} {word:<4} {}\n", rung.strategy, rung.why);
    }
    let containers: Vec<&str> = report
        .strategies
        .iter()
        .filter(|r| r.available == Some(true) && Strategy::CONTAINER.contains(&r.strategy))
        .map(|r| r.strategy.name())
        .collect();
    text += "\n";
    text += &if containers.is_empty() {
        "containers: none of these may be taken into one, so they cannot be entered\n".to_owned()
    } else {
        format!("containers are entered with {}\n", containers.join(", else "))
    };
    text
}

fn nothing_works(as_json: bool, source: &str, refusals: &[Refusal]) -> Outcome {
    let why = |strategy: Strategy| {
        let all: Vec<String> = refusals
            .iter()
            .filter(|r| r.strategy == strategy)
            .map(Refusal::why)
            .collect();
        all.join("; ")
    };
    let text = if as_json {
        let strategies: Vec<Value> = Strategy::ALL
            .into_iter()
            .map(|s| json!({ "strategy": s.name(), "available": false, "current": false, "why": why(s) }))
            .collect();
        format!(
            "{:#}\n",
            json!({ "source": source, "current": null, "strategies": strategies })
        )
    } else {
        let mut text = format!("{source}: nothing can be executed from any image of it\n\n");
        for strategy in Strategy::ALL {
            text += &format!("   {strategy:<10} no   {}\n", why(strategy));
        }
        text
    };
    print(&text)?;
    Ok(1)
}
