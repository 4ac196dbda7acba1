//! Questions to the kernel's SELinux policy, through its file system; and the label of a terminal, which is one answer.

use fleetgate_sys::{Errno, Fd, file};
use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// Where the kernel answers.
pub const KERNEL: &str = "/sys/fs/selinux";
/// The attribute that holds a file's label.
pub const LABEL: &CStr = c"security.selinux";
/// The most that a label may have: the kernel answers with a page at most.
pub const MAX_LABEL: usize = 4096;

/// Gives `terminal` the label that the policy has for one of a user in `context`, as sshd does: the label that it was opened
/// with is the server's, and a confined user may not use that.
pub fn label_terminal(terminal: &Fd, context: &CStr) -> Result<(), Errno> {
    let old = file::attribute(terminal, LABEL, MAX_LABEL)?;
    let said = |e: io::Error| Errno(e.raw_os_error().unwrap_or(Errno::EIO.0));
    let class = index("chr_file/index").map_err(said)?;
    let question = format!("{} {} {class}", context.to_string_lossy(), bare(&old));
    let new = ask("relabel", &question).map_err(said)?;
    if new == bare(&old) {
        return Ok(());
    }
    file::set_attribute(terminal, LABEL, &[new.as_bytes(), b"\0"].concat())
}

/// One question to the file `name`, and the answer on the same descriptor.
pub fn ask(name: &str, question: &str) -> io::Result<String> {
    let path = Path::new(KERNEL).join(name);
    let mut kernel = OpenOptions::new().read(true).write(true).open(path)?;
    kernel.write_all(question.as_bytes())?;
    let mut answer = [0; MAX_LABEL];
    let len = kernel.read(&mut answer)?;
    Ok(bare(&answer[..len]))
}

/// The number of a class of objects (`chr_file/index`) or of one of its permissions (`process/perms/transition`).
pub fn index(name: &str) -> io::Result<u32> {
    let text = read(&format!("{KERNEL}/class/{name}"))?;
    text.parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no number"))
}

/// A small file of the kernel's.
pub fn read(path: &str) -> io::Result<String> {
    Ok(bare(&fs::read(path)?))
}

/// A text of the kernel's without the zero byte or the newline that may end it.
pub fn bare(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.trim_end_matches(['\0', '\n']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_the_kernels_texts_is_left_out() {
        for text in [&b"a:b:c"[..], b"a:b:c\0", b"a:b:c\n", b"a:b:c\n\0"] {
            assert_eq!(bare(text), "a:b:c");
        }
    }

    #[test]
    fn a_terminal_that_cannot_be_labelled_is_an_error() {
        // Such a context is in no policy, and without SELinux there is none at all.
        let (_ours, terminal, _) = fleetgate_sys::terminal::open().expect("a terminal");
        assert!(label_terminal(&terminal, c"no:such:context").is_err());
    }
}
