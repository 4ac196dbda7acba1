//! The X11 cookie: `xauth` run as the user before his session starts. The cookie goes through its standard input, never
//! through its arguments, which everybody on the machine can read.

use fleetgate_launch::Launch;
use fleetgate_sys::file::{self, flags, pipe};
use fleetgate_sys::{Errno, Fd};
use fleetgate_wire::common::{Account, SessionId};
use fleetgate_wire::exec::{Exec, Program};
use fleetgate_wire::order::{Role, Work};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// xauth has so long; a user's home on a dead file server keeps his session from nothing else.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The launch of `xauth` with `script` to read.
pub fn launch(session: SessionId, account: &Account, xauth: &Path, script: &[u8]) -> Result<Launch, Errno> {
    let program = CString::new(xauth.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    let argv = vec![program, c"-q".into(), c"-".into()];
    let order = Exec::new(session, account.clone(), Program::Direct { argv });
    let (stdin, feed) = pipe()?;
    // A pipe holds 64 KB and the script is bounded far below: this never waits.
    file::write_all(feed.raw(), script)?;
    let null = || file::openat(file::CWD, c"/dev/null", flags::O_WRONLY, 0);
    let fds: Vec<(Role, Fd)> = vec![
        (Role::Stdin, stdin),
        (Role::Stdout, null()?),
        (Role::Stderr, null()?),
    ];
    Ok(Launch {
        deadline: PATIENCE,
        ..Launch::new(Work::Exec(order), fds)
    })
}
