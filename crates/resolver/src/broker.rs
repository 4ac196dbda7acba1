//! The broker: the resolver's first process. It owns the control socket, hands names and PAM sessions to the
//! processes that do the work, and keeps the time. It calls nothing that may block.
//!
//! When the control socket closes it begins nothing new, and ends with the last look-up socket: helpers of running
//! sessions keep their names while the server restarts. PAM processes end by themselves, with their sessions.

use crate::names::Names;
use crate::pam::Pam;
use crate::{Settings, log};
use fleetgate_sys::glibc::fork;
use fleetgate_sys::poll::{self, READ, Watch};
use fleetgate_sys::{Errno, Fd, clock, socket};
use fleetgate_wire::MAX_INLINE;
use fleetgate_wire::resolver::ToResolver;

/// Where the server puts the control socket.
const CONTROL: i32 = 3;
/// The most frames read from the control socket before others have their turn.
const MAX_PER_TURN: usize = 64;

/// Serves until nobody needs it; returns the exit code.
pub fn serve(settings: Settings) -> i32 {
    let control = Fd::from_raw(CONTROL);
    if let Err(e) = control.set_cloexec(true) {
        std::mem::forget(control);
        log(format_args!(
            "no control socket on descriptor {CONTROL}: {e}; it is started by fleetgate"
        ));
        return 2;
    }
    fork::reap_children(true);
    fork::set_name(c"fleetgate-res");
    let uses_pam = !settings.services.is_empty();
    let mut broker = Broker {
        names: Names::new(settings.selinux_required),
        pam: Pam::new(settings.services),
        control: Some(control),
        buffer: vec![0; MAX_INLINE],
    };
    if uses_pam {
        broker.pam.warm_up();
    }
    loop {
        if broker.control.is_none() && broker.names.is_idle() {
            return 0;
        }
        if let Err(e) = broker.turn() {
            log(format_args!("waiting failed: {e}"));
            return 1;
        }
    }
}

struct Broker {
    names: Names,
    pam: Pam,
    control: Option<Fd>,
    buffer: Vec<u8>,
}

impl Broker {
    fn turn(&mut self) -> Result<(), Errno> {
        let mut watches = Vec::new();
        if let Some(control) = &self.control {
            watches.push(Watch::new(control.raw(), READ));
        }
        self.names.watch(&mut watches);
        self.pam.watch(&mut watches);
        let due = [self.names.due(), self.pam.due()].into_iter().flatten().min();
        let timeout = due.map(|due| {
            let left = (due - clock::boot().as_nanos()).max(0);
            // Rounded up: waking a moment early would only mean another turn.
            u32::try_from(left / 1_000_000 + 1).unwrap_or(u32::MAX)
        });
        poll::poll(&mut watches, timeout)?;
        self.names.turn(&watches);
        self.pam.turn(&watches);
        // Last, because it makes descriptors whose numbers the list above does not know.
        let ready = |c: &Fd| watches.iter().any(|w| w.fd() == c.raw() && w.happened() != 0);
        if self.control.as_ref().is_some_and(ready) {
            self.listen();
        }
        Ok(())
    }

    fn listen(&mut self) {
        for _ in 0..MAX_PER_TURN {
            let Some(control) = &self.control else { return };
            let mut message = match socket::receive(control, &mut self.buffer, false) {
                Err(Errno::EAGAIN) => return,
                Ok(message) if message.len > 0 => message,
                _ => {
                    self.control = None;
                    self.pam.end();
                    return;
                }
            };
            let frame = &self.buffer[..message.len];
            // A bad frame is the server's bug. It costs that one request, whose socket closes, and a line.
            let word = match fleetgate_wire::decode::<ToResolver>(frame) {
                Ok(word) if !message.truncated && message.fds.len() == 1 => word,
                Ok(_) => {
                    log(format_args!(
                        "a request came with {} descriptors instead of 1",
                        message.fds.len()
                    ));
                    continue;
                }
                Err(e) => {
                    log(format_args!("a request is refused: {e}"));
                    continue;
                }
            };
            let Some(given) = message.fds.pop() else { continue };
            match word {
                ToResolver::Names => self.names.attach(given),
                ToResolver::Pam { start } => self.pam.begin(&start.service, frame, given),
            }
        }
    }
}
