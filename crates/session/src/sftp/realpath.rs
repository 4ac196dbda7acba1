//! The one absolute path of a file, as SSH_FXP_REALPATH gives it: every part but the last must exist.
//!
//! Done by hand because clients ask for the path of a file they are about to make, which the kernel does not
//! answer. Nothing is decided by the result: every operation gives the kernel the client's own path, and a chroot
//! is the kernel's too, so a link changed in between misleads nobody.

use alloc::ffi::CString;
use alloc::vec::Vec;
use fleetgate_sys::file::CWD;
use fleetgate_sys::{Errno, tree};

/// How many symbolic links one path may lead through; the kernel's own bound.
const MAX_LINKS: usize = 40;

/// Resolves `path`, relative to the working directory.
pub fn resolve(path: &[u8]) -> Result<Vec<u8>, Errno> {
    // `left` is what is still to be walked, from its end to its start: the next part is popped off the back.
    let mut left: Vec<Vec<u8>> = Vec::new();
    let mut done: Vec<u8> = if path.first() == Some(&b'/') {
        Vec::new()
    } else {
        let here = tree::working_directory()?;
        if here == b"/" { Vec::new() } else { here }
    };
    push_parts(&mut left, path)?;
    let mut links = 0;
    while let Some(part) = left.pop() {
        match part.as_slice() {
            b"" | b"." => continue,
            b".." => {
                let cut = done.iter().rposition(|b| *b == b'/').unwrap_or(0);
                done.truncate(cut);
                continue;
            }
            name => {
                done.push(b'/');
                done.extend_from_slice(name);
            }
        }
        if done.len() >= tree::MAX_PATH {
            return Err(Errno::ENAMETOOLONG);
        }
        let here = CString::new(done.as_slice()).map_err(|_| Errno::EINVAL)?;
        match tree::stat(CWD, &here, false) {
            Err(Errno::ENOENT) if left.is_empty() => break,
            Err(errno) => return Err(errno),
            Ok(stat) if stat.is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::ELOOP);
                }
                let says = tree::read_link(CWD, &here)?;
                if says.first() == Some(&b'/') {
                    done.clear();
                } else {
                    let cut = done.iter().rposition(|b| *b == b'/').unwrap_or(0);
                    done.truncate(cut);
                }
                push_parts(&mut left, &says)?;
            }
            Ok(_) => {}
        }
    }
    if done.is_empty() {
        done.push(b'/');
    }
    Ok(done)
}

/// Puts the parts of `path` before what is left. A slash at its end makes an empty part, so that a missing file
/// with a slash behind it is not the last part.
fn push_parts(left: &mut Vec<Vec<u8>>, path: &[u8]) -> Result<(), Errno> {
    let sum: usize = left.iter().map(|p| p.len() + 1).sum();
    if sum + path.len() >= tree::MAX_PATH {
        return Err(Errno::ENAMETOOLONG);
    }
    left.extend(path.split(|b| *b == b'/').rev().map(<[u8]>::to_vec));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::os::unix::fs::symlink;
    use std::string::ToString;

    #[test]
    fn paths_are_resolved_as_clients_expect() {
        let root = std::env::temp_dir().join(std::format!("fleetgate-realpath-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        let root = root.canonicalize().unwrap();
        std::fs::write(root.join("a/file"), "").unwrap();
        symlink("b/../file", root.join("a/relative")).unwrap();
        symlink(root.join("a"), root.join("absolute")).unwrap();
        symlink("missing/part", root.join("dangling")).unwrap();
        symlink("missing", root.join("a/dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let ours = |path: &str| {
            let path = root.join(path);
            resolve(path.as_os_str().as_bytes()).map(|p| {
                let p = std::path::PathBuf::from(std::ffi::OsString::from_vec(p));
                p.strip_prefix(&root).unwrap().to_str().unwrap().to_string()
            })
        };
        let ok = |s: &str| Ok(s.to_string());
        assert_eq!(ours("a//./b/../b"), ok("a/b"));
        assert_eq!(ours("a/b/"), ok("a/b"));
        assert_eq!(ours("a/new"), ok("a/new"));
        assert_eq!(ours("a/new/"), Err(Errno::ENOENT));
        assert_eq!(ours("a/new/more"), Err(Errno::ENOENT));
        assert_eq!(ours("a/relative"), ok("a/file"));
        assert_eq!(ours("absolute/b/../relative"), ok("a/file"));
        assert_eq!(ours("a/dangling"), ok("a/missing"));
        assert_eq!(ours("dangling"), Err(Errno::ENOENT));
        assert_eq!(ours("loop"), Err(Errno::ELOOP));
        assert_eq!(ours("a/file/.."), ok("a"));
        assert_eq!(ours("a/file/x"), Err(Errno::ENOTDIR));
        assert_eq!(resolve(b"/../../.."), Ok(b"/".to_vec()));
        assert_eq!(resolve(&b"a/".repeat(3000)), Err(Errno::ENAMETOOLONG));
        let here = std::env::current_dir().unwrap();
        assert_eq!(resolve(b"."), Ok(here.as_os_str().as_bytes().to_vec()));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
