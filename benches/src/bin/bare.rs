//! What a check on the same machine cannot be faster than: a static client hands its standard output to a daemon, which starts
//! a program with it and says how that ended. Nothing is encrypted, checked or written down.
//!
//! `bench-bare serve SOCKET PROGRAM [ARGUMENT]` is the daemon, `bench-bare ask SOCKET` the client.
#![no_std]
#![no_main]

use fleetgate_sys::poll::{self, READ, Watch};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::program::Args;
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Errno, Fd, exe, file, net, socket};

/// The daemon failed, or said nothing.
const FAILED: i32 = 3;

fn run(args: Args) -> i32 {
    let done = match (args.get(1).map(|word| word.to_bytes()), args.get(2)) {
        (Some(b"ask"), Some(path)) => ask(path),
        (Some(b"serve"), Some(path)) => serve(path, &args),
        _ => Err(Errno::EINVAL),
    };
    done.unwrap_or(FAILED)
}

fn ask(path: &core::ffi::CStr) -> Result<i32, Errno> {
    let daemon = socket::unconnected()?;
    net::connect_unix(&daemon, path)?;
    socket::send_now(&daemon, b"run", &[1, 2])?;
    let mut code = [0; 1];
    match socket::receive(&daemon, &mut code, true)?.len {
        1 => Ok(code[0].into()),
        _ => Ok(FAILED),
    }
}

fn serve(path: &core::ffi::CStr, args: &Args) -> Result<i32, Errno> {
    let listener = socket::unconnected()?;
    net::bind_unix(&listener, path)?;
    net::listen(&listener, 128)?;
    let program = args.get(3).ok_or(Errno::EINVAL)?;
    let program = exe::open_read(file::CWD, program)?;
    let argv = Strings::new(args.iter().skip(3));
    let envp = Strings::new([]);
    let nothing = file::openat(file::CWD, c"/dev/null", file::flags::O_RDONLY, 0)?;
    let mut stack = Stack::new()?;
    loop {
        let (client, _) = net::accept_any(&listener)?;
        // One after the other: it is measured so.
        let _ = answer(&client, &program, &argv, &envp, &nothing, &mut stack);
    }
}

fn answer(
    client: &Fd,
    program: &Fd,
    argv: &Strings<'_>,
    envp: &Strings<'_>,
    nothing: &Fd,
    stack: &mut Stack,
) -> Result<(), Errno> {
    let mut word = [0; 16];
    // What is accepted never waits by itself.
    poll::poll(&mut [Watch::new(client.raw(), READ)], None)?;
    let asked = socket::receive(client, &mut word, true)?;
    let [output, errors] = &asked.fds[..] else {
        return Err(Errno::EINVAL);
    };
    let what = Spawn {
        program: Program::Fd(program),
        argv,
        envp,
        fds: &[nothing.raw(), output.raw(), errors.raw()],
        cgroup: None,
    };
    let child = spawn(&what, stack).map_err(|e| e.errno)?;
    let code = match process::wait(&child.pidfd, true)? {
        Some(Exit::Code(code)) => code.to_le_bytes()[0],
        _ => FAILED.to_le_bytes()[0],
    };
    socket::send_now(client, &[code], &[])
}

fleetgate_sys::program_main!(run);
