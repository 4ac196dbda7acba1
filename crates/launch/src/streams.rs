//! The descriptors of a session: a terminal, three pipes, or for the file server one socket. Two ends each: the helper's
//! go with the order, ours to the front.

use fleetgate_sys::file::{pipe, write};
use fleetgate_sys::terminal::{self, set_modes, set_window};
use fleetgate_sys::{Errno, Fd, socket, stream};
use fleetgate_wire::node::front::Terminal;
use fleetgate_wire::order::Role;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// How much a pipe for bulk holds: less means a wake-up for every 64 KB. The kernel takes memory for what lies in it.
const PIPE: i32 = 256 << 10;
/// How much a pipe holds that nobody has asked to hold more.
const SMALL_PIPE: usize = 64 << 10;

/// Both sides' descriptors.
#[derive(Debug)]
pub struct Streams {
    /// For the helper.
    pub given: Vec<(Role, Fd)>,
    /// For the front; none of them waits.
    pub ours: Vec<Fd>,
    /// One socket stands for both ways.
    pub is_socket: bool,
    /// The terminal's path.
    pub path: Option<CString>,
}

impl Streams {
    /// A terminal as the client described it; `label` is given its user's side before anybody else has it. What the client
    /// describes wrongly stays as the kernel has it.
    pub fn terminal(
        wanted: &Terminal,
        label: impl FnOnce(&Fd) -> Result<(), Errno>,
    ) -> Result<Streams, Errno> {
        let (ours, user, path) = terminal::open()?;
        label(&user)?;
        let window = wanted.window();
        set_window(
            &user,
            (window.columns, window.rows),
            (window.width, window.height),
        )?;
        if !wanted.modes.is_empty() {
            let modes = terminal::modes(user.raw())?;
            set_modes(user.raw(), &modes.with_encoded(&wanted.modes))?;
        }
        ours.set_nonblocking(true)?;
        Ok(Streams {
            given: vec![(Role::Terminal, user)],
            ours: vec![ours],
            is_socket: false,
            path: Some(path),
        })
    }

    /// Where the terminal of a container comes from, which only the helper can make. Its path is not known before.
    pub fn console() -> Result<Streams, Errno> {
        let (ours, theirs) = socket::pair()?;
        ours.set_nonblocking(true)?;
        Ok(Streams {
            given: vec![(Role::Console, theirs)],
            ours: vec![ours],
            is_socket: false,
            path: Some(c"/dev/pts/ptmx".into()),
        })
    }

    /// The terminal that came, instead of the place where it came from; the path of its user's side.
    pub fn receive_terminal(ours: &mut Vec<Fd>) -> Result<CString, Errno> {
        let socket = ours.first().ok_or(Errno::EBADF)?;
        // A launch that was tried again has sent more than one: the last is the program's.
        let mut terminal = None;
        while let Ok(mut came) = socket::receive(socket, &mut [0], false) {
            match came.fds.pop() {
                Some(one) => terminal = Some(one),
                None => break,
            }
        }
        let terminal = terminal.ok_or(Errno::EBADF)?;
        terminal.set_nonblocking(true)?;
        let path = terminal::path_of_user(&terminal)?;
        *ours = vec![terminal];
        Ok(path)
    }

    /// Three pipes.
    pub fn pipes() -> Result<Streams, Errno> {
        let (stdin, feed) = pipe()?;
        let (output, stdout) = pipe()?;
        let (errors, stderr) = pipe()?;
        for bulk in [&feed, &output] {
            // A user who holds very much of them gets small ones.
            let _ = stream::set_pipe_size(bulk.raw(), PIPE);
        }
        // Each end of a pipe is an open file of its own: the program's ends wait as programs expect.
        for end in [&feed, &output, &errors] {
            end.set_nonblocking(true)?;
        }
        Ok(Streams {
            given: vec![
                (Role::Stdin, stdin),
                (Role::Stdout, stdout),
                (Role::Stderr, stderr),
            ],
            ours: vec![feed, output, errors],
            is_socket: false,
            path: None,
        })
    }

    /// Two pipes for what a program says; it reads nothing.
    pub fn outputs() -> Result<Streams, Errno> {
        let mut streams = Streams::pipes()?;
        streams.ours.remove(0);
        Ok(streams)
    }

    /// For the front, as `pipes` has them: what a program said that has ended. They hold all of it.
    pub fn holding(output: &[Vec<u8>; 2]) -> Result<Vec<Fd>, Errno> {
        let (_, feed) = pipe()?;
        let mut ours = vec![feed];
        for said in output {
            let (end, start) = pipe()?;
            if said.len() > SMALL_PIPE {
                stream::set_pipe_size(start.raw(), i32::try_from(said.len()).unwrap_or(i32::MAX))?;
            }
            start.set_nonblocking(true)?;
            if !said.is_empty() && write(start.raw(), said)? != said.len() {
                return Err(Errno::ENOBUFS);
            }
            ours.push(end);
        }
        for end in &ours {
            end.set_nonblocking(true)?;
        }
        Ok(ours)
    }

    /// One socket for both ways.
    pub fn socket() -> Result<Streams, Errno> {
        let (ours, theirs) = UnixStream::pair().map_err(Errno::from)?;
        let (ours, theirs) = (Fd::from(OwnedFd::from(ours)), Fd::from(OwnedFd::from(theirs)));
        ours.set_nonblocking(true)?;
        let again = theirs.duplicate(3)?;
        Ok(Streams {
            given: vec![(Role::Stdin, theirs), (Role::Stdout, again)],
            ours: vec![ours],
            is_socket: true,
            path: None,
        })
    }
}
