//! The line that a node is sent: the check's name and its arguments, each quoted so that the node, and a shell on a plain sshd,
//! read the same words again.

use crate::options::Options;
use alloc::vec::Vec;

/// The longest name: a named command's, as the node has it.
pub const MAX_NAME: usize = 128;
/// The longest name of a login, and so of a container: an account's, as the node has it.
pub const MAX_LOGIN: usize = 255;
/// The most arguments.
pub const MAX_ARGUMENTS: usize = 64;
/// The longest argument.
pub const MAX_ARGUMENT: usize = 1024;

/// The line.
pub fn line(options: &Options) -> Vec<u8> {
    let mut line = options.command.clone();
    for argument in &options.arguments {
        line.push(b' ');
        quote(&mut line, argument);
    }
    line
}

/// Within single quotes a shell reads nothing but their end.
fn quote(line: &mut Vec<u8>, word: &[u8]) {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"._-@%+=:,/".contains(b);
    if !word.is_empty() && word.iter().all(is_plain) {
        line.extend_from_slice(word);
        return;
    }
    line.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => line.extend_from_slice(b"'\\''"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Invocation, parse};

    #[test]
    fn words_come_back_out_of_a_shell() {
        let words: [&[u8]; 5] = [b"15,10,5", b"", b"a b", b"it's $(id)`id`", b"\\ \" | & ;"];
        let mut given: Vec<&[u8]> = [&b"-H"[..], b"web1", b"-c", b"printf"].to_vec();
        for word in words {
            given.extend([&b"-a"[..], word]);
        }
        let Ok(Invocation::Run(options)) = parse(&given) else {
            panic!("read");
        };
        let line = line(&options);
        assert!(line.starts_with(b"printf 15,10,5 '' 'a b' "));
        let text = std::string::String::from_utf8(line).expect("text");
        let script =
            std::format!("printf() {{ for word; do command printf '%s\\0' \"$word\"; done; }}; {text}");
        let said = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .expect("sh");
        let back: Vec<&[u8]> = said.stdout.split(|b| *b == 0).take(words.len()).collect();
        assert_eq!(back, words);
    }
}
