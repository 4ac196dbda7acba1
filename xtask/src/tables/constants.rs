//! The constants that the tracer shows by name: `constants.list` says which, this machine's kernel headers what they are.
//! A name that no header has is an error. It writes nothing itself.

use crate::shell::{Result, read_text, root};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

const LIST: &str = "xtask/src/tables/constants.list";
const WRITTEN: &str = "crates/trace/src/decode/constants.rs";
/// Where lines of data are broken.
const WIDTH: usize = 150;

/// A table of the list.
struct Table<'a> {
    name: &'a str,
    others: &'a str,
    headers: Vec<&'a str>,
    /// Names, and their value where the list itself has it.
    names: Vec<(String, Option<&'a str>)>,
}

/// The file and its text.
pub fn made() -> Result<(String, String)> {
    let list = read_text(&root().join(LIST))?;
    let mut text = String::from(
        "//! Constants of the kernel's interface by name, as `cargo xtask tables` found them in its headers. Do not edit:\n\
         //! `xtask/src/tables/constants.list` says which there are. Data alone.\n\n\
         use super::names::Names;\n\n",
    );
    for table in parse(&list)? {
        let values = values(&table)?;
        rust(&mut text, &table, &values);
    }
    Ok((WRITTEN.to_owned(), text))
}

fn parse(list: &str) -> Result<Vec<Table<'_>>> {
    let mut tables: Vec<Table> = Vec::new();
    for (number, line) in list.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] | ["#", ..] => {}
            ["=", name, others, headers @ ..] => tables.push(Table {
                name,
                others,
                headers: headers.iter().filter(|h| **h != "-").copied().collect(),
                names: Vec::new(),
            }),
            words => {
                let table = tables.last_mut();
                let table = table.ok_or_else(|| format!("{LIST}:{}: names before any table", number + 1))?;
                let mut prefix = "";
                for word in words {
                    if let Some(new) = word.strip_suffix(':') {
                        prefix = new;
                    } else {
                        let (name, value) = match word.split_once('=') {
                            Some((name, value)) => (name, Some(value)),
                            None => (*word, None),
                        };
                        table.names.push((format!("{prefix}{name}"), value));
                    }
                }
            }
        }
    }
    Ok(tables)
}

/// What the headers say, by a program that prints it: many of these are enumerations, which no preprocessor knows.
fn values(table: &Table) -> Result<Vec<u64>> {
    let mut program = String::from("#define _GNU_SOURCE\n#include <stdio.h>\n");
    for header in &table.headers {
        let _ = writeln!(program, "#include <{header}>");
    }
    program.push_str("int main(void) {\n");
    for (name, value) in &table.names {
        let value = value.unwrap_or(name);
        let _ = writeln!(
            program,
            "printf(\"%llu\\n\", (unsigned long long)(long long)({value}));"
        );
    }
    program.push_str("}\n");
    let built = std::env::temp_dir().join(format!("constants-{}", std::process::id()));
    let mut compiler = Command::new("cc")
        .args(["-w", "-x", "c", "-", "-o"])
        .arg(&built)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cc: {e}: a C compiler and linux-libc-dev are needed to read the headers"))?;
    let mut input = compiler.stdin.take().ok_or("cc: no way to write to it")?;
    let written = input.write_all(program.as_bytes());
    drop(input);
    let status = compiler.wait().map_err(|e| format!("cc: {e}"))?;
    if written.is_err() || !status.success() {
        return Err(format!(
            "{LIST}: table {}: its headers lack a name (see above); give its value there",
            table.name
        ));
    }
    let out = Command::new(&built).output();
    let _ = std::fs::remove_file(&built);
    let out = out.map_err(|e| format!("{}: {e}", built.display()))?;
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .map(|line| line.parse().map_err(|e| format!("{}: {line}: {e}", table.name)))
        .collect()
}

fn rust(text: &mut String, table: &Table, values: &[u64]) {
    let mut line = format!(
        "pub static {}: Names = Names::new({:?}, &[",
        table.name, table.others
    );
    for ((name, _), value) in table.names.iter().zip(values) {
        let entry = format!(" ({value:#x}, {name:?}),");
        if line.len() + entry.len() > WIDTH {
            let _ = writeln!(text, "{line}");
            line.clear();
            line.push_str("   ");
        }
        line.push_str(&entry);
    }
    let _ = writeln!(text, "{line} ]);");
}
