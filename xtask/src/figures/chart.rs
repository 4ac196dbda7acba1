//! The plots of the figures page, as SVG for light and dark pages: lines over a load that grows, and bars.

use super::median;
use crate::graph::escaped;
use crate::shell::Result;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

const STYLE: &str = "text{font:12px sans-serif;fill:#1b1f24}.t{font-size:14px;font-weight:bold}.e{text-anchor:end}\
.m{text-anchor:middle}.g{stroke:#d0d7de}.l{fill:none;stroke:currentColor;stroke-width:2}.b{fill:currentColor}\
.c0{color:#0969da}.c1{color:#bc4c00}.c2{color:#1a7f37}.c3{color:#8250df}@media(prefers-color-scheme:dark){\
text{fill:#e6edf3}.g{stroke:#30363d}text.b{fill:currentColor}.c0{color:#58a6ff}.c1{color:#f0883e}.c2{color:#3fb950}\
.c3{color:#bc8cff}}";
const WIDTH: f64 = 640.0;

type Runs = BTreeMap<String, Value>;

/// A cost over a load, both drawn by their logarithm.
struct Lines {
    title: String,
    /// What is counted along the foot, and in what the cost is.
    axes: (&'static str, &'static str),
    /// Each line: its name, and its points.
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Values side by side, in groups.
struct Bars {
    title: String,
    unit: &'static str,
    /// Each group: its name, and each bar with its name.
    groups: Vec<(String, Vec<(String, f64)>)>,
}

/// Every plot that the runs allow, by name.
pub fn all(runs: &Runs) -> Result<Vec<(&'static str, String)>> {
    let mut plots = Vec::new();
    if runs.contains_key("ssh-memory") {
        let servers = ["fleetgate", "sshd", "dropbear", "Go x/crypto/ssh"];
        let of = |logins: &str| -> Result<Vec<_>> {
            let line = |server: &&str| -> Result<_> {
                let case = |n: u32| format!("memory, {n} of {logins}");
                let point = |n: u32| {
                    Ok((
                        f64::from(n),
                        median(runs, "ssh-memory", &case(n), server)?.0 / 1024.0,
                    ))
                };
                Ok((
                    (*server).to_owned(),
                    [1, 5, 20, 100].into_iter().map(point).collect::<Result<_>>()?,
                ))
            };
            servers.iter().map(line).collect()
        };
        let axes = ("open connections", "MB of memory (PSS) of the whole server");
        for (name, logins, title) in [
            (
                "memory-one-login",
                "one login",
                "Memory of a server, every connection of one login",
            ),
            (
                "memory-many-logins",
                "as many logins",
                "Memory of a server, each connection of another login",
            ),
        ] {
            let title = title.to_owned();
            plots.push((
                name,
                Lines {
                    title,
                    axes,
                    lines: of(logins)?,
                }
                .svg(),
            ));
        }
    }
    if runs.contains_key("proxy") {
        let point = |n: u32| {
            let case = format!("proxy memory, {n} tunnels");
            Ok((
                f64::from(n),
                median(runs, "proxy", &case, "fleetgate")?.0 / 1024.0,
            ))
        };
        let points = [100, 1000, 10000].into_iter().map(point).collect::<Result<_>>()?;
        let plot = Lines {
            title: "Memory of the proxy by idle nodes".to_owned(),
            axes: ("tunnels of idle nodes", "MB of memory (PSS)"),
            lines: vec![("the proxy".to_owned(), points)],
        };
        plots.push(("memory-tunnels", plot.svg()));
    }
    if runs.contains_key("ssh") {
        let groups = [
            ("a new connection each time", "cold true"),
            ("the same, the server's CPU", "cold true, server CPU"),
            ("over ControlMaster", "true over ControlMaster"),
            (
                "200 at once, 99th percentile",
                "200 at once, true, 99th percentile",
            ),
        ];
        let group = |(name, case): (&str, &str)| {
            let servers = ["fleetgate", "sshd", "dropbear", "Go x/crypto/ssh"];
            let bar = |s: &str| Some((s.to_owned(), median(runs, "ssh", case, s).ok()?.0));
            (name.to_owned(), servers.into_iter().filter_map(bar).collect())
        };
        let plot = Bars {
            title: "ssh host true by four servers".to_owned(),
            unit: "ms",
            groups: groups.into_iter().map(group).collect(),
        };
        plots.push(("ssh-true", plot.svg()));
    }
    if let Some(run) = runs.get("eight-cases") {
        let rows = run["rows"].as_array().into_iter().flatten();
        let bar = |row: &Value| Some((row["subject"].as_str()?.to_owned(), row["median"].as_f64()?));
        let plot = Bars {
            title: "check_load as a mail of 2012 compared it, and by fleetgate".to_owned(),
            unit: "ms",
            groups: vec![(
                "median of a whole command".to_owned(),
                rows.filter_map(bar).collect(),
            )],
        };
        plots.push(("eight-cases", plot.svg()));
    }
    if let Some(run) = runs.get("regions") {
        let rows = run["rows"].as_array().into_iter().flatten();
        let cases = rows.filter(|r| r["subject"] == "fleetgate ssh, cold" && r["unit"] == "ms");
        let group = |case: &str| -> Result<_> {
            let bars = ["fleetgate ssh, cold", "ssh -J", "v13 as published"];
            let bar = |s: &str| Ok((s.to_owned(), median(runs, "regions", case, s)?.0));
            Ok((case.to_owned(), bars.into_iter().map(bar).collect::<Result<_>>()?))
        };
        let plot = Bars {
            title: "A command through a proxy: user / proxy / node".to_owned(),
            unit: "ms",
            groups: cases
                .filter_map(|r| r["case"].as_str())
                .map(group)
                .collect::<Result<_>>()?,
        };
        plots.push(("regions", plot.svg()));
    }
    Ok(plots)
}

/// A number for people: three digits that mean something.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn begin(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">\n\
         <title>{0}</title>\n<style>{STYLE}</style>\n<text class=\"t\" x=\"12\" y=\"22\">{0}</text>\n",
        escaped(title)
    )
}

impl Lines {
    fn svg(&self) -> String {
        let (left, right, top, foot, height) = (56.0, 150.0, 52.0, 46.0, 340.0);
        let points = || self.lines.iter().flat_map(|(_, points)| points.iter().copied());
        // The powers of ten around all values.
        let decades = |values: &mut dyn Iterator<Item = f64>| {
            let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
            let (low, high) = (low.log10().floor(), high.log10().ceil());
            (low, high.max(low + 1.0))
        };
        let (xs, ys) = (
            decades(&mut points().map(|p| p.0)),
            decades(&mut points().map(|p| p.1)),
        );
        let (wide, high) = (WIDTH - left - right, height - top - foot);
        let x = |v: f64| left + (v.log10() - xs.0) / (xs.1 - xs.0) * wide;
        let y = |v: f64| top + high - (v.log10() - ys.0) / (ys.1 - ys.0) * high;
        let mut out = begin(&self.title, height);
        // Writing to a String does not fail.
        let _ = writeln!(out, "<text x=\"12\" y=\"40\">{}</text>", escaped(self.axes.1));
        for power in ys.0 as i32..=ys.1 as i32 {
            let (value, end) = (10f64.powi(power), left + wide);
            let at = y(value);
            let _ = writeln!(
                out,
                "<path class=\"g\" d=\"M{left} {at:.1}H{end}\"/><text class=\"e\" x=\"{}\" y=\"{:.1}\">{value}</text>",
                left - 6.0,
                at + 4.0
            );
        }
        for power in xs.0 as i32..=xs.1 as i32 {
            let value = 10f64.powi(power);
            let (at, below) = (x(value), height - foot + 16.0);
            let _ = writeln!(
                out,
                "<text class=\"m\" x=\"{at:.1}\" y=\"{below}\">{value}</text>"
            );
        }
        let (middle, last) = (left + wide / 2.0, height - 8.0);
        let _ = writeln!(
            out,
            "<text class=\"m\" x=\"{middle}\" y=\"{last}\">{}</text>",
            escaped(self.axes.0)
        );
        let mut labels: Vec<(f64, usize, String)> = Vec::new();
        for (colour, (name, points)) in self.lines.iter().enumerate() {
            let path: Vec<String> = points
                .iter()
                .map(|p| format!("{:.1} {:.1}", x(p.0), y(p.1)))
                .collect();
            let _ = writeln!(
                out,
                "<g class=\"c{colour}\"><path class=\"l\" d=\"M{}\"/>",
                path.join("L")
            );
            for (load, cost) in points {
                let _ = writeln!(
                    out,
                    "<circle class=\"b\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                    x(*load),
                    y(*cost)
                );
            }
            let _ = writeln!(out, "</g>");
            if let Some((_, cost)) = points.last() {
                labels.push((y(*cost), colour, format!("{name} {}", number(*cost))));
            }
        }
        // Labels keep their distance, from the top down.
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut next = top;
        for (at, colour, text) in labels {
            next = at.max(next);
            let place = left + wide + 10.0;
            let _ = writeln!(
                out,
                "<text class=\"b c{colour}\" x=\"{place}\" y=\"{:.1}\">{}</text>",
                next + 4.0,
                escaped(&text)
            );
            next += 16.0;
        }
        out + "</svg>\n"
    }
}

impl Bars {
    fn svg(&self) -> String {
        let (left, step, top) = (150.0, 17.0, 44.0);
        let rows: usize = self.groups.iter().map(|(_, bars)| bars.len()).sum();
        let height = top + rows as f64 * step + self.groups.len() as f64 * 28.0;
        let mut out = begin(&self.title, height);
        let mut at = top;
        for (name, bars) in &self.groups {
            let longest = bars.iter().map(|(_, value)| *value).fold(f64::MIN, f64::max);
            let _ = writeln!(
                out,
                "<text x=\"12\" y=\"{}\">{}, {}</text>",
                at + 4.0,
                escaped(name),
                self.unit
            );
            at += 12.0;
            for (place, (name, value)) in bars.iter().enumerate() {
                // There are four colours; of more bars, ours have the first.
                let colour = match bars.len() {
                    ..=4 => place,
                    _ => usize::from(!name.contains("fleetgate")),
                };
                let wide = (value / longest * (WIDTH - left - 80.0)).max(1.0);
                let (middle, end) = (at + 12.0, left + wide + 6.0);
                let _ = writeln!(
                    out,
                    "<text class=\"e\" x=\"{}\" y=\"{middle}\">{}</text><rect class=\"b c{colour}\" x=\"{left}\" y=\"{}\" \
                     width=\"{wide:.1}\" height=\"12\"/><text x=\"{end:.1}\" y=\"{middle}\">{}</text>",
                    left - 6.0,
                    escaped(name),
                    at + 2.0,
                    number(*value)
                );
                at += step;
            }
            at += 16.0;
        }
        out + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_and_every_bar_is_drawn() {
        let lines = vec![("a < b".to_owned(), vec![(1.0, 8.0), (100.0, 160.0)])];
        let svg = Lines {
            title: "t".to_owned(),
            axes: ("x", "y"),
            lines,
        }
        .svg();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a &lt; b 160"), "{svg}");
        let groups = vec![("g".to_owned(), vec![("a".to_owned(), 1.0), ("b".to_owned(), 0.0)])];
        let svg = Bars {
            title: "t".to_owned(),
            unit: "ms",
            groups,
        }
        .svg();
        assert_eq!(svg.matches("<rect").count(), 2);
    }
}
