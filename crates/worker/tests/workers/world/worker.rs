//! A worker as a process, and the socket to it.

use fleetgate_sys::{Errno, Fd, process, socket};
use fleetgate_wire::node;
use fleetgate_wire::{Decode, Encode};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

/// A worker and the socket to it.
pub struct WorkerKind {
    pub control: Fd,
    pub child: Child,
}

impl WorkerKind {
    /// Starts the real program.
    pub fn start(name: &str) -> WorkerKind {
        let (ours, theirs) = socket::pair().expect("a pair");
        // The static image, where the tests are to be run with it.
        let program = std::env::var("FLEETGATE_FRONT");
        let program = program
            .as_deref()
            .unwrap_or(env!("CARGO_BIN_EXE_fleetgate-front"));
        // The program looks at descriptor 3, which Command cannot place: a shell does.
        let child = Command::new("/bin/sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 </dev/null"#, program, name])
            .args(if process::effective_uid() == 0 {
                &["--uid", "65534", "--gid", "65534"][..]
            } else {
                &[]
            })
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .expect("it starts");
        WorkerKind { control: ours, child }
    }

    /// Says a word, with descriptors.
    pub fn say<T: Encode>(&self, word: &T, fds: &[i32]) {
        socket::send(&self.control, &fleetgate_wire::encode(word), fds).expect("the worker listens");
    }

    pub(super) fn hear<T: Decode>(&self) -> Option<T> {
        let mut room = vec![0; node::MAX_FRAME + 4096];
        match socket::receive(&self.control, &mut room, false) {
            Ok(got) if got.len == 0 => panic!("the worker ended"),
            Ok(got) => Some(fleetgate_wire::decode(&room[..got.len]).expect("a frame")),
            Err(Errno::EAGAIN) => None,
            Err(e) => panic!("the worker ended: {e}"),
        }
    }

    /// Its memory that it shares with nobody, in KB.
    pub fn private_kb(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(path).expect("it runs");
        let line = text
            .lines()
            .find(|l| l.starts_with("Anonymous:"))
            .expect("it has one");
        line.split_whitespace()
            .nth(1)
            .expect("a number")
            .parse()
            .expect("a number")
    }

    /// Closes the control socket and waits for the end.
    pub fn finish(mut self) -> Option<i32> {
        drop(self.control);
        self.child.wait().expect("it ends").code()
    }
}
