//! The SFTP server: version 3 with OpenSSH's extensions, and its two ways in.
//!
//! By order ([`run_order`]) it confines itself, becomes the user and serves the streams it was given; stand-alone
//! ([`run_standalone`]) it serves standard input and output as the calling user, as OpenSSH's sftp-server does.
//! Where clients can see it, it behaves as OpenSSH's; the few differences stand beside the code that makes them.
//!
//! It never executes anything, never writes a log of its own, and has no memory beyond its session.

mod events;
mod extensions;
mod files;
mod handles;
mod listing;
mod operations;
mod options;
mod output;
mod paths;
mod people;
pub mod protocol;
mod realpath;
pub mod request;
mod serve;

use crate::order::{Control, OrderDescriptors, failure};
use crate::selinux;
use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::CStr;
use events::{Events, Listener};
use fleetgate_sys::process::{self, numbers};
use fleetgate_sys::{Errno, Fd, clock, credentials, file, tree};
use fleetgate_wire::order::{Role, Work};
use fleetgate_wire::sftp::Sftp;
use fleetgate_wire::{Failure, Reason, Reply};
use operations::Session;
use options::{CommandLine, Options};
use people::People;
use protocol::AllowedOperations;
use protocol::End;
use serve::Streams;

/// The exit code of a session that ended as sessions end.
const WELL: i32 = 0;
/// The order was refused, or a stream broke.
const REFUSED: i32 = 1;
/// The command line makes no sense.
const USAGE: i32 = 2;
/// A client that broke the protocol; OpenSSH's code.
const PROTOCOL: i32 = 255;
/// A client that sent a packet beyond the bound; OpenSSH's code.
const TOO_LONG: i32 = 11;

/// Serves one order on the control socket.
pub fn run_order() -> i32 {
    let Ok(control) = Control::inherited() else {
        return REFUSED;
    };
    match by_order(&control) {
        Ok(code) => code,
        Err(failure) => {
            control.fail(failure);
            REFUSED
        }
    }
}

fn by_order(control: &Control) -> Result<i32, Failure> {
    // A refusal at this step was told already.
    let Ok((work, given)) = control.receive() else {
        return Ok(REFUSED);
    };
    let Work::Sftp(order) = work else {
        return Err(failure(Reason::BadOrder, Errno(0), "the order is not for sftp"));
    };
    let mut attribute = selinux::attribute(&order.selinux);
    serve_order(control, order, given, &mut |order| {
        selinux::become_user(&order.ids, &order.selinux, attribute.take())
            .map_err(|r| failure(Reason::System, r.errno, r.step))
    })
}

/// Serves an order, as whom `become_user` makes of this process.
pub fn serve_order(
    control: &Control,
    order: Sftp,
    mut given: OrderDescriptors,
    become_user: &mut dyn FnMut(&Sftp) -> Result<(), Failure>,
) -> Result<i32, Failure> {
    let mut need = |role, name| {
        given
            .take(role)
            .ok_or_else(|| failure(Reason::BadDescriptors, Errno::EBADF, name))
    };
    let input = need(Role::Stdin, "the stream from the client")?;
    let output = need(Role::Stdout, "the stream to the client")?;
    let listener = given
        .take(Role::Events)
        .map_or(Listener::Nobody, Listener::Frames);
    let people = given
        .take(Role::Resolver)
        .map_or_else(People::from_files, People::from_resolver);
    if !given.is_empty() {
        let what = "a descriptor that sftp has no use for";
        return Err(failure(Reason::BadDescriptors, Errno(0), what));
    }
    ignore_signals();
    // The zone file is outside the chroot.
    let _ = clock::local(0);
    if let Some(root) = &order.chroot {
        confine(root)?;
    }
    // What needs root is done; from here on a death is not the image's fault.
    control.say(&Reply::Ready);
    become_user(&order)?;
    // The user's own processes, more so those outside the chroot, have no business in this one.
    credentials::set_dumpable(false).map_err(|e| failure(Reason::System, e, "closing to tracers"))?;
    let start = start_by_order(&order)?;
    if let Some(mask) = order.umask {
        tree::set_umask(mask & 0o777);
    }
    let mut session = session(
        Events::new(listener, start),
        people,
        AllowedOperations::ALL,
        order.read_only,
    );
    session.home = Some(order.home);
    let streams = Streams::new(input, output);
    let end = serve::serve(&mut session, &streams);
    let lost = session.events.lost();
    if lost > 0 {
        let text = alloc::format!("{lost} file events were not told");
        control.fail(failure(Reason::System, Errno::EPIPE, &text));
    }
    Ok(exit_code(end))
}

/// Makes `root` the root. By the kernel, while this is still root: no link, no `..` and no race leads out, and
/// every descriptor from outside is a stream, never a directory.
fn confine(root: &CStr) -> Result<(), Failure> {
    let subject = String::from_utf8_lossy(root.to_bytes());
    let at = |errno| failure(Reason::System, errno, &subject);
    let stat = tree::stat(file::CWD, root, true).map_err(at)?;
    if !stat.is_directory() {
        return Err(failure(Reason::WrongKind, Errno::ENOTDIR, &subject));
    }
    tree::enter(root).map_err(at)?;
    tree::confine(c".").map_err(at)?;
    tree::enter(c"/").map_err(at)
}

/// Enters the directory to start in, as the user, so that no other may be entered. A start that was asked for
/// must be there; without the home directory the root will do, as at a login.
fn start_by_order(order: &Sftp) -> Result<Vec<u8>, Failure> {
    match &order.start {
        Some(start) => {
            // Relative to the home directory.
            let _ = tree::enter(&order.home);
            tree::enter(start)
                .map_err(|e| failure(Reason::Missing, e, &String::from_utf8_lossy(start.to_bytes())))?;
        }
        None => {
            if tree::enter(&order.home).is_err() {
                tree::enter(c"/").map_err(|e| failure(Reason::Missing, e, "/"))?;
            }
        }
    }
    Ok(tree::working_directory().unwrap_or_else(|_| b"/".to_vec()))
}

/// Serves standard input and output as the calling user, as OpenSSH's sftp-server does.
pub fn run_standalone(args: &[&[u8]]) -> i32 {
    let options = match options::read(args) {
        Ok(CommandLine::Serve(options)) => options,
        Ok(CommandLine::Requests) => {
            let names = protocol::OPERATIONS.iter().flat_map(|d| [d.name, "\n"]);
            return print(1, &names.collect::<String>());
        }
        Ok(CommandLine::Help) => return print(1, options::USAGE),
        Err(why) => {
            print(
                2,
                &alloc::format!("fleetgate-session sftp: {why}\n{}", options::USAGE),
            );
            return USAGE;
        }
    };
    standalone(&options)
}

fn standalone(options: &Options) -> i32 {
    ignore_signals();
    // A set-group-id file server, or one whose user has another process that traces it, gives away nothing.
    let _ = credentials::set_dumpable(false);
    let mut people = People::from_files();
    if let Some(start) = &options.start {
        let uid = process::effective_uid();
        let start = expand(start, uid, &mut people);
        if let Err(errno) = tree::enter(&start) {
            let start = String::from_utf8_lossy(start.to_bytes()).into_owned();
            print(
                2,
                &alloc::format!("fleetgate-session sftp: cannot start in {start}: {errno}\n"),
            );
            return REFUSED;
        }
    }
    if let Some(mask) = options.umask {
        tree::set_umask(mask);
    }
    let start = tree::working_directory().unwrap_or_else(|_| b"/".to_vec());
    let listener = if options.tell {
        Listener::Lines
    } else {
        Listener::Nobody
    };
    let mut session = session(
        Events::new(listener, start),
        people,
        options.allowed,
        options.read_only,
    );
    // Standard input and output are this process's own from here on; it closes them when it ends.
    let streams = Streams::new(Fd::from_raw(0), Fd::from_raw(1));
    let end = serve::serve(&mut session, &streams);
    if let Some(why) = complaint(end) {
        print(2, &alloc::format!("fleetgate-session sftp: {why}\n"));
    }
    exit_code(end)
}

fn session(events: Events, people: People, allowed: AllowedOperations, read_only: bool) -> Session {
    Session {
        output: output::Output::new(),
        allowed: if read_only { allowed.read_only() } else { allowed },
        read_only,
        handles: handles::Handles::new(),
        events,
        people,
        home: None,
        initialised: false,
    }
}

/// `%d`, `%u` and `%%` in a start directory.
fn expand(start: &CStr, uid: u32, people: &mut People) -> CString {
    let mut out = Vec::new();
    let mut bytes = start.to_bytes().iter().copied();
    while let Some(b) = bytes.next() {
        match (b, if b == b'%' { bytes.next() } else { None }) {
            (b'%', Some(b'%')) => out.push(b'%'),
            (b'%', Some(what @ (b'u' | b'd'))) => {
                people.learn_ids(alloc::vec![uid], Vec::new());
                let name = people.user_name(uid).to_vec();
                if what == b'u' {
                    out.extend_from_slice(&name);
                } else if let Some(home) = CString::new(name).ok().and_then(|n| people.home(&n)) {
                    out.extend_from_slice(&home);
                }
            }
            (b'%', Some(other)) => out.extend([b'%', other]),
            (b, _) => out.push(b),
        }
    }
    CString::new(out).unwrap_or_default()
}

/// A write to a stream or pipe without a reader, or beyond the file size limit, is an answer, not a death.
fn ignore_signals() {
    let _ = process::ignore_signal(numbers::SIGPIPE);
    let _ = process::ignore_signal(numbers::SIGXFSZ);
}

fn exit_code(end: End) -> i32 {
    match end {
        End::Closed => WELL,
        End::Broken(_) => REFUSED,
        End::TooLong { .. } => TOO_LONG,
        End::NoRequest | End::NotInitialised => PROTOCOL,
    }
}

fn complaint(end: End) -> Option<String> {
    match end {
        End::Closed => None,
        End::Broken(errno) => Some(alloc::format!("the client's stream broke: {errno}")),
        End::TooLong { len } => Some(alloc::format!(
            "a packet of {len} bytes; {} is the most",
            protocol::MAX_PACKET
        )),
        End::NoRequest => Some(String::from("a packet too short to be a request")),
        End::NotInitialised => Some(String::from("a request before the versions were exchanged")),
    }
}

fn print(fd: i32, text: &str) -> i32 {
    match file::write_all(fd, text.as_bytes()) {
        Ok(()) => WELL,
        Err(_) => REFUSED,
    }
}
