//! A client of SFTP that sends what no client would: packet by packet, byte by byte. And the servers it talks to:
//! ours, stand-alone and by order, and OpenSSH's.

use crate::orders::{self, Started};
use fleetgate_sys::Fd;
use fleetgate_wire::Reply;
use fleetgate_wire::common::Ids;
use fleetgate_wire::order::{Role, Work};
use fleetgate_wire::sftp::{Event, Sftp};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Packet types.
pub mod kind {
    #![allow(missing_docs)]
    pub use fleetgate_session::sftp::protocol::kind::*;
}

/// One field of a packet.
#[derive(Clone, Debug)]
pub enum Field<'a> {
    /// A number of 32 bits.
    N(u32),
    /// A number of 64 bits.
    L(u64),
    /// A string with its length.
    S(&'a [u8]),
}

/// A string field.
pub fn s(text: &str) -> Field<'_> {
    Field::S(text.as_bytes())
}

/// An answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its type.
    pub kind: u8,
    /// Whose it is.
    pub id: u32,
    /// The fields.
    pub rest: Vec<u8>,
}

impl Answer {
    /// The number at the start: a status, a count.
    pub fn number(&self) -> u32 {
        u32::from_be_bytes(self.rest[..4].try_into().expect("a number"))
    }
    /// The string at the start: a handle, data.
    pub fn string(&self) -> &[u8] {
        &self.rest[4..4 + self.number() as usize]
    }
    /// The status; any other answer is a failure of the test.
    pub fn status(&self) -> u32 {
        assert_eq!(self.kind, kind::STATUS, "{self:?}");
        self.number()
    }
    /// The handle.
    pub fn handle(&self) -> Vec<u8> {
        assert_eq!(self.kind, kind::HANDLE, "{self:?}");
        self.string().to_vec()
    }
    /// The data.
    pub fn data(&self) -> &[u8] {
        assert_eq!(self.kind, kind::DATA, "{self:?}");
        self.string()
    }
    /// The names.
    pub fn names(&self) -> Vec<String> {
        assert_eq!(self.kind, kind::NAME, "{self:?}");
        let (mut names, mut at) = (Vec::new(), 4);
        let mut next = |len: usize| {
            at += len;
            self.rest[at - len..at].to_vec()
        };
        let number = |bytes: Vec<u8>| u32::from_be_bytes(bytes.try_into().expect("four")) as usize;
        for _ in 0..self.number() {
            let len = number(next(4));
            names.push(String::from_utf8_lossy(&next(len)).into_owned());
            let len = number(next(4));
            next(len);
            let flags = number(next(4));
            next(
                [0, 8][flags & 1] + [0, 8][flags >> 1 & 1] + [0, 4][flags >> 2 & 1] + [0, 8][flags >> 3 & 1],
            );
        }
        names
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rest = String::from_utf8_lossy(&self.rest);
        write!(f, "type {} id {} {rest:?}", self.kind, self.id)
    }
}

/// The client's end.
pub struct Client {
    /// The stream both ways.
    pub stream: UnixStream,
    next: u32,
}

impl Client {
    /// Talks on `stream`.
    pub fn new(stream: UnixStream) -> Client {
        let patience = Duration::from_millis(orders::PATIENCE_MS.into());
        stream.set_read_timeout(Some(patience)).expect("timeout");
        Client { stream, next: 0 }
    }

    /// Exchanges versions; returns the server's answer.
    pub fn init(&mut self) -> Answer {
        self.send(&[1, 0, 0, 0, 3]);
        self.receive().expect("a version")
    }

    /// Sends one packet.
    pub fn send(&mut self, packet: &[u8]) {
        let whole = [&(packet.len() as u32).to_be_bytes(), packet].concat();
        self.stream.write_all(&whole).expect("send");
    }

    /// One packet, with its length; returns its number too.
    pub fn packet(&mut self, kind: u8, fields: &[Field<'_>]) -> (u32, Vec<u8>) {
        self.next += 1;
        let mut packet = vec![kind];
        packet.extend(self.next.to_be_bytes());
        for field in fields {
            match field {
                Field::N(n) => packet.extend(n.to_be_bytes()),
                Field::L(n) => packet.extend(n.to_be_bytes()),
                Field::S(bytes) => {
                    packet.extend((bytes.len() as u32).to_be_bytes());
                    packet.extend(*bytes);
                }
            }
        }
        (self.next, packet)
    }

    /// The next answer; `None` when the server closed.
    pub fn receive(&mut self) -> Option<Answer> {
        let mut head = [0; 9];
        match self.stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset
                ) =>
            {
                return None;
            }
            Err(e) => panic!("no answer: {e}"),
        }
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
        let mut rest = vec![0; number(0) as usize - 5];
        self.stream.read_exact(&mut rest).expect("a whole answer");
        Some(Answer {
            kind: head[4],
            id: number(5),
            rest,
        })
    }

    /// Asks and waits.
    pub fn ask(&mut self, kind: u8, fields: &[Field<'_>]) -> Answer {
        let (id, packet) = self.packet(kind, fields);
        self.send(&packet);
        let answer = self.receive().expect("an answer");
        assert_eq!(answer.id, id);
        answer
    }

    /// Opens a file; flags as SSH_FXF_….
    pub fn open(&mut self, path: &str, flags: u32) -> Answer {
        self.ask(kind::OPEN, &[s(path), Field::N(flags), Field::N(0)])
    }

    /// Says that no more will come.
    pub fn close(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }
}

/// A server that was started as OpenSSH's is.
pub struct Served {
    /// The way to it.
    pub client: Client,
    child: Child,
}

impl Served {
    /// Closes, and waits for its end: its exit code.
    pub fn end(mut self) -> i32 {
        self.client.close();
        while self.client.receive().is_some() {}
        self.child.wait().expect("wait").code().expect("an exit code")
    }
}

/// Starts `command` in `directory` with a socket for its standard input and output.
pub fn serve(mut command: Command, directory: &Path) -> Served {
    let (ours, theirs) = UnixStream::pair().expect("socketpair");
    let theirs: std::os::fd::OwnedFd = theirs.into();
    let child = command
        .current_dir(directory)
        .stdin(Stdio::from(theirs.try_clone().expect("dup")))
        .stdout(Stdio::from(theirs))
        .stderr(Stdio::null())
        .spawn()
        .expect("the server");
    Served {
        client: Client::new(ours),
        child,
    }
}

/// Our server, stand-alone.
pub fn ours(args: &[&str]) -> Command {
    let mut command = crate::helper_command();
    command.arg("sftp").args(args);
    command
}

/// OpenSSH's server.
pub fn openssh(args: &[&str]) -> Command {
    let mut command = Command::new(openssh_path());
    command.args(args);
    command
}

/// Where OpenSSH's server is: Debian's place, then Fedora's.
pub fn openssh_path() -> PathBuf {
    let places = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"];
    let found = places.iter().map(PathBuf::from).find(|p| p.exists());
    found.expect("OpenSSH's sftp-server: install openssh-sftp-server")
}

/// An order for root: no chroot, everything allowed.
pub fn order(home: &Path) -> Sftp {
    Sftp {
        ids: Ids {
            uid: 0,
            gid: 0,
            groups: vec![0],
        },
        home: orders::text(home),
        chroot: None,
        start: None,
        read_only: false,
        umask: None,
        selinux: None,
    }
}

/// The ids of an ordinary user that needs no entry anywhere.
pub fn ordinary() -> Ids {
    orders::user().ids
}

/// A server that was started with an order.
pub struct Ordered {
    /// The way to it.
    pub client: Client,
    /// The helper.
    pub helper: Started,
    /// Where it tells what it does.
    pub events: Fd,
}

/// Gives `order` to a helper, with an events socket, and a resolver if given.
pub fn give(order: Sftp, resolver: Option<&Fd>) -> Ordered {
    let (ours, theirs) = UnixStream::pair().expect("socketpair");
    let theirs = Fd::from(std::os::fd::OwnedFd::from(theirs));
    let (events, their_events) = fleetgate_sys::socket::pair().expect("socketpair");
    let helper = orders::start("sftp", &[]);
    let mut given = vec![
        (Role::Stdin, &theirs),
        (Role::Stdout, &theirs),
        (Role::Events, &their_events),
    ];
    given.extend(resolver.map(|fd| (Role::Resolver, fd)));
    orders::send(&helper.control, Work::Sftp(order), &given);
    Ordered {
        client: Client::new(ours),
        helper,
        events,
    }
}

impl Ordered {
    /// The next event.
    pub fn event(&self) -> Event {
        orders::wait_for(&self.events, fleetgate_sys::poll::READ);
        let mut buffer = vec![0; 16 << 10];
        let message = fleetgate_sys::socket::receive(&self.events, &mut buffer, true).expect("an event");
        fleetgate_wire::decode(&buffer[..message.len]).expect("an event")
    }

    /// Closes, and waits for the end: what it said, and how it ended.
    pub fn end(mut self) -> (Vec<Reply>, fleetgate_sys::process::Exit) {
        self.client.close();
        while self.client.receive().is_some() {}
        let replies = self.helper.replies();
        (replies, self.helper.wait())
    }
}
