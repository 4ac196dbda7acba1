//! A graph as SVG: boxes in layers, each above what it uses, readable on a light page and on a dark one. The same graph
//! makes the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What is drawn.
pub struct Graph {
    /// What the picture is of.
    pub title: String,
    /// The boxes: a name, and a second line.
    pub boxes: BTreeMap<String, String>,
    /// Who uses whom. An arrow that follows from others is not drawn.
    pub arrows: BTreeSet<(String, String)>,
}

const WIDTH: usize = 128;
const HEIGHT: usize = 40;
const GAP_X: usize = 18;
const GAP_Y: usize = 52;
const TITLE: usize = 34;
/// How often the order within the layers is improved: more changes nothing in graphs of this size.
const SWEEPS: usize = 12;

const STYLE: &str = "text{font:13px sans-serif;fill:#1b1f24;text-anchor:middle}.s{font-size:11px;fill:#57606a}\
.t{font-size:14px;font-weight:bold;text-anchor:start}rect{fill:#f6f8fa;stroke:#8c959f;rx:5}\
path{fill:none;stroke:#8c959f}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}\
rect{fill:#151b23;stroke:#656c76}path{stroke:#656c76}}";

impl Graph {
    /// The picture.
    pub fn svg(&self) -> String {
        let arrows = self.needed();
        let layers = self.layers(&arrows);
        let widest = layers.iter().map(Vec::len).max().unwrap_or(1);
        let (width, height) = (
            widest * (WIDTH + GAP_X) + GAP_X,
            TITLE + layers.len() * (HEIGHT + GAP_Y) - GAP_Y + GAP_X,
        );
        let mut places: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (row, names) in layers.iter().enumerate() {
            let used = names.len() * (WIDTH + GAP_X) - GAP_X;
            for (column, name) in names.iter().enumerate() {
                let x = (width - used) / 2 + column * (WIDTH + GAP_X);
                places.insert(name, (x, TITLE + row * (HEIGHT + GAP_Y)));
            }
        }
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n<text class=\"t\" x=\"{GAP_X}\" y=\"20\">{}</text>\n",
            escaped(&self.title),
            escaped(&self.title)
        );
        // Writing to a String does not fail.
        for (from, to) in &arrows {
            let ((x1, y1), (x2, y2)) = (places[from.as_str()], places[to.as_str()]);
            let (x1, y1, x2) = (x1 + WIDTH / 2, y1 + HEIGHT, x2 + WIDTH / 2);
            let bend = GAP_Y / 2;
            let _ = writeln!(
                out,
                "<path d=\"M{x1} {y1}C{x1} {} {x2} {} {x2} {y2}\"/>",
                y1 + bend,
                y2 - bend
            );
        }
        for (name, (x, y)) in &places {
            let middle = x + WIDTH / 2;
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\
                 <text x=\"{middle}\" y=\"{}\">{}</text><text class=\"s\" x=\"{middle}\" y=\"{}\">{}</text>",
                y + 17,
                escaped(name),
                y + 32,
                escaped(&self.boxes[*name])
            );
        }
        out + "</svg>\n"
    }

    /// The arrows without those that follow from others: a uses c where a uses b and b uses c.
    fn needed(&self) -> BTreeSet<(String, String)> {
        let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in &self.arrows {
            next.entry(from).or_default().insert(to);
        }
        let by_others = |from: &str, to: &str| {
            let mut open: Vec<&str> = next[from].iter().copied().filter(|n| *n != to).collect();
            let mut seen: BTreeSet<&str> = open.iter().copied().chain([from]).collect();
            while let Some(at) = open.pop() {
                for step in next.get(at).into_iter().flatten() {
                    if *step == to {
                        return true;
                    }
                    if seen.insert(step) {
                        open.push(step);
                    }
                }
            }
            false
        };
        let arrows = self.arrows.iter().filter(|(from, to)| !by_others(from, to));
        arrows.cloned().collect()
    }

    /// The boxes in layers, each box below all that use it; in a layer near to what they are joined with.
    fn layers(&self, arrows: &BTreeSet<(String, String)>) -> Vec<Vec<String>> {
        let mut depth: BTreeMap<&str, usize> = self.boxes.keys().map(|n| (n.as_str(), 0)).collect();
        // As many rounds as there are boxes settle every graph without circles.
        for _ in 0..self.boxes.len() {
            for (from, to) in arrows {
                let below = depth[from.as_str()] + 1;
                if below < self.boxes.len() && depth[to.as_str()] < below {
                    depth.insert(to, below);
                }
            }
        }
        let last = depth.values().max().copied().unwrap_or(0);
        let mut layers = vec![Vec::new(); last + 1];
        for (name, at) in &depth {
            layers[*at].push((*name).to_owned());
        }
        layers.retain(|l: &Vec<String>| !l.is_empty());
        for sweep in 0..SWEEPS {
            let place: BTreeMap<String, f64> = layers
                .iter()
                .flat_map(|layer| {
                    let middle = layer.len() as f64 / 2.0;
                    let at = move |(i, name): (usize, &String)| (name.clone(), i as f64 - middle);
                    layer.iter().enumerate().map(at)
                })
                .collect();
            for layer in &mut layers {
                let pull = |name: &String| {
                    let joined: Vec<f64> = arrows
                        .iter()
                        .filter_map(|(from, to)| match (sweep % 2, from == name, to == name) {
                            (0, _, true) => place.get(from),
                            (1, true, _) => place.get(to),
                            _ => None,
                        })
                        .copied()
                        .collect();
                    match joined.len() {
                        0 => place[name],
                        n => joined.iter().sum::<f64>() / n as f64,
                    }
                };
                layer.sort_by(|a, b| pull(a).total_cmp(&pull(b)).then_with(|| a.cmp(b)));
            }
        }
        layers
    }
}

/// Text inside an SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &[(&str, &str)]) -> Graph {
        let arrows: BTreeSet<(String, String)> = arrows
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect();
        let names = arrows.iter().flat_map(|(a, b)| [a.clone(), b.clone()]);
        Graph {
            title: "a < b".to_owned(),
            boxes: names.map(|n| (n, "1 line".to_owned())).collect(),
            arrows,
        }
    }

    #[test]
    fn an_arrow_that_follows_from_others_is_left_out() {
        let drawn = graph(&[("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")]).needed();
        let drawn: Vec<(&str, &str)> = drawn.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(drawn, [("a", "b"), ("a", "d"), ("b", "c")]);
    }

    #[test]
    fn each_box_stands_below_all_that_use_it() {
        let graph = graph(&[("a", "b"), ("b", "c"), ("d", "c")]);
        let layers = graph.layers(&graph.arrows);
        assert_eq!(layers, [vec!["a", "d"], vec!["b"], vec!["c"]]);
    }

    #[test]
    fn a_picture_holds_each_box_and_arrow_once_and_a_circle_ends_it_not() {
        let svg = graph(&[("a", "b"), ("b", "a")]).svg();
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches("<path").count()),
            (2, 2)
        );
        assert!(svg.contains("<title>a &lt; b</title>"));
    }
}
