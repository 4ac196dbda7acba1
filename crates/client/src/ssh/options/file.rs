//! The file that `-F` names, as ssh_config(5) has it: lines of options, in blocks that begin with `Host`. It reads text and
//! looks nothing up; what an option means is said in `names`.

use fleetgate_policy::pattern::fits;

/// A line with an option that counts.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1.
    pub number: usize,
    /// The option and its value.
    pub text: String,
}

/// The options that count for this host, in their order.
pub fn options(text: &str, host: &str) -> Result<Vec<Line>, String> {
    let (mut lines, mut counts) = (Vec::new(), true);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let end = line.find([' ', '\t', '=']).unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        let rest = rest.trim_start_matches([' ', '\t', '=']).trim();
        match word.to_ascii_lowercase().as_str() {
            "host" => counts = is_named(rest, host),
            "match" if rest.eq_ignore_ascii_case("all") => counts = true,
            "match" => {
                return Err(format!(
                    "line {number}: `Match {rest}` is not read here, so what stands below it could be meant or not; \
                     `Host` and `Match all` are"
                ));
            }
            _ if counts => lines.push(Line {
                number,
                text: format!("{word} {rest}"),
            }),
            _ => {}
        }
    }
    Ok(lines)
}

/// Patterns with spaces between them; one with `!` before it takes a host out.
fn is_named(patterns: &str, host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let mut named = false;
    for pattern in patterns.split_whitespace() {
        let pattern = pattern.trim_matches('"').to_ascii_lowercase();
        match pattern.strip_prefix('!') {
            Some(but) if fits(but.as_bytes(), host.as_bytes()) => return false,
            Some(_) => {}
            None => named |= fits(pattern.as_bytes(), host.as_bytes()),
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_for_their_hosts() {
        let text =
            "# all\nUser ann\n\nHost web* !web9 \"db\"\n  Port=22\n\tSetEnv A=b\nHost *\n  compression no\n";
        let of = |host| -> Vec<String> {
            let lines = options(text, host).expect("it is read");
            lines.into_iter().map(|l| l.text).collect()
        };
        assert_eq!(
            of("web1"),
            ["User ann", "Port 22", "SetEnv A=b", "compression no"]
        );
        assert_eq!(of("DB"), of("web1"));
        assert_eq!(of("web9"), ["User ann", "compression no"]);
        let error = options("Match host x\nStrictHostKeyChecking no\n", "x").expect_err("not read");
        assert!(error.contains("line 1: `Match host x`"), "{error}");
        assert_eq!(options("Match all\nPort 1\n", "x").expect("read")[0].number, 2);
    }
}
