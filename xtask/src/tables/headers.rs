//! The kernel's headers, read through the C preprocessor, which knows which of their conditions hold. Nothing is compiled.

use crate::shell::Result;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Each numbering, and the text whose macros are its calls.
const NUMBERINGS: [(&str, &str); 4] = [
    ("x86_64", "#include <asm/unistd_64.h>\n"),
    ("i386", "#include <asm/unistd_32.h>\n"),
    ("x32", "#include <asm/unistd_x32.h>\n"),
    // What the header of that architecture asks of the common one.
    (
        "aarch64",
        "#define __ARCH_WANT_RENAMEAT\n#define __ARCH_WANT_NEW_STAT\n#define __ARCH_WANT_SET_GET_RLIMIT\n\
         #define __ARCH_WANT_TIME32_SYSCALLS\n#define __ARCH_WANT_SYS_CLONE3\n#define __ARCH_WANT_MEMFD_SECRET\n\
         #include <asm-generic/unistd.h>\n",
    ),
];

/// Macros of the headers that look like calls and are none.
const NO_CALLS: [&str; 2] = ["syscalls", "arch_specific_syscall"];
/// Second names; the first is what people know.
const SECOND_NAMES: [&str; 3] = ["SIGIOT", "SIGPOLL", "SIGUNUSED"];

/// The calls of each numbering.
pub fn calls() -> Result<Vec<(&'static str, BTreeMap<u32, String>)>> {
    let mut all = Vec::new();
    for (name, text) in NUMBERINGS {
        let macros = macros(text)?;
        let mut calls = BTreeMap::new();
        for (defined, call) in macros.keys().filter_map(|k| Some((k, k.strip_prefix("__NR_")?))) {
            if NO_CALLS.contains(&call) {
                continue;
            }
            let number = number(&macros, defined).ok_or_else(|| format!("{name}: {defined} is no number"))?;
            if let Some(other) = calls.insert(number, call.to_owned()) {
                return Err(format!("{name}: {number} is both {other} and {call}"));
            }
        }
        all.push((name, calls));
    }
    Ok(all)
}

/// The errors and what this machine's C library says of them.
pub fn errors() -> Result<BTreeMap<u32, (String, String)>> {
    let macros = macros("#include <asm-generic/errno.h>\n")?;
    let mut errors = BTreeMap::new();
    for (name, value) in macros.iter().filter(|(k, _)| k.starts_with('E')) {
        // A second name has another name for its value.
        if let Ok(number) = value.parse::<u32>() {
            let says = std::io::Error::from_raw_os_error(number as i32).to_string();
            let says = says.trim_end_matches(&format!(" (os error {number})"));
            errors.insert(number, (name.clone(), says.to_owned()));
        }
    }
    Ok(errors)
}

/// The signals below the real-time ones.
pub fn signals() -> Result<BTreeMap<u32, String>> {
    let macros = macros("#include <asm-generic/signal.h>\n")?;
    let names = macros.iter().filter(|(k, _)| {
        k.strip_prefix("SIG")
            .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()))
            && !SECOND_NAMES.contains(&k.as_str())
    });
    Ok(names
        .filter_map(|(name, value)| Some((value.parse().ok().filter(|n| (1..32).contains(n))?, name.clone())))
        .collect())
}

/// A macro's number: its own, one beside x32's bit, or another macro's.
fn number(macros: &BTreeMap<String, String>, name: &str) -> Option<u32> {
    let mut value = macros.get(name)?;
    for _ in 0..4 {
        if let Some(next) = macros.get(value.as_str()) {
            value = next;
        }
    }
    let value = value
        .trim_start_matches("(__X32_SYSCALL_BIT + ")
        .trim_end_matches(')');
    value.parse().ok()
}

/// The macros that are defined at the end of a C text.
fn macros(text: &str) -> Result<BTreeMap<String, String>> {
    let failed = |e: std::io::Error| format!("cc: {e}; a C compiler reads the headers");
    let mut cc = Command::new("cc")
        .args(["-E", "-dM", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = cc.stdin.take() {
        input.write_all(text.as_bytes()).map_err(failed)?;
    }
    let out = cc.wait_with_output().map_err(failed)?;
    if !out.status.success() {
        return Err(format!(
            "the kernel's headers for x86 cannot be read ({}): install linux-libc-dev, on x86_64",
            text.lines().last().unwrap_or_default()
        ));
    }
    let defined = String::from_utf8_lossy(&out.stdout);
    Ok(defined.lines().filter_map(definition).collect())
}

/// `#define NAME VALUE`.
fn definition(line: &str) -> Option<(String, String)> {
    let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
    Some((name.to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_behind_other_names() {
        let lines = "#define __NR_a 7\n#define __NR_b __NR3264_b\n#define __NR3264_b 9\n\
                     #define __NR_c (__X32_SYSCALL_BIT + 512)\n#define __NR_d (1 << 3)\n#define guard\n";
        let macros: BTreeMap<_, _> = lines.lines().filter_map(definition).collect();
        for (name, value) in [
            ("__NR_a", Some(7)),
            ("__NR_b", Some(9)),
            ("__NR_c", Some(512)),
            ("__NR_d", None),
            ("__NR_e", None),
        ] {
            assert_eq!(number(&macros, name), value, "{name}");
        }
    }
}
