//! The command line of `fleetgate-exec`, as far as the small program reads it itself.
//!
//! It is that of `fleetgate container exec`. Whatever is not read here (help, a mistake, a terminal) is left to `fleetgate`,
//! which has the words for it.

use crate::{Named, Request};
use fleetgate_containers::Overrides;
use fleetgate_wire::common::Variable;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A request, if the words are one that wants no terminal; `has_terminal`: there would be one.
pub fn parse(words: &[OsString], has_terminal: bool) -> Option<Request> {
    let mut words = words.iter().peekable();
    let mut request = Request {
        container: Named::Name(String::new()),
        root: None,
        wanted: Overrides::default(),
        variables: Vec::new(),
        command: Vec::new(),
    };
    let (mut process, mut no_terminal) = (None, false);
    while let Some(flag) = words.next_if(|word| is_flag(word) && *word != "--") {
        let flag = flag.to_str()?;
        if matches!(flag, "-T" | "--no-terminal") && !no_terminal {
            no_terminal = true;
            continue;
        }
        // Standard input is passed on anyway. What asks for a terminal (`-t`, `-it`) is the full program's.
        if matches!(flag, "-i" | "--interactive") {
            continue;
        }
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, OsString::from(value)),
            _ => (flag, words.next()?.clone()),
        };
        let text = |value: OsString| value.into_string().ok().filter(|text| !text.is_empty());
        match name {
            "-u" | "--user" if request.wanted.user.is_none() => request.wanted.user = Some(text(value)?),
            "-w" | "--workdir" if request.wanted.directory.is_none() => {
                request.wanted.directory = Some(text(value)?);
            }
            "-e" | "--env" => request.variables.push(variable(&text(value)?)?),
            "--pid" if process.is_none() => {
                process = Some(text(value)?.parse::<i32>().ok().filter(|pid| *pid > 0)?);
            }
            "--root" if request.root.is_none() => request.root = Some(PathBuf::from(text(value)?)),
            _ => return None,
        }
    }
    request.container = match process {
        Some(pid) => Named::Process(pid),
        None => {
            let name = words.next().filter(|name| !name.is_empty() && !is_flag(name))?;
            Named::Name(name.to_str()?.to_owned())
        }
    };
    words.next_if(|word| *word == "--");
    // A first word that is empty, or looks like a flag, is a mistake.
    if words
        .peek()
        .is_some_and(|program| program.is_empty() || is_flag(program))
    {
        return None;
    }
    let command = words.map(|word| CString::new(word.clone().into_vec()).ok());
    request.command = command.collect::<Option<_>>()?;
    (no_terminal || !has_terminal).then_some(request)
}

fn is_flag(word: &OsString) -> bool {
    word.as_bytes().starts_with(b"-")
}

/// `NAME=VALUE`
pub fn variable(pair: &str) -> Option<Variable> {
    let (name, value) = pair.split_once('=').filter(|(name, _)| !name.is_empty())?;
    Some(Variable {
        name: CString::new(name).ok()?,
        value: CString::new(value).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Request> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        parse(&words, false)
    }

    #[test]
    fn what_it_reads_is_read_as_fleetgate_would() {
        let request =
            read("-u app --workdir=/srv -e A=1 --env=B= --root /run/x -T web ls -l --").expect("a request");
        assert_eq!(request.container, Named::Name("web".to_owned()));
        assert_eq!(request.wanted.user.as_deref(), Some("app"));
        assert_eq!(request.wanted.directory.as_deref(), Some("/srv"));
        assert_eq!(request.root, Some(PathBuf::from("/run/x")));
        assert_eq!(request.command, [c"ls", c"-l", c"--"].map(CString::from));
        assert_eq!(request.variables.len(), 2);
        let request = read("--pid 7 -- ps").expect("a request");
        assert_eq!(request.container, Named::Process(7));
        assert_eq!(request.command, [CString::from(c"ps")]);
        assert!(read("web").expect("a shell").command.is_empty());
        let request = read("-i --interactive -u app -i web cat").expect("a request");
        assert_eq!(request.command, [CString::from(c"cat")]);
    }

    #[test]
    fn everything_else_is_fleetgate_s() {
        for line in [
            "",
            "--help",
            "-h",
            "--nonsense web",
            "-u",
            "--pid x ps",
            "--pid 0 ps",
            "-e =1 web",
            "-e A web",
            "web -x",
            "web -- -x",
            "-u a -u b web",
            "--log-format json web",
            "--pid 7 -- ",
            "-uapp web",
            "-T -T web",
            "-- web true",
            "-t web",
            "-it web sh",
            "-ti web sh",
            "--tty web",
            "--interactive=true web",
        ] {
            assert!(read(line).is_none(), "{line:?}");
        }
        assert!(parse(&["web".into()], true).is_none(), "a terminal");
        assert!(parse(&["-T".into(), "web".into()], true).is_some());
    }
}
