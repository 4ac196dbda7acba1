//! A command that is waited for no longer than a bound. One that hangs says where, and hangs no test.

use crate::service::{command_line, descendants, kill};
use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a stream has said so far.
type Said = Arc<Mutex<Vec<u8>>>;

/// Its output, once all of that is here. As an error, what it had said, and what ran below it when its time was over; all of that
/// is ended then.
pub fn output_within(command: &mut Command, bound: Duration) -> Result<Output, String> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|e| format!("{command:?}: {e}"))?;
    let (over, ends) = channel();
    let stdout = collect(child.stdout.take(), over.clone());
    let stderr = collect(child.stderr.take(), over);
    let until = Instant::now() + bound;
    let left = || until.saturating_duration_since(Instant::now());
    // A process that was left behind may hold them open for longer than the child lives.
    let mut is_over = (0..2).all(|_| ends.recv_timeout(left()).is_ok());
    let status = loop {
        match child.try_wait().map_err(|e| format!("{command:?}: {e}"))? {
            Some(status) => break Some(status),
            None if left().is_zero() => break None,
            None => sleep(Duration::from_millis(1)),
        }
    };
    is_over &= status.is_some();
    let taken = |said: &Said| std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner));
    if let (Some(status), true) = (status, is_over) {
        return Ok(Output {
            status,
            stdout: taken(&stdout),
            stderr: taken(&stderr),
        });
    }
    let below = descendants(child.id().cast_signed());
    let lines: Vec<String> = below
        .iter()
        .map(|pid| format!("  {pid} {}", command_line(*pid)))
        .collect();
    let _ = child.kill();
    below.into_iter().for_each(kill);
    let _ = child.wait();
    Err(format!(
        "{}{}(it hangs: {} s are over, {}; below it run\n{})",
        String::from_utf8_lossy(&taken(&stdout)),
        String::from_utf8_lossy(&taken(&stderr)),
        bound.as_secs(),
        status.map_or("it still runs".to_owned(), |status| {
            format!("{status}, but somebody holds its output open")
        }),
        lines.join("\n")
    ))
}

/// Reads it in a thread of its own, which says when it has ended.
fn collect(stream: Option<impl Read + Send + 'static>, over: Sender<()>) -> Said {
    let said = Said::default();
    let shared = said.clone();
    std::thread::spawn(move || {
        let Some(mut stream) = stream else { return };
        let mut room = [0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut room) {
            shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(&room[..len]);
        }
        let _ = over.send(());
    });
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, bound: Duration) -> Result<Output, String> {
        output_within(Command::new("sh").args(["-c", script]), bound)
    }

    #[test]
    fn what_ends_in_time_is_as_it_said_it() {
        let out = sh("echo out; echo err >&2; exit 3", Duration::from_secs(60)).expect("it ends");
        assert_eq!((out.stdout, out.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
        assert_eq!(out.status.code(), Some(3));
    }

    #[test]
    fn what_hangs_says_where_and_is_ended() {
        let why = sh("echo so far; sleep 600; true", Duration::from_millis(500)).expect_err("it hangs");
        assert!(why.starts_with("so far\n") && why.contains("sleep 600"), "{why}");
        let why = sh("sleep 600 & echo gone", Duration::from_millis(500)).expect_err("it hangs");
        assert!(why.contains("holds its output open"), "{why}");
    }
}
