//! The asking side of the resolver, for tests: frames in and out, nothing else, so that tests see what it says.

use crate::world::{Inhabitant, World, c, wait_for};
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::names::{About, Answer, Found, Question};
use fleetgate_wire::pam::{FromPam, Secret, Start, ToPam, answers_frame};
use fleetgate_wire::resolver::ToResolver;
use fleetgate_wire::{MAX_INLINE, decode, encode};

/// A resolver that serves in a world.
pub struct Resolver {
    /// Its control socket; dropped to end it.
    pub control: Option<Fd>,
    /// The process.
    pub process: Inhabitant,
}

impl Resolver {
    /// Starts it; `before` as for [`World::start`].
    pub fn start(world: &World, args: &[&str], before: &str) -> Resolver {
        let (ours, theirs) = socket::pair().expect("a pair");
        let args: Vec<&str> = ["serve"].iter().chain(args).copied().collect();
        let process = world.start(
            &crate::resolver(),
            "fleetgate-resolver",
            &args,
            before,
            &[&theirs],
        );
        Resolver {
            control: Some(ours),
            process,
        }
    }

    /// Sends a word with the other end of a fresh socket; our end.
    fn with_socket(&self, word: &ToResolver) -> Fd {
        let (ours, theirs) = socket::pair().expect("a pair");
        let control = self.control.as_ref().expect("not ended yet");
        socket::send(control, &encode(word), &[theirs.raw()]).expect("the resolver is there");
        ours
    }

    /// A look-up socket.
    pub fn names(&self) -> Names {
        Names {
            socket: self.with_socket(&ToResolver::Names),
            next: std::cell::Cell::new(0),
        }
    }

    /// A PAM session.
    pub fn pam(&self, start: Start) -> PamSession {
        PamSession {
            socket: self.with_socket(&ToResolver::Pam { start }),
        }
    }
}

/// A look-up socket.
pub struct Names {
    /// It.
    pub socket: Fd,
    next: std::cell::Cell<u32>,
}

impl Names {
    /// Asks and waits for the answer.
    pub fn ask(&self, about: About) -> Found {
        let id = self.send(about, 0);
        let answer = self.receive();
        assert_eq!(answer.id, id);
        answer.found
    }

    /// Asks; the question's number.
    pub fn send(&self, about: About, deadline_ms: u32) -> u32 {
        let id = self.next.get() + 1;
        self.next.set(id);
        let question = Question {
            id,
            deadline_ms,
            about,
        };
        socket::send(&self.socket, &encode(&question), &[]).expect("the resolver is there");
        id
    }

    /// The next answer.
    pub fn receive(&self) -> Answer {
        wait_for(&self.socket, "an answer");
        let mut buffer = vec![0; MAX_INLINE];
        let got = socket::receive(&self.socket, &mut buffer, true).expect("receive");
        assert!(got.len > 0, "the resolver closed the look-up socket");
        decode(&buffer[..got.len]).expect("an answer")
    }

    /// Waits for the resolver to close it.
    pub fn expect_closed(&self) {
        wait_for(&self.socket, "the resolver to close the socket");
        let got = socket::receive(&self.socket, &mut [0; 64], true).expect("receive");
        assert_eq!(got.len, 0, "it is still open");
    }
}

/// An account by name.
pub fn user(name: &str) -> About {
    About::User { name: c(name) }
}

/// A login as sshd would begin it.
pub fn start(service: &str, user: &str, authenticate: bool) -> Start {
    Start {
        service: c(service),
        user: c(user),
        remote_host: c("192.0.2.7"),
        remote_user: c(""),
        tty: c("ssh"),
        authenticate,
        defer_change: false,
        environment: Vec::new(),
        prompt_timeout_ms: 60_000,
    }
}

/// The other side of a PAM process.
pub struct PamSession {
    /// The socket.
    pub socket: Fd,
}

impl PamSession {
    /// The next word, or none: it closed.
    pub fn try_hear(&self) -> Option<(FromPam, Vec<Fd>)> {
        wait_for(&self.socket, "a word of PAM");
        let mut buffer = vec![0; MAX_INLINE];
        match socket::receive(&self.socket, &mut buffer, true) {
            Ok(got) if got.len > 0 => Some((decode(&buffer[..got.len]).expect("a word"), got.fds)),
            Ok(_) | Err(Errno::ECONNRESET) => None,
            Err(e) => panic!("receive: {e}"),
        }
    }

    /// The next word.
    pub fn hear(&self) -> FromPam {
        self.try_hear().expect("the PAM process ended").0
    }

    /// Says something that is not an answer.
    pub fn say(&self, word: &ToPam, fds: &[i32]) {
        socket::send(&self.socket, &encode(word), fds).expect("the PAM process is there");
    }

    /// Answers.
    pub fn answer(&self, answers: &[&str]) {
        let answers = answers.iter().map(|a| Secret::new(c(a))).collect();
        socket::send(&self.socket, &answers_frame(answers), &[]).expect("the PAM process is there");
    }

    /// Waits for Accepted; the user.
    pub fn accepted(&self) -> String {
        match self.hear() {
            FromPam::Accepted { user, .. } => crate::world::text(&user),
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// Opens the session and gives what [`FromPam::Opened`] says. Messages on the way are put into `messages`.
    pub fn open(&self, messages: &mut Vec<String>) -> FromPam {
        self.say(&ToPam::Open { tty: c("ssh") }, &[]);
        loop {
            match self.hear() {
                FromPam::Ask { prompts } => {
                    assert!(prompts.iter().all(|p| !p.asks()), "asked: {prompts:?}");
                    messages.extend(prompts.iter().map(|p| crate::world::text(&p.text)));
                }
                opened @ FromPam::Opened { .. } => return opened,
                other => panic!("not opened: {other:?}"),
            }
        }
    }

    /// Has `sh SCRIPT` started as the session's helper; its number, its pidfd and our end of its control socket.
    pub fn launch(&self, script: &std::path::Path) -> (i32, Fd, Fd) {
        let image = Fd::from(std::fs::File::open("/bin/sh").expect("/bin/sh"));
        let null = Fd::from(std::fs::File::open("/dev/null").expect("/dev/null"));
        let (ours, theirs) = socket::pair().expect("a pair");
        let word = ToPam::Launch {
            subcommand: crate::world::c_path(script),
            cgroup: false,
            hold: false,
        };
        self.say(&word, &[image.raw(), theirs.raw(), null.raw()]);
        match self.try_hear() {
            Some((FromPam::Started { pid }, mut fds)) => (pid, fds.pop().expect("a pidfd"), ours),
            other => panic!("not started: {other:?}"),
        }
    }

    /// The refusal that must come next: call, code.
    pub fn refused(&self) -> (String, i32, String) {
        match self.hear() {
            FromPam::Refused { call, code, message } => {
                assert!(self.try_hear().is_none(), "it goes on after a refusal");
                (crate::world::text(&call), code, crate::world::text(&message))
            }
            other => panic!("not refused: {other:?}"),
        }
    }
}
