//! One running node for each identity. A second one would throw the first off its tunnels, and the first the second. The
//! monitor holds a lock on a file in the state directory until it drains, so a restart's next monitor takes over while this one
//! goes on with its sessions. It ends no process, and a file that cannot be made keeps no node from serving.

use fleetgate_sys::{Errno, Fd, clock, lock, process};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Below the state directory: the number of the running node's first process.
const FILE: &str = "node.lock";
/// How long the monitor of a starter that was killed may take until it drains.
pub const HANDOVER: Duration = Duration::from_secs(3);
/// How often the lock is tried meanwhile.
const TRY: Duration = Duration::from_millis(20);
/// The longest number.
const MAX_NUMBER: u64 = 16;

/// The lock, until it is dropped.
#[derive(Debug)]
pub struct NodeLock(Fd);

impl NodeLock {
    /// Takes the lock within `wait`. An error names the process that has it. None: the file cannot be made or locked.
    pub fn begin(state_directory: &Path, wait: Duration) -> Result<Option<NodeLock>, String> {
        let path = state_directory.join(FILE);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(fleetgate_sys::file::flags::O_NOFOLLOW)
            .open(&path);
        let unguarded = |e: &dyn std::fmt::Display| {
            tracing::warn!("{}: {e}: a second node would not be noticed", path.display());
            Ok(None)
        };
        let mut file = match opened {
            Ok(file) => file,
            Err(e) => return unguarded(&e),
        };
        let duplicate = match file.try_clone() {
            Ok(duplicate) => duplicate,
            Err(e) => return unguarded(&e),
        };
        let held = Fd::from(OwnedFd::from(duplicate));
        for _ in 0..=wait.as_millis() / TRY.as_millis() {
            match lock::try_hold(&held) {
                Ok(()) => {
                    // The number is for people: without it the lock holds too.
                    let _ = note(&mut file);
                    return Ok(Some(NodeLock(held)));
                }
                Err(Errno::EAGAIN) if wait.is_zero() => break,
                Err(Errno::EAGAIN) => clock::pause(TRY.subsec_nanos()),
                Err(e) => return unguarded(&e),
            }
        }
        Err(format!(
            "this node runs already{}, and its state directory is {}: stop that one first (systemctl stop fleetgate-node, \
             or fleetgate up), or give this one a `state_directory` of its own",
            noted(&mut file),
            state_directory.display()
        ))
    }
}

impl Drop for NodeLock {
    fn drop(&mut self) {
        // A worker that is not executed yet has the descriptor too.
        let _ = lock::let_go(&self.0);
    }
}

/// The number of the starter whose node holds the lock now; none: no node runs. It takes no lock: a node that starts meanwhile
/// is not kept out.
pub fn running(state_directory: &Path) -> std::io::Result<Option<u32>> {
    let file = match File::open(state_directory.join(FILE)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let inode = file.metadata()?.ino();
    let locks = std::fs::read_to_string("/proc/locks")?;
    // "1: OFDLCK ADVISORY  WRITE -1 08:01:1234 0 EOF": the device in an own form, which overlays show otherwise.
    let is_held = locks.lines().any(|line| {
        let place = line
            .split_whitespace()
            .find(|word| word.matches(':').count() == 2);
        place.is_some_and(|place| place.ends_with(&format!(":{inode}")))
    });
    let mut text = String::new();
    file.take(MAX_NUMBER).read_to_string(&mut text)?;
    Ok(text.trim().parse().ok().filter(|_| is_held))
}

/// Writes the starter's number: it is the process that is stopped.
fn note(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", process::parent_id())
}

/// `, pid N`, where a number is there.
fn noted(file: &mut File) -> String {
    let mut text = String::new();
    let read = file
        .rewind()
        .and_then(|()| file.take(MAX_NUMBER).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!(", pid {pid}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_node_of_one_state_directory_is_refused_until_the_first_drains() {
        let directory = std::env::temp_dir().join(format!("fleetgate-running-{}", std::process::id()));
        let other = directory.join("other");
        std::fs::create_dir_all(&other).expect("made");
        let begin = |directory: &Path| NodeLock::begin(directory, Duration::ZERO);
        let first = begin(&directory).expect("nobody has it").expect("a file");
        let refused = begin(&directory).expect_err("the first has it");
        let pid = process::parent_id();
        assert_eq!(running(&directory).expect("read"), u32::try_from(pid).ok());
        assert!(
            refused.starts_with(&format!(
                "this node runs already, pid {pid}, and its state directory is "
            )),
            "{refused}"
        );
        let beside = begin(&other).expect("another state directory");
        assert!(beside.is_some(), "control");
        // A worker that has not been executed yet.
        let copy = first.0.duplicate(0).expect("a copy");
        drop(first);
        let second = begin(&directory).expect("the first drains").expect("a file");
        drop((copy, second));
        // One that waits gets it as soon as it is free.
        let held = begin(&directory).expect("free").expect("a file");
        let waiting = {
            let directory = directory.clone();
            std::thread::spawn(move || NodeLock::begin(&directory, Duration::from_secs(60)))
        };
        drop(held);
        assert!(waiting.join().expect("no panic").expect("in time").is_some());
        // Where no file can be made the node serves all the same.
        assert!(matches!(begin(&directory.join("missing")), Ok(None)));
        assert_eq!(running(&directory).expect("read"), None, "nobody has it any more");
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
