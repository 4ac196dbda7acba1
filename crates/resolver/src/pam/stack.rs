//! Which files a PAM service is made of: its own, those it includes, and the modules they name. Read only to have
//! them loaded before they are needed and to notice when they change; libpam reads them itself, and its word counts.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where services stand; the first that has one wins.
const DIRECTORIES: [&str; 3] = ["/etc/pam.d", "/usr/lib/pam.d", "/usr/share/pam.d"];
/// Where modules may stand, by distribution; libpam knows its own, we take the first that exists.
const MODULES: [&str; 6] = [
    "/lib/x86_64-linux-gnu/security",
    "/lib/aarch64-linux-gnu/security",
    "/usr/lib64/security",
    "/lib64/security",
    "/usr/lib/security",
    "/lib/security",
];
/// Beside the service: what a change makes the loaded libraries old.
const BESIDE: [&str; 3] = ["/etc/pam.conf", "/etc/nsswitch.conf", "/etc/ld.so.cache"];
/// Bounds of what is followed; beyond them the rest is simply not warm.
const MAX_FILES: usize = 64;
const MAX_MODULES: usize = 128;
const MAX_BYTES: u64 = 64 << 10;

/// One thing that a line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceLine {
    /// Another service's file.
    Service(String),
    /// A module, by path or by name.
    Module(String),
}

/// The files of some services.
#[derive(Debug, Default)]
pub struct Files {
    /// Read by libpam, or looked for; among them some that do not exist.
    pub read: Vec<PathBuf>,
    /// Modules that exist.
    pub modules: Vec<PathBuf>,
}

/// Whether `name` can be a service: one file name, nothing that leaves the directory.
pub fn is_service(name: &[u8]) -> bool {
    let fine = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
    !name.is_empty() && name.len() <= 64 && name[0] != b'.' && name.iter().all(fine)
}

impl Files {
    /// Those of `services`, and of `other`, which libpam reads for every service.
    pub fn of_services(services: &[CString]) -> Files {
        let mut files = Files {
            read: BESIDE.iter().map(PathBuf::from).collect(),
            modules: Vec::new(),
        };
        let mut wanted: Vec<String> = services
            .iter()
            .map(|s| s.to_string_lossy().into_owned())
            .chain(["other".to_owned()])
            .collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = wanted.pop() {
            if seen.len() >= MAX_FILES || !seen.insert(name.clone()) {
                continue;
            }
            for named in parse(&files.read_service(&name)) {
                match named {
                    ServiceLine::Service(name) => wanted.push(name),
                    ServiceLine::Module(name) => files.add_module(&name),
                }
            }
        }
        files
    }

    /// The content of service `name`; every place where it was looked for is remembered.
    fn read_service(&mut self, name: &str) -> String {
        // An @include may name a path.
        let absolute = name.starts_with('/');
        for directory in DIRECTORIES {
            let path = Path::new(directory).join(name);
            self.read.push(path.clone());
            let fits = std::fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= MAX_BYTES);
            if fits && let Ok(content) = std::fs::read(&path) {
                return String::from_utf8_lossy(&content).into_owned();
            }
            if absolute {
                break;
            }
        }
        String::new()
    }

    fn add_module(&mut self, name: &str) {
        let candidates = MODULES.iter().map(|directory| Path::new(directory).join(name));
        let found = candidates.into_iter().find(|path| path.is_file());
        if let Some(path) = found
            && self.modules.len() < MAX_MODULES
            && !self.modules.contains(&path)
            && !path.as_os_str().as_bytes().contains(&0)
        {
            self.modules.push(path);
        }
    }
}

/// What the lines of a service's file name, in order.
pub fn parse(content: &str) -> Vec<ServiceLine> {
    // A backslash joins lines, before anything else is looked at.
    let joined = content.replace("\\\n", " ");
    joined.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<ServiceLine> {
    let line = line.split('#').next().unwrap_or_default().trim();
    if let Some(name) = line.strip_prefix("@include") {
        return name
            .split_whitespace()
            .next()
            .map(|n| ServiceLine::Service(n.to_owned()));
    }
    let (_kind, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let (control, rest) = match rest.strip_prefix('[') {
        Some(inside) => {
            let (_, rest) = inside.split_once(']')?;
            ("", rest)
        }
        None => rest.split_once(char::is_whitespace)?,
    };
    let target = rest.split_whitespace().next()?.to_owned();
    Some(match control {
        "include" | "substack" => ServiceLine::Service(target),
        _ => ServiceLine::Module(target),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_form() {
        let text = "# a comment\n\
            @include common-auth\n\
            auth required pam_unix.so nullok # why\n\
            -session\toptional\t/opt/x/pam_y.so\n\
            session [success=ok  default=bad] pam_selinux.so close\n\
            account include other-account\n\
            session substack sub\n\
            auth \\\n required \\\n pam_deny.so\n\
            broken\n\
            also broken-line\n\n";
        let service = |s: &str| ServiceLine::Service(s.to_owned());
        let module = |s: &str| ServiceLine::Module(s.to_owned());
        assert_eq!(
            parse(text),
            [
                service("common-auth"),
                module("pam_unix.so"),
                module("/opt/x/pam_y.so"),
                module("pam_selinux.so"),
                service("other-account"),
                service("sub"),
                module("pam_deny.so"),
            ]
        );
    }

    #[test]
    fn services_are_plain_file_names() {
        assert!(is_service(b"fleetgate") && is_service(b"su-l") && is_service(b"x.y_z"));
        for bad in [
            &b""[..],
            b".",
            b"..",
            b"../shadow",
            b"a/b",
            b"a b",
            b"\xff",
            &[b'a'; 65],
        ] {
            assert!(!is_service(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_service_that_is_not_there_has_only_what_everybody_has() {
        let files = Files::of_services(&[c"fleetgate-no-such-service".to_owned()]);
        assert!(
            files
                .read
                .iter()
                .any(|p| p.ends_with("fleetgate-no-such-service"))
        );
        assert!(files.read.iter().any(|p| p.ends_with("nsswitch.conf")));
    }
}
