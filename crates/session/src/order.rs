//! Receiving the order and answering it. One message, at most [`MAX_INLINE`] long, or a sealed memfd beside
//! [`BY_REFERENCE`]; descriptors must match the order's roles exactly.

use alloc::ffi::CString;
use alloc::vec::Vec;
use fleetgate_sys::{Errno, Fd, exe, file, memfd, socket};
use fleetgate_wire::order::{BY_REFERENCE, Order, Role, Work};
use fleetgate_wire::{Decode, Failure, MAX_INLINE, MAX_ORDER, Reason, Reply};

/// Where the launching side puts the control socket.
const CONTROL: i32 = 3;

/// The launching side's end of the order.
pub struct Control {
    socket: Fd,
}

/// The descriptors that came with an order, by role.
pub struct OrderDescriptors(Vec<(Role, Fd)>);

impl OrderDescriptors {
    /// Takes the descriptor of `role`, if there is one.
    pub fn take(&mut self, role: Role) -> Option<Fd> {
        let at = self.0.iter().position(|(r, _)| *r == role)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Adds one that this process made itself.
    pub fn add(&mut self, role: Role, fd: Fd) {
        self.0.push((role, fd));
    }

    /// Whether all were taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Control {
    /// The inherited control socket, made close-on-exec.
    pub fn inherited() -> Result<Control, Errno> {
        let socket = Fd::from_raw(CONTROL);
        if let Err(e) = socket.set_cloexec(true) {
            core::mem::forget(socket);
            return Err(e);
        }
        Ok(Control { socket })
    }

    /// The socket, for replies that carry descriptors.
    pub fn socket(&self) -> &Fd {
        &self.socket
    }

    /// The socket, for helpers that go on talking on it.
    pub fn into_socket(self) -> Fd {
        self.socket
    }

    /// Takes the order, which is there already. A refusal has already been told to the other side.
    pub fn receive(&self) -> Result<(Work, OrderDescriptors), Failure> {
        self.receive_as(|order: Order| (order.work, order.roles))
    }

    /// The same for an order of another form, which `apart` takes into what is to be done and the descriptors' roles.
    pub fn receive_as<T: Decode, W>(
        &self,
        apart: fn(T) -> (W, Vec<Role>),
    ) -> Result<(W, OrderDescriptors), Failure> {
        let result = receive(&self.socket, apart);
        if let Err(failure) = &result {
            self.fail(failure.clone());
        }
        result
    }

    /// Says a word. The launching side may be gone; the work goes on without it, so errors are dropped.
    pub fn say(&self, reply: &Reply) {
        let _ = socket::send(&self.socket, &fleetgate_wire::encode(reply), &[]);
    }

    /// Says that it will not be done.
    pub fn fail(&self, failure: Failure) {
        self.say(&Reply::Failed { failure });
    }
}

/// A failure about `subject`.
pub fn failure(reason: Reason, errno: Errno, subject: &str) -> Failure {
    Failure {
        reason,
        errno: errno.0,
        subject: CString::new(subject).unwrap_or_default(),
    }
}

/// How much memory an order takes for each of its bytes: the frame while it grows, what is decoded, the
/// environment made of it. A frame of many short variables costs most.
const MEMORY_PER_BYTE: usize = 8;

/// Memory for `len` bytes, or the refusal.
fn room(len: usize) -> Result<Vec<u8>, Failure> {
    let mut room = Vec::new();
    room.try_reserve_exact(len)
        .map_err(|_| failure(Reason::NoMemory, Errno::ENOMEM, "memory for the order"))?;
    Ok(room)
}

fn receive<T: Decode, W>(
    socket: &Fd,
    apart: fn(T) -> (W, Vec<Role>),
) -> Result<(W, OrderDescriptors), Failure> {
    let bad = |reason, errno, subject: &str| failure(reason, errno, subject);
    let receiving = |e| bad(Reason::System, e, "receiving the order");
    // As much memory as the order is long: sixteen fresh pages for the longest would cost more than this call.
    let length = socket::next_length(socket)
        .map_err(receiving)?
        .clamp(1, MAX_INLINE);
    let mut buffer = room(length)?;
    buffer.resize(length, 0);
    let mut message = socket::receive(socket, &mut buffer, true).map_err(receiving)?;
    if message.truncated {
        return Err(bad(
            Reason::BadOrder,
            Errno::EMSGSIZE,
            "the order is longer than a message may be",
        ));
    }
    let frame = &buffer[..message.len];
    let long;
    let frame = if frame == BY_REFERENCE {
        if message.fds.is_empty() {
            return Err(bad(
                Reason::BadDescriptors,
                Errno(0),
                "the memfd that holds the order",
            ));
        }
        let memory = message.fds.remove(0);
        if !memfd::is_final(&memory) {
            return Err(bad(
                Reason::BadDescriptors,
                Errno::EPERM,
                "the order's memfd is not sealed",
            ));
        }
        let len = exe::identity(&memory)
            .map_err(|e| bad(Reason::BadDescriptors, e, "the order's memfd"))?
            .size;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > MAX_ORDER {
            return Err(bad(Reason::TooLarge, Errno::EFBIG, "the order's memfd"));
        }
        // The frame, and all that is taken out of it and made of it: told now, not found out half way.
        drop(room(MEMORY_PER_BYTE * len)?);
        long = file::read_to_end(&memory, MAX_ORDER)
            .map_err(|e| bad(Reason::BadOrder, e, "reading the order's memfd"))?;
        long.as_slice()
    } else {
        frame
    };
    let order =
        fleetgate_wire::decode(frame).map_err(|e| bad(Reason::BadOrder, Errno(0), &alloc::format!("{e}")))?;
    let (work, roles) = apart(order);
    if roles.len() != message.fds.len() {
        let text = alloc::format!("{} descriptors came for {} roles", message.fds.len(), roles.len());
        return Err(bad(Reason::BadDescriptors, Errno(0), &text));
    }
    Ok((
        work,
        OrderDescriptors(roles.into_iter().zip(message.fds).collect()),
    ))
}
