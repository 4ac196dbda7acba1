//! When the tunnel rests: after two seconds in which hardly anything woke it, buffers and the program's pages are given back, as
//! [`fleetgate_worker::rest`] has it for the loops of the other workers. While it is busy this costs a counter and a timer; once it
//! rests it sets no timer until something else wakes the process.

use fleetgate_sys::pages::Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;

/// So long nothing happens before.
const AFTER: Duration = Duration::from_secs(2);
/// So few wake-ups are nothing: the runtime's clock has wheels, and wakes to turn them before a timer is due.
const FEW: u64 = 8;

/// Told by the runtime whenever it is woken.
#[derive(Default)]
pub(crate) struct IdleDetector {
    woken: AtomicU64,
    resting: AtomicBool,
    up: Notify,
}

impl IdleDetector {
    /// For the runtime to call.
    pub(crate) fn woke(self: &Arc<IdleDetector>) -> impl Fn() + Send + Sync + 'static {
        let quiet = self.clone();
        move || {
            quiet.woken.fetch_add(1, Relaxed);
            if quiet.resting.swap(false, Relaxed) {
                quiet.up.notify_one();
            }
        }
    }

    /// Gives back what is not needed, for ever.
    pub(crate) async fn keep(self: Arc<IdleDetector>, program: Option<Program>) {
        loop {
            let before = self.woken.load(Relaxed);
            tokio::time::sleep(AFTER).await;
            if self.woken.load(Relaxed) > before + FEW {
                continue;
            }
            fleetgate_net::tls::rest();
            if let Some(program) = &program {
                // Where the kernel refuses, they stay.
                let _ = program.release();
            }
            self.resting.store(true, Relaxed);
            self.up.notified().await;
        }
    }
}
