//! The guardian, as a tracer sees it: a process that has every listener too, so that the programs go on when the tracer is
//! gone. It sleeps as long as the tracer lives. What it does itself is in [`run`]; it shows nothing and refuses nothing.

mod run;

pub use run::main;

use fleetgate_sys::slots::Slots;
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Errno, Fd, file, net, process, socket};
use fleetgate_wire::guard::{Kept, MAX_REPLY, Refusal, Reply, Request};
use fleetgate_wire::{decode, encode};
use std::ffi::CStr;
use std::fmt;

/// The name under which a program is started as a guardian.
pub const NAME: &CStr = c"fleetgate-guardian";
/// Its argument where it has a door.
pub const WITH_DOOR: &CStr = c"--door";
/// Its socket.
const SOCKET: i32 = 3;
/// Its listening socket, where it has one.
const DOOR: i32 = 4;

/// A connection to the guardian. When it ends, or this process does, the guardian answers what this process kept there.
#[derive(Debug)]
pub struct Guardian {
    socket: Fd,
    process: Option<Fd>,
}

/// A listener that was somebody else's.
#[derive(Debug)]
pub struct AdoptedListener {
    /// It.
    pub listener: Fd,
    /// Where calls are received; all of them free.
    pub slots: Slots,
    /// Its id, and what nobody saw.
    pub kept: Kept,
}

/// Why there is no guardian, or it does not do as it was told.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// It cannot be started.
    Start(String),
    /// It is gone, or cannot be spoken to.
    Gone(Errno),
    /// It keeps no such listener: the programs have ended.
    Unknown,
    /// Another tracer has it.
    Taken,
    /// What it said is not what was asked.
    Unclear,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Start(why) => write!(f, "no guardian could be started: {why}"),
            Error::Gone(errno) => write!(f, "the guardian is gone: {errno}"),
            Error::Unknown => f.write_str("the guardian keeps no such listener; its programs have ended"),
            Error::Taken => {
                f.write_str("another tracer, which lives, answers for these programs; end that one first")
            }
            Error::Unclear => {
                f.write_str("the guardian's answer is not understood; is it of another version?")
            }
        }
    }
}

impl std::error::Error for Error {}

/// Which program to start as a guardian, and where.
pub struct Image<'a> {
    /// The program; under [`NAME`] it must come to [`main`].
    pub program: Program<'a>,
    /// More arguments, in front of those that [`main`] is for.
    pub before: &'a [&'a CStr],
    /// The cgroup that it is born in; none: the tracer's.
    pub cgroup: Option<&'a Fd>,
}

impl Image<'static> {
    /// This very program.
    #[must_use]
    pub fn own() -> Image<'static> {
        Image {
            program: Program::Path(c"/proc/self/exe"),
            before: &[],
            cgroup: None,
        }
    }
}

impl Guardian {
    /// Starts one. `door`: a listening socket (see [`door`]) at which other tracers may come later.
    ///
    /// # Errors
    /// [`Error::Start`].
    pub fn start(image: &Image<'_>, door: Option<&Fd>) -> Result<Guardian, Error> {
        let failed = |what: &str, errno: Errno| Error::Start(format!("{what}: {errno}"));
        let (here, there) = socket::pair().map_err(|e| failed("a socket", e))?;
        let null = file::openat(file::CWD, c"/dev/null", file::flags::O_RDWR, 0)
            .map_err(|e| failed("/dev/null", e))?;
        let mut fds = vec![null.raw(), null.raw(), null.raw(), there.raw()];
        fds.extend(door.map(Fd::raw));
        let argv = [NAME]
            .into_iter()
            .chain(image.before.iter().copied())
            .chain(door.map(|_| WITH_DOOR));
        let mut stack = Stack::new().map_err(|e| failed("a stack", e))?;
        let child = spawn(
            &Spawn {
                program: image.program,
                argv: &Strings::new(argv),
                envp: &Strings::new([]),
                fds: &fds,
                cgroup: image.cgroup,
            },
            &mut stack,
        )
        .map_err(|e| Error::Start(e.to_string()))?;
        Guardian {
            socket: here,
            process: Some(child.pidfd),
        }
        .introduced()
    }

    /// Comes to one that runs, by its door.
    ///
    /// # Errors
    /// [`Error::Gone`]: there is none behind it any more.
    pub fn connect(door: &CStr) -> Result<Guardian, Error> {
        let socket = socket::unconnected().map_err(Error::Gone)?;
        net::connect_unix(&socket, door).map_err(Error::Gone)?;
        Guardian {
            socket,
            process: None,
        }
        .introduced()
    }

    /// On a socket whose other end somebody else gave it by [`Request::Tracer`].
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn on(socket: Fd) -> Result<Guardian, Error> {
        Guardian {
            socket,
            process: None,
        }
        .introduced()
    }

    fn introduced(self) -> Result<Guardian, Error> {
        let own = process::pidfd_open(process::id()).map_err(Error::Gone)?;
        self.tell(&Request::Here, &[own.raw()])?;
        Ok(self)
    }

    /// Its process, where this one started it.
    #[must_use]
    pub fn process(&self) -> Option<&Fd> {
        self.process.as_ref()
    }

    /// To wait on: it is readable when the guardian is gone.
    #[must_use]
    pub fn socket(&self) -> &Fd {
        &self.socket
    }

    /// Gives it a listener, under an id that it has for no other one.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn keep(&self, id: u64, listener: &Fd, slots: &Slots) -> Result<(), Error> {
        self.keep_file(id, listener, slots.file(), None)
    }

    /// The same with the file of the slots, and it answers EPERM to the call `refuse`.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn keep_file(&self, id: u64, listener: &Fd, slots: &Fd, refuse: Option<u32>) -> Result<(), Error> {
        let fds = [listener.raw(), slots.raw()];
        self.tell(&Request::Keep { id, refuse }, &fds)
    }

    /// Has it answer from here on: the caller receives no more of it.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn answer(&self, id: u64) -> Result<(), Error> {
        self.tell(&Request::Answer { id }, &[])
    }

    /// The programs have ended.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Unknown`], [`Error::Taken`].
    pub fn forget(&self, id: u64) -> Result<Kept, Error> {
        match self.ask(&Request::Forget { id })? {
            (Reply::Forgotten { kept }, _) => Ok(kept),
            (other, _) => Err(refused(&other)),
        }
    }

    /// What it keeps.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn list(&self) -> Result<Vec<Kept>, Error> {
        match self.ask(&Request::List)? {
            (Reply::List { kept }, _) => Ok(kept),
            (other, _) => Err(refused(&other)),
        }
    }

    /// Takes over a listener that the guardian answers. What comes from now on is for the caller.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Unknown`], [`Error::Taken`].
    pub fn adopt(&self, id: u64) -> Result<AdoptedListener, Error> {
        match self.ask(&Request::Take { id })? {
            (Reply::Yours { kept }, mut fds) if fds.len() == 2 => {
                let slots = fds.pop().ok_or(Error::Unclear)?;
                let listener = fds.pop().ok_or(Error::Unclear)?;
                let slots = Slots::again(slots).map_err(|_| Error::Unclear)?;
                Ok(AdoptedListener {
                    listener,
                    slots,
                    kept,
                })
            }
            (other, _) => Err(refused(&other)),
        }
    }

    fn tell(&self, request: &Request, fds: &[i32]) -> Result<(), Error> {
        socket::send(&self.socket, &encode(request), fds).map_err(Error::Gone)
    }

    fn ask(&self, request: &Request) -> Result<(Reply, Vec<Fd>), Error> {
        self.tell(request, &[])?;
        let mut room = vec![0; MAX_REPLY];
        let got = socket::receive(&self.socket, &mut room, true).map_err(Error::Gone)?;
        if got.len == 0 {
            return Err(Error::Gone(Errno::EPIPE));
        }
        let reply = decode(&room[..got.len]).map_err(|_| Error::Unclear)?;
        Ok((reply, got.fds))
    }
}

fn refused(reply: &Reply) -> Error {
    match reply {
        Reply::Refused {
            why: Refusal::Unknown,
        } => Error::Unknown,
        Reply::Refused { why: Refusal::Taken } => Error::Taken,
        _ => Error::Unclear,
    }
}

/// A listening socket at `path` for a guardian. It lets in its own user and root; who may reach the path at all is for the
/// mode of its directory to say.
///
/// # Errors
/// The kernel's: the path is there already, or is too long for a socket.
pub fn door(path: &CStr) -> fleetgate_sys::Result<Fd> {
    let socket = socket::unconnected()?;
    net::bind_unix(&socket, path)?;
    net::listen(&socket, 4)?;
    Ok(socket)
}
