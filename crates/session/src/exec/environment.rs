//! The environment, as sshd builds it: what the client sent, then sshd's own variables over it, /etc/environment,
//! ~/.ssh/environment, and last what the server and PAM set.

use super::paths;
use alloc::collections::BinaryHeap;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_sys::exe;
use fleetgate_sys::exec;
use fleetgate_sys::file::{self, flags};
use fleetgate_wire::exec::{Environment, Exec};

/// The default PATH of users where the order names none: Debian's.
const USER_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin:/usr/games";
/// The same of root.
pub const ROOT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MAIL: &[u8] = b"/var/mail";
/// The most bytes that are read of a file of variables; a longer one is not read at all.
const MAX_FILE: usize = 1 << 20;
/// The most lines, as in sshd.
const MAX_LINES: usize = 1000;

/// Variables being collected; a later one of the same name wins.
#[derive(Default)]
pub struct Variables {
    /// `NAME=value`, and where the name ends. A string without value takes an earlier one away.
    all: Vec<(CString, usize)>,
}

impl Variables {
    /// Sets one; what could not be one variable is left out.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        // A name that is empty or holds `=` would be another variable to whoever reads it.
        if name.is_empty() || name.contains(&b'=') {
            return;
        }
        if let Ok(string) = CString::new([name, b"=", value].concat()) {
            self.all.push((string, name.len()));
        }
    }

    /// What the client sent and may set.
    pub fn of_client(&mut self, wanted: &Environment) {
        for variable in &wanted.client {
            let name = variable.name.to_bytes();
            if wanted.accept.iter().any(|p| matches(p.to_bytes(), name)) {
                self.set(name, variable.value.to_bytes());
            }
        }
    }

    fn unset(&mut self, name: &[u8]) {
        self.all
            .retain(|(string, len)| &string.to_bytes()[..*len] != name);
    }

    /// The value of `name`.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let (string, len) = self.all.iter().rfind(|(s, len)| &s.to_bytes()[..*len] == name)?;
        Some(&string.to_bytes()[len + 1..])
    }

    /// For exec.
    pub fn strings(&self) -> impl Iterator<Item = &CStr> {
        self.all.iter().map(|(string, _)| string.as_c_str())
    }

    /// Leaves one of each name, the last that was set. Sorted: a client that sends 10,000 variables must not
    /// make this quadratic. By a heap, whose code is a sixth of the standard sort's.
    pub fn settle(mut self) -> Variables {
        let order: BinaryHeap<(&[u8], usize)> = self
            .all
            .iter()
            .enumerate()
            .map(|(i, (string, len))| (&string.as_bytes()[..*len], i))
            .collect();
        let order = order.into_sorted_vec();
        let mut keep = alloc::vec![true; self.all.len()];
        for pair in order.windows(2) {
            keep[pair[0].1] = pair[0].0 != pair[1].0;
        }
        let mut keep = keep.into_iter();
        self.all.retain(|_| keep.next().unwrap_or(true));
        self
    }
}

/// The environment of `order`. Runs as the user.
pub fn build(order: &Exec) -> Variables {
    let (wanted, account) = (&order.environment, &order.account);
    let mut out = Variables::default();
    out.of_client(wanted);
    let user = account.name.to_bytes();
    let root = account.ids.uid == 0;
    let path = if root { &wanted.root_path } else { &wanted.path };
    out.set(b"USER", user);
    out.set(b"LOGNAME", user);
    out.set(b"HOME", account.home.to_bytes());
    out.set(
        b"PATH",
        match (path.to_bytes(), root) {
            (b"", true) => ROOT_PATH,
            (b"", false) => USER_PATH,
            (path, _) => path,
        },
    );
    out.set(b"MAIL", &[MAIL, b"/", user].concat());
    out.set(b"SHELL", paths::shell(order).to_bytes());
    if let Some(zone) = exec::inherited(c"TZ") {
        out.set(b"TZ", zone.to_bytes());
    }
    if wanted.etc_environment {
        etc_environment(&read(c"/etc/environment"), &mut out);
    }
    if wanted.user_environment {
        let path = paths::joined(account.home.to_bytes(), b".ssh/environment");
        user_environment(&read(&path), &mut out);
    }
    for variable in &wanted.set {
        out.set(variable.name.to_bytes(), variable.value.to_bytes());
    }
    out.settle()
}

/// The file's content; empty when it cannot be read, is too long or no regular file.
fn read(path: &CStr) -> Vec<u8> {
    let how = flags::O_RDONLY | flags::O_NONBLOCK | flags::O_NOCTTY;
    let Ok(fd) = file::openat(file::CWD, path, how, 0) else {
        return Vec::new();
    };
    match exe::identity(&fd) {
        Ok(status) if status.is_file() => file::read_to_end(&fd, MAX_FILE).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n').take(MAX_LINES).map(|line| {
        let start = line.iter().position(|b| !matches!(b, b' ' | b'\t'));
        &line[start.unwrap_or(line.len())..]
    })
}

/// pam_env's rules: `#` starts a comment anywhere, `export ` is skipped, names are letters, digits and `_`,
/// quotes around the value go, a name alone takes the variable away.
pub fn etc_environment(text: &[u8], out: &mut Variables) {
    for line in lines(text) {
        let line = line.split(|b| *b == b'#').next().unwrap_or_default();
        let line = line.strip_prefix(b"export ").unwrap_or(line).trim_ascii_end();
        let at = line.iter().position(|b| *b == b'=');
        let name = &line[..at.unwrap_or(line.len())];
        if name.is_empty() || !name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_') {
            continue;
        }
        match at {
            None => out.unset(name),
            Some(at) => out.set(name, unquoted(&line[at + 1..])),
        }
    }
}

/// The value without its quotes: one in front, and then one at the end where there is one.
fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"' | b'\'', inner @ .., b'"' | b'\''] => inner,
        [b'"' | b'\'', inner @ ..] => inner,
        bare => bare,
    }
}

/// sshd's rules for ~/.ssh/environment: `NAME=value` to the end of the line, no quotes, `#` at the start.
pub fn user_environment(text: &[u8], out: &mut Variables) {
    for line in lines(text) {
        if let (false, Some(at)) = (line.starts_with(b"#"), line.iter().position(|b| *b == b'=')) {
            out.set(&line[..at], &line[at + 1..]);
        }
    }
}

/// `*` stands for any run of characters, `?` for one. Linear: after a mismatch only the last `*` is tried longer.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                None => return false,
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn text(variables: Variables) -> Vec<String> {
        let settled = variables.settle();
        settled
            .strings()
            .map(|s| s.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn etc_environment_as_pam_env_reads_it() {
        let mut out = Variables::default();
        out.set(b"GONE", b"x");
        let file = b"A=1\nB=\"two words\"\nC='q'\n# no\n  D=4 # comment\nexport E=5\nbad-name=1\nGONE\nF=\nG=\"open\n\
            H=a=b\n=x\nNUL=a\0b\nA=last\n";
        etc_environment(file, &mut out);
        let wanted = [
            "B=two words",
            "C=q",
            "D=4",
            "E=5",
            "F=",
            "G=open",
            "H=a=b",
            "A=last",
        ];
        assert_eq!(text(out), wanted);
    }

    #[test]
    fn user_environment_as_sshd_reads_it() {
        let mut out = Variables::default();
        user_environment(b"A=\"1\"\n#B=2\n\tC=3 # stays\nno line\n=x\nD=\n", &mut out);
        assert_eq!(text(out), ["A=\"1\"", "C=3 # stays", "D="]);
    }

    #[test]
    fn patterns() {
        let table: [(&str, &str, bool); 9] = [
            ("LC_*", "LC_ALL", true),
            ("LC_*", "LANG", false),
            ("*", "", true),
            ("?", "", false),
            ("A?C", "ABC", true),
            ("*_*_X", "A_B_C_X", true),
            ("", "A", false),
            ("LANG", "LANGUAGE", false),
            (
                "*a*a*a*a*a*a*a*a*b",
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                false,
            ),
        ];
        for (pattern, name, wanted) in table {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                wanted,
                "{pattern} {name}"
            );
        }
    }
}
