//! Pseudo terminals, for whoever opens them: the launching side.

mod encoded;

use crate::{Errno, Fd, Result, file, syscall};
use alloc::ffi::CString;
use core::ffi::CStr;

/// A fresh pseudo terminal: our side, the user's side, and the path of the user's side. Neither becomes anybody's
/// controlling terminal.
pub fn open() -> Result<(Fd, Fd, CString)> {
    of(file::openat(file::CWD, c"/dev/ptmx", FLAGS, 0)?)
}

/// The same in the devpts that is mounted at `/dev/pts`, where nobody is trusted: what is there must be a devpts, and its
/// `ptmx` the file system's own. `ENODEV`: it is something else.
pub fn open_mounted() -> Result<(Fd, Fd, CString)> {
    const DEVPTS: u64 = 0x1cd1;
    let place = file::open_safely(
        file::CWD,
        c"/dev/pts",
        libc::O_PATH | libc::O_DIRECTORY,
        file::resolve::NO_MAGIC_LINKS,
    )?;
    if crate::exe::filesystem(&place)?.0 != DEVPTS {
        return Err(Errno::ENODEV);
    }
    // Nothing may be mounted over it, and in a devpts nobody can make files.
    let own = file::resolve::BENEATH | file::resolve::SAME_MOUNT | file::resolve::NO_LINKS;
    of(file::open_safely(
        place.raw(),
        c"ptmx",
        FLAGS | libc::O_NONBLOCK,
        own,
    )?)
    .and_then(|(ours, user, path)| {
        ours.set_nonblocking(false)?;
        Ok((ours, user, path))
    })
}

const FLAGS: i32 = libc::O_RDWR | libc::O_NOCTTY;

/// The path of the user's side of `ours`, where its devpts is mounted at the usual place.
pub fn path_of_user(ours: &Fd) -> Result<CString> {
    let mut number = 0u32;
    // SAFETY: the kernel writes one number.
    unsafe {
        syscall!(
            libc::SYS_ioctl,
            ours.raw(),
            libc::TIOCGPTN as u32,
            &raw mut number
        )
    }?;
    Ok(CString::new(alloc::format!("/dev/pts/{number}")).expect("digits hold no zero byte"))
}

/// The user's side of `ours`, and its path.
fn of(ours: Fd) -> Result<(Fd, Fd, CString)> {
    let unlock = 0i32;
    // SAFETY: the first call reads one number; TIOCGPTPEER takes flags and returns a descriptor.
    let user = unsafe {
        syscall!(
            libc::SYS_ioctl,
            ours.raw(),
            libc::TIOCSPTLCK as u32,
            &raw const unlock
        )?;
        syscall!(
            libc::SYS_ioctl,
            ours.raw(),
            libc::TIOCGPTPEER as u32,
            FLAGS | libc::O_CLOEXEC
        )?
    };
    let user = Fd::from_raw(user as i32);
    let path = path_of_user(&ours)?;
    Ok((ours, user, path))
}

/// Sets the size of `terminal` in characters.
pub fn set_size(terminal: &Fd, columns: u16, rows: u16) -> Result<()> {
    set_window(terminal, (columns, rows), (0, 0))
}

/// Sets the size of `terminal` in characters and pixels; whoever runs in it gets SIGWINCH when it changed.
pub fn set_window(terminal: &Fd, characters: (u16, u16), pixels: (u16, u16)) -> Result<()> {
    let size = [characters.1, characters.0, pixels.0, pixels.1];
    // SAFETY: the kernel reads one winsize of four numbers: rows, columns, width, height.
    unsafe {
        syscall!(
            libc::SYS_ioctl,
            terminal.raw(),
            libc::TIOCSWINSZ as u32,
            size.as_ptr()
        )
    }
    .map(drop)
}

/// Sends a break of the usual length on `terminal` (tcsendbreak). Pseudo terminals take it and do nothing.
pub fn send_break(terminal: &Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_ioctl, terminal.raw(), libc::TCSBRK as u32, 0) }.map(drop)
}

/// The numbers of the calls above, for a confinement that lets them through.
pub mod requests {
    /// [`super::set_window`].
    pub const SET_WINDOW: u32 = libc::TIOCSWINSZ as u32;
    /// [`super::send_break`].
    pub const SEND_BREAK: u32 = libc::TCSBRK as u32;
    /// [`super::modes`].
    pub const MODES: u32 = libc::TCGETS as u32;
}

/// A terminal's modes, as the kernel's struct termios has them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    input: u32,
    output: u32,
    control: u32,
    local: u32,
    line: u8,
    characters: [u8; 19],
}

/// The modes of `terminal`. `ENOTTY`: it is none.
pub fn modes(terminal: i32) -> Result<Modes> {
    let mut modes = Modes::NONE;
    // SAFETY: the kernel writes one struct termios of 36 bytes.
    unsafe { syscall!(libc::SYS_ioctl, terminal, libc::TCGETS as u32, &raw mut modes) }?;
    Ok(modes)
}

/// Sets the modes of `terminal`.
pub fn set_modes(terminal: i32, modes: &Modes) -> Result<()> {
    // SAFETY: the kernel reads one struct termios of 36 bytes.
    unsafe { syscall!(libc::SYS_ioctl, terminal, libc::TCSETS as u32, &raw const *modes) }.map(drop)
}

impl Modes {
    /// Every switch off, no special characters.
    pub const NONE: Modes = Modes {
        input: 0,
        output: 0,
        control: 0,
        local: 0,
        line: 0,
        characters: [0; 19],
    };

    /// Whether lines are read and nothing of them is shown: a program asks for a password. One that reads key by key shows
    /// them itself, or does not; the terminal cannot tell.
    pub fn asks_unseen(&self) -> bool {
        self.local & libc::ICANON != 0 && self.local & libc::ECHO == 0
    }

    /// The same, with every key passed on as it is (cfmakeraw): the terminal at the other end does the rest.
    pub fn raw(mut self) -> Modes {
        self.input &= !(libc::IGNBRK
            | libc::BRKINT
            | libc::PARMRK
            | libc::ISTRIP
            | libc::INLCR
            | libc::IGNCR
            | libc::ICRNL
            | libc::IXON);
        self.output &= !libc::OPOST;
        self.local &= !(libc::ECHO | libc::ECHONL | libc::ICANON | libc::ISIG | libc::IEXTEN);
        self.control = self.control & !(libc::CSIZE | libc::PARENB) | libc::CS8;
        self.characters[libc::VMIN] = 1;
        self.characters[libc::VTIME] = 0;
        self
    }
}

/// The size of `terminal`: columns and rows.
pub fn size(terminal: i32) -> Result<(u16, u16)> {
    let mut size = [0u16; 4];
    // SAFETY: the kernel writes one winsize of four numbers.
    unsafe {
        syscall!(
            libc::SYS_ioctl,
            terminal,
            libc::TIOCGWINSZ as u32,
            size.as_mut_ptr()
        )
    }?;
    Ok((size[1], size[0]))
}

/// The path of the terminal behind `fd`, as the kernel names it.
pub fn path(fd: &Fd) -> Result<CString> {
    let mut buffer = [0u8; 32];
    let link: &CStr = crate::exe::proc_path(&mut buffer, fd.raw());
    CString::new(file::read_link(link)?).map_err(|_| crate::Errno::EINVAL)
}
