//! What differs between two runs of a program that were written down as JSON: calls by how often they were made and failed,
//! files, programs and hosts by who named them. Order and time are no difference. It reads two files and writes none.

use crate::TraceError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// A line of a trace, at most.
pub const MAX_LINE: u64 = 4 << 20;
/// Names of one kind that are told apart in a trace.
pub const MAX_NAMES: usize = 1 << 20;
/// How deep a value may be.
const MAX_DEPTH: usize = 32;

/// The names that arguments have which are paths.
const PATHS: &[&str] = &[
    "pathname", "path", "filename", "file", "oldpath", "newpath", "oldname", "newname", "name", "from", "to",
    "source", "target", "linkpath", "dirname", "fsname", "special", "put_old", "new_root", "dir", "library",
];

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// How often each call was made, and how often it failed.
    calls: BTreeMap<String, [u64; 2]>,
    files: BTreeMap<String, u64>,
    programs: BTreeMap<String, u64>,
    hosts: BTreeMap<String, u64>,
}

impl Side {
    /// Reads one.
    ///
    /// # Errors
    /// File, line, and what is wrong there.
    pub fn read(path: &Path) -> Result<Side, TraceError> {
        let file = std::fs::File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Side::of(BufReader::new(file)).map_err(|(line, what)| match line {
            0 => TraceError(format!("{}: {what}", path.display())),
            line => TraceError(format!("{}:{line}: {what}", path.display())),
        })
    }

    fn of(mut from: impl BufRead) -> Result<Side, (usize, String)> {
        let mut side = Side::default();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = from.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line);
            read.map_err(|e| (number, e.to_string()))?;
            if line.is_empty() {
                break;
            }
            if line.len() as u64 > MAX_LINE {
                return Err((number, format!("the line is longer than {MAX_LINE} bytes")));
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let value: Value = serde_json::from_slice(&line).map_err(|e| {
                let hint = if number == 1 {
                    "; is it what `fleetgate trace --json` wrote?"
                } else {
                    ""
                };
                (number, format!("no JSON: {e}{hint}"))
            })?;
            side.add(&value).map_err(|what| (number, what))?;
        }
        match side.calls.is_empty() {
            true => Err((
                0,
                "there is no call in it; is it what `fleetgate trace --json` wrote?".to_owned(),
            )),
            false => Ok(side),
        }
    }

    fn add(&mut self, line: &Value) -> Result<(), String> {
        let Some(call) = line.get("call").and_then(Value::as_str) else {
            return Ok(());
        };
        let failed = line.get("error").is_some_and(|e| !e.is_null());
        let known = self.calls.len();
        let counts = self.calls.entry(call.to_owned()).or_default();
        counts[0] += 1;
        counts[1] += u64::from(failed);
        if known >= MAX_NAMES {
            return Err(too_many("calls"));
        }
        let Some(Value::Object(arguments)) = line.get("arguments") else {
            return Ok(());
        };
        for (name, value) in arguments {
            if PATHS.contains(&name.as_str())
                && let Some(path) = text(value)
            {
                let into = match call {
                    "execve" | "execveat" => &mut self.programs,
                    _ => &mut self.files,
                };
                count(into, path, "files")?;
            }
            self.hosts_of(value, MAX_DEPTH)?;
        }
        Ok(())
    }

    /// Addresses of sockets, wherever they are.
    fn hosts_of(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        if depth == 0 {
            return Ok(());
        }
        match value {
            Value::Object(fields) => {
                let field = |name: &str| fields.get(name).and_then(text);
                let number = |name: &str| fields.get(name).map(|v| text(v).unwrap_or_else(|| v.to_string()));
                let host = match (field("sin_addr"), field("sin6_addr"), field("sun_path")) {
                    (Some(host), ..) => Some(format!("{host}:{}", number("sin_port").unwrap_or_default())),
                    (_, Some(host), _) => {
                        Some(format!("[{host}]:{}", number("sin6_port").unwrap_or_default()))
                    }
                    (.., Some(path)) => Some(format!("unix:{path}")),
                    _ => None,
                };
                if let Some(host) = host {
                    return count(&mut self.hosts, host, "hosts");
                }
                fields
                    .values()
                    .try_for_each(|value| self.hosts_of(value, depth - 1))
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.hosts_of(item, depth - 1)),
            _ => Ok(()),
        }
    }
}

fn too_many(what: &str) -> String {
    format!("more than {MAX_NAMES} different {what}: trace fewer calls with -e")
}

fn count(into: &mut BTreeMap<String, u64>, name: String, what: &str) -> Result<(), String> {
    if into.len() >= MAX_NAMES && !into.contains_key(&name) {
        return Err(too_many(what));
    }
    *into.entry(name).or_default() += 1;
    Ok(())
}

/// A value that is text; of bytes that are none, the hexadecimal digits.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(fields) => ["text", "hex", "abstract", "path"]
            .iter()
            .find_map(|name| fields.get(*name).and_then(text)),
        _ => None,
    }
}

/// What differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Calls that were made or failed another number of times: first here, then there.
    calls: Vec<(String, [u64; 2], [u64; 2])>,
    files: Sides,
    programs: Sides,
    hosts: Sides,
}

/// Names that only one run has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sides {
    first: Vec<String>,
    second: Vec<String>,
}

impl Sides {
    fn between(first: &BTreeMap<String, u64>, second: &BTreeMap<String, u64>) -> Sides {
        let only = |a: &BTreeMap<String, u64>, b: &BTreeMap<String, u64>| {
            a.keys().filter(|name| !b.contains_key(*name)).cloned().collect()
        };
        Sides {
            first: only(first, second),
            second: only(second, first),
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.second.is_empty()
    }

    fn document(&self) -> Value {
        json!({ "only_first": self.first, "only_second": self.second })
    }
}

impl Difference {
    /// Between two runs.
    #[must_use]
    pub fn between(first: &Side, second: &Side) -> Difference {
        let mut calls = Vec::new();
        let names: std::collections::BTreeSet<&String> =
            first.calls.keys().chain(second.calls.keys()).collect();
        for name in names {
            let of = |side: &Side| side.calls.get(name).copied().unwrap_or_default();
            if of(first) != of(second) {
                calls.push((name.clone(), of(first), of(second)));
            }
        }
        Difference {
            calls,
            files: Sides::between(&first.files, &second.files),
            programs: Sides::between(&first.programs, &second.programs),
            hosts: Sides::between(&first.hosts, &second.hosts),
        }
    }

    /// Whether nothing does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.files.is_empty() && self.programs.is_empty() && self.hosts.is_empty()
    }

    /// For people: `first` and `second` are what the runs are called.
    #[must_use]
    pub fn text(&self, first: &str, second: &str) -> String {
        let (first, second) = (plain(first), plain(second));
        if self.is_empty() {
            return format!(
                "{first} and {second} make the same calls and name the same files, programs and hosts\n"
            );
        }
        let mut out = String::new();
        if !self.calls.is_empty() {
            let _ = writeln!(
                out,
                "calls (errors)                first          second  (first: {first}, second: {second})"
            );
            for (name, a, b) in &self.calls {
                let shown = |[calls, errors]: &[u64; 2]| match errors {
                    0 => calls.to_string(),
                    errors => format!("{calls} ({errors})"),
                };
                let more = i128::from(b[0]) - i128::from(a[0]);
                let _ = writeln!(out, "{name:<20} {:>14} {:>15} {more:>+9}", shown(a), shown(b));
            }
        }
        for (what, sides) in [
            ("programs", &self.programs),
            ("files", &self.files),
            ("hosts", &self.hosts),
        ] {
            for (name, only) in [(&first, &sides.first), (&second, &sides.second)] {
                if !only.is_empty() {
                    let _ = writeln!(out, "{what} only in {name}:");
                    for one in only {
                        let _ = writeln!(out, "  {}", plain(one));
                    }
                }
            }
        }
        out
    }

    /// For programs.
    #[must_use]
    pub fn document(&self) -> Value {
        let side = |[calls, errors]: &[u64; 2]| json!({ "calls": calls, "errors": errors });
        let calls: Vec<Value> = self
            .calls
            .iter()
            .map(|(name, a, b)| json!({ "call": name, "first": side(a), "second": side(b) }))
            .collect();
        json!({
            "calls": calls,
            "programs": self.programs.document(),
            "files": self.files.document(),
            "hosts": self.hosts.document(),
        })
    }
}

/// What a terminal would obey is shown as its number.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = r#"{"type":"began","pid":1,"tid":1}
{"type":"call","call":"execve","arguments":{"pathname":"/bin/a","argv":["a"]},"result":0}
{"type":"call","call":"openat","arguments":{"dirfd":"AT_FDCWD","pathname":"/etc/one"},"result":3}

{"type":"call","call":"openat","arguments":{"dirfd":"AT_FDCWD","pathname":"/etc/both"},"result":-1,"error":"ENOENT"}
{"summary":[]}
"#;
    const SECOND: &str = r#"{"type":"call","call":"openat","arguments":{"pathname":"/etc/both"},"result":3}
{"type":"call","call":"openat","arguments":{"pathname":{"hex":"ff"}},"result":3}
{"type":"call","call":"execve","arguments":{"pathname":"/bin/b"},"result":0}
{"type":"call","call":"connect","arguments":{"fd":3,"addr":{"sa_family":"AF_INET","sin_port":443,"sin_addr":"192.0.2.1"}},"result":0}
{"type":"call","call":"connect","arguments":{"fd":3,"addr":{"sin6_port":53,"sin6_addr":"::1"}},"result":0}
{"type":"call","call":"connect","arguments":{"fd":3,"addr":{"sun_path":"/run/\u001b[2J"}},"result":0}
"#;

    fn side(text: &str) -> Side {
        Side::of(text.as_bytes()).expect("a trace")
    }

    #[test]
    fn what_differs_is_told() {
        let difference = Difference::between(&side(FIRST), &side(SECOND));
        assert_eq!(
            difference.text("a.json", "b.json"),
            "calls (errors)                first          second  (first: a.json, second: b.json)\n\
             connect                           0               3        +3\n\
             openat                        2 (1)               2        +0\n\
             programs only in a.json:\n  /bin/a\nprograms only in b.json:\n  /bin/b\n\
             files only in a.json:\n  /etc/one\nfiles only in b.json:\n  ff\n\
             hosts only in b.json:\n  192.0.2.1:443\n  [::1]:53\n  unix:/run/\\u{1b}[2J\n"
        );
        let document = difference.document();
        assert_eq!(
            document["files"],
            json!({ "only_first": ["/etc/one"], "only_second": ["ff"] })
        );
        assert_eq!(
            document["calls"][1],
            json!({ "call": "openat", "first": { "calls": 2, "errors": 1 }, "second": { "calls": 2, "errors": 0 } })
        );
    }

    #[test]
    fn the_same_run_does_not_differ() {
        let difference = Difference::between(&side(FIRST), &side(FIRST));
        assert!(difference.is_empty());
        assert!(
            difference
                .text("a", "b")
                .starts_with("a and b make the same calls")
        );
    }

    #[test]
    fn a_trace_that_is_none_is_named_by_its_line() {
        let long = format!("{FIRST}\"{}\"\n", "x".repeat(MAX_LINE as usize));
        let deep = format!(
            r#"{{"call":"connect","arguments":{{"a":{}{}}}}}"#,
            "[".repeat(100),
            "]".repeat(100)
        );
        assert!(
            Side::of(deep.as_bytes()).is_ok(),
            "what is too deep is not looked at"
        );
        for (text, line, what) in [
            ("", 0, "there is no call in it"),
            ("{}\n", 0, "there is no call in it"),
            ("openat(AT_FDCWD, \"x\") = 3\n", 1, "no JSON"),
            ("{}\n{\"call\"\n", 2, "no JSON"),
            (long.as_str(), 7, "the line is longer than"),
        ] {
            let (number, said) = Side::of(text.as_bytes()).expect_err(what);
            assert!(number == line && said.contains(what), "{number}: {said}");
        }
        let gone = Side::read(Path::new("/nowhere/a.json"))
            .expect_err("no file")
            .to_string();
        assert!(gone.starts_with("/nowhere/a.json: No such file"), "{gone}");
    }
}
