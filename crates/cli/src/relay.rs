//! Carries bytes between the terminal that this command has and one that it made for a program.

use fleetgate_sys::{Errno, Fd, file, poll, signals, terminal};

/// Copies until the other terminal has no user; keys pass unchanged (raw mode). Of the signals that are asked for, one of a
/// window's new size changes the other terminal's, and any other ends the copying and is returned.
pub fn carry(session: &Fd, signals: Option<&Fd>) -> Option<i32> {
    let saved = terminal::modes(0).ok();
    if let Some(modes) = &saved {
        let _ = terminal::set_modes(0, &modes.raw());
    }
    let ended_by = copy(session, signals);
    if let Some(modes) = &saved {
        let _ = terminal::set_modes(0, modes);
    }
    ended_by
}

/// Gives the other terminal this one's size.
fn fit(session: &Fd) {
    if let Ok((columns, rows)) = terminal::size(0) {
        let _ = terminal::set_size(session, columns, rows);
    }
}

fn copy(session: &Fd, signals: Option<&Fd>) -> Option<i32> {
    let mut buffer = [0u8; 16 << 10];
    let mut typing = 0;
    loop {
        let mut watches = [
            poll::Watch::new(session.raw(), poll::READ),
            poll::Watch::new(typing, poll::READ),
            // A negative number is not watched.
            poll::Watch::new(signals.map_or(-1, Fd::raw), poll::READ),
        ];
        if poll::poll(&mut watches, None).is_err() {
            return None;
        }
        if watches[2].happened() != 0 {
            match signals.map(signals::next) {
                Some(Ok(Some(signals::WINDOW))) => fit(session),
                Some(Ok(Some(other))) => return Some(other),
                _ => {}
            }
        }
        if watches[1].happened() != 0 {
            match file::read(0, &mut buffer) {
                Ok(n) if n > 0 && file::write_all(session.raw(), &buffer[..n]).is_ok() => {}
                // Nobody types any more.
                _ => typing = -1,
            }
        }
        if watches[0].happened() != 0 {
            match file::read(session.raw(), &mut buffer) {
                Ok(n) if n > 0 && file::write_all(1, &buffer[..n]).is_ok() => {}
                Err(Errno::EAGAIN) => {}
                // EIO: its last user is gone.
                _ => return None,
            }
        }
    }
}
