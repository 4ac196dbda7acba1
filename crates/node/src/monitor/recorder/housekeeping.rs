//! What is done about recordings beside sessions, on a thread of its own: those that a killed monitor left get their end and a
//! signature, and old ones are removed.

use super::hex;
use crate::config::offer::Offer;
use crate::config::recording::Settings;
use crate::monitor::audit::{Audit, Event};
use crate::monitor::tools::Tools;
use fleetgate_recorder::directory::{self, Finished};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// So often it is done.
const EVERY: Duration = Duration::from_secs(60);

/// The thread; it ends with this. A node that records nothing, and has recorded nothing, has none.
#[derive(Default)]
pub struct Housekeeping(Option<Sender<News>>);

type News = (Settings, Arc<Offer>, Arc<AtomicBool>);

impl Housekeeping {
    /// Starts it where this node has recordings already.
    pub fn of(tools: &Tools, offer: &Arc<Offer>) -> Housekeeping {
        let mut housekeeping = Housekeeping::default();
        if tools.config.recording.directory.is_dir() {
            housekeeping.run(tools, offer);
        }
        housekeeping
    }

    /// Has it done now, and from time to time.
    pub fn run(&mut self, tools: &Tools, offer: &Arc<Offer>) {
        let full = tools.recordings.fullness().clone();
        let news = (tools.config.recording.clone(), offer.clone(), full);
        match &self.0 {
            // The thread ends with this only.
            Some(thread) => drop(thread.send(news)),
            None => match start(news, tools.audit.clone()) {
                Ok(thread) => self.0 = Some(thread),
                Err(e) => tracing::error!("old recordings are not looked after: starting a thread: {e}"),
            },
        }
    }

    /// Whether somebody looks after recordings.
    pub fn runs(&self) -> bool {
        self.0.is_some()
    }
}

fn start(first: News, audit: Audit) -> std::io::Result<Sender<News>> {
    let (sender, news) = channel();
    std::thread::Builder::new()
        .name("recordings".to_owned())
        .stack_size(128 << 10)
        .spawn(move || {
            let mut now = first;
            loop {
                look(&now, &audit);
                now = match news.recv_timeout(EVERY) {
                    Ok(changed) => changed,
                    Err(RecvTimeoutError::Timeout) => now,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
            }
        })?;
    Ok(sender)
}

fn look((settings, offer, full): &News, audit: &Audit) {
    let sign = |statement: &_| {
        let statement: &fleetgate_record::signature::Statement = statement;
        offer.keys.sign_recording(&statement.text())
    };
    directory::finish_all(&settings.directory, &sign, &mut |one| match one {
        Ok(Finished { session, position }) => audit.tell(Event::Recorded {
            connection: None,
            login: None,
            session,
            blocks: position.blocks,
            bytes: position.length,
            chain: hex(&position.chain),
            recovered: true,
        }),
        Err(why) => tracing::warn!("a recording that was not finished stays so: {why}"),
    });
    let removed = directory::keep_within(&settings.directory, settings.keep_days, settings.max_size.0);
    let is_full = settings.max_size.0 > 0 && removed.left > settings.max_size.0;
    if is_full && !full.swap(is_full, Ordering::Relaxed) {
        tracing::error!(
            bytes = removed.left,
            "the directory of recordings holds more than recording.max_size, and none of it is old enough to go: nothing more \
             is recorded"
        );
    }
    full.store(is_full, Ordering::Relaxed);
    if removed.count > 0 {
        tracing::info!(
            count = removed.count,
            bytes = removed.bytes,
            "old recordings were removed"
        );
        audit.tell(Event::RecordingsRemoved {
            count: removed.count,
            bytes: removed.bytes,
        });
    }
}
