//! The user's terminal while a session is in it: its modes are given back whatever happens, a panic included.

use fleetgate_ssh::event::{Pty, WindowSize};
use fleetgate_sys::terminal::{self, Modes};
use fleetgate_sys::{process, signals};
use std::sync::{Mutex, Once, PoisonError};

/// Standard input as a terminal: where keys come from and whose size counts.
const INPUT: i32 = 0;

/// The modes to put back, for a panic.
static BEFORE: Mutex<Option<Modes>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// The terminal passes every key on as it is. Dropped: it does again what it did before.
pub(crate) struct Raw(());

impl Raw {
    /// None where standard input is no terminal.
    pub(crate) fn begin() -> Option<Raw> {
        let modes = terminal::modes(INPUT).ok()?;
        HOOK.call_once(|| {
            let next = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                next(info);
            }));
        });
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(modes);
        terminal::set_modes(INPUT, &modes.raw()).ok()?;
        Some(Raw(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    if let Some(modes) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = terminal::set_modes(INPUT, &modes);
    }
}

/// Whether standard input is a terminal.
pub(crate) fn is_there() -> bool {
    terminal::modes(INPUT).is_ok()
}

/// Its size; nothing where there is no terminal.
pub(crate) fn size() -> WindowSize {
    let (columns, rows) = terminal::size(INPUT).unwrap_or_default();
    WindowSize {
        columns: u32::from(columns),
        rows: u32::from(rows),
        ..WindowSize::default()
    }
}

/// The terminal that is asked for on the far side: like ours.
pub(crate) fn wanted() -> Pty {
    use std::os::unix::ffi::OsStringExt;
    Pty {
        term: std::env::var_os("TERM").unwrap_or_default().into_vec(),
        size: size(),
        modes: terminal::modes(INPUT).map(|m| m.encoded()).unwrap_or_default(),
    }
}

/// Stops this program, as Ctrl-Z does at a shell; it returns when the shell lets it go on.
pub(crate) fn stop() {
    if let Ok(us) = process::pidfd_open(process::id()) {
        let _ = process::signal(&us, signals::TSTP);
    }
}
