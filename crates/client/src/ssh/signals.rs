//! Signals to this program that a session has to hear of.

use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals to this program: its terminal has another size, or it is to end.
pub(crate) struct Signals {
    pub(super) window: Signal,
    pub(super) ends: Vec<(Signal, i32)>,
}

impl Signals {
    /// The next one: the number of one that says that the program is to end; none: the terminal has another size.
    pub(crate) async fn next(&mut self) -> Option<i32> {
        std::future::poll_fn(|cx| {
            for (signal, number) in &mut self.ends {
                if let Poll::Ready(Some(())) = signal.poll_recv(cx) {
                    return Poll::Ready(Some(*number));
                }
            }
            self.window.poll_recv(cx).map(|_| None)
        })
        .await
    }

    pub(crate) fn new() -> io::Result<Signals> {
        let mut ends = Vec::new();
        let ignored = ignored();
        for (kind, number) in [
            (SignalKind::hangup(), 1),
            (SignalKind::interrupt(), 2),
            (SignalKind::quit(), 3),
            (SignalKind::terminate(), 15),
        ] {
            // What whoever started us ignores stays ignored: nohup, a shell's background.
            if ignored & 1 << (number - 1) == 0 {
                ends.push((signal(kind)?, number));
            }
        }
        Ok(Signals {
            window: signal(SignalKind::window_change())?,
            ends,
        })
    }
}

/// The signals that this process ignores, a bit for each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok())
        .unwrap_or(0)
}
