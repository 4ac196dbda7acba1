//! Every kind of frame, made of random values: written, read back as the same, and never a panic when its bytes are
//! cut, changed or shuffled. The generator is small and counts from fixed seeds: what fails here fails again.
#![forbid(unsafe_code)]

use fleetgate_wire::common::{Account, Ageing, Endpoint, Ids, Moment, Variable};
use fleetgate_wire::exec::{Checks, Environment, Exec, Limit, Login, Program, Resources, Watch};
use fleetgate_wire::home::CheckHome;
use fleetgate_wire::order::{Order, Role, Work};
use fleetgate_wire::reply::{Failure, KeyFile, Reason, Reply, Timing};
use fleetgate_wire::{Decode, Encode, decode, encode, names, net, pam, resolver, sftp};
use std::ffi::CString;
use std::fmt::Debug;

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.roll() >> 33) as usize % n
    }
    fn truth(&mut self) -> bool {
        self.below(2) == 1
    }
    /// Small numbers, and those at the edges.
    fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => u64::MAX,
            2 => self.roll(),
            _ => self.roll() & 0xff,
        }
    }
    fn bytes(&mut self) -> Vec<u8> {
        let len = self.below(40);
        (0..len).map(|_| self.roll() as u8).collect()
    }
    fn text(&mut self) -> CString {
        CString::new(self.bytes().into_iter().filter(|b| *b != 0).collect::<Vec<_>>())
            .expect("no zero is left")
    }
    fn list<T>(&mut self, mut item: impl FnMut(&mut Dice) -> T) -> Vec<T> {
        let len = self.below(5);
        (0..len).map(|_| item(self)).collect()
    }
    fn maybe<T>(&mut self, item: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        self.truth().then(|| item(self))
    }
    fn sixteen(&mut self) -> [u8; 16] {
        let mut all = [0; 16];
        all.fill_with(|| self.roll() as u8);
        all
    }
    fn u32(&mut self) -> u32 {
        self.number() as u32
    }
    fn u16(&mut self) -> u16 {
        self.number() as u16
    }
    fn i32(&mut self) -> i32 {
        self.number() as i32
    }
}

fn ids(d: &mut Dice) -> Ids {
    Ids {
        uid: d.u32(),
        gid: d.u32(),
        groups: d.list(Dice::u32),
    }
}

fn variable(d: &mut Dice) -> Variable {
    Variable {
        name: d.text(),
        value: d.text(),
    }
}

fn account(d: &mut Dice) -> Account {
    Account {
        name: d.text(),
        ids: ids(d),
        home: d.text(),
        shell: d.text(),
        ageing: d.maybe(|d| Ageing {
            last_change: d.number() as i64,
            max_days: d.number() as i64,
            inactive_days: d.number() as i64,
            expires: d.number() as i64,
            locked: d.truth(),
        }),
    }
}

fn endpoint(d: &mut Dice) -> Endpoint {
    Endpoint {
        address: d.sixteen(),
        scope: d.u32(),
        port: d.u16(),
    }
}

fn exec(d: &mut Dice) -> Exec {
    Exec {
        session: d.sixteen(),
        account: account(d),
        program: match d.below(3) {
            0 => Program::Shell,
            1 => Program::Command { line: d.text() },
            _ => Program::Direct {
                argv: d.list(Dice::text),
            },
        },
        terminal: d.maybe(Dice::text),
        environment: Environment {
            client: d.list(variable),
            accept: d.list(Dice::text),
            set: d.list(variable),
            etc_environment: d.truth(),
            user_environment: d.truth(),
            path: d.text(),
            root_path: d.text(),
        },
        login: d.maybe(|d| Login {
            at: Moment {
                sec: d.number() as i64,
                nsec: d.u32(),
            },
            host: d.text(),
            address: d.sixteen(),
            utmp: d.truth(),
            lastlog: d.truth(),
            audit: d.truth(),
            last_login_message: d.truth(),
            motd: d.truth(),
        }),
        checks: Checks {
            nologin: d.truth(),
            expiry: d.truth(),
        },
        resources: Resources {
            limits: d.list(|d| Limit {
                resource: d.u32(),
                soft: d.number(),
                hard: d.number(),
            }),
            umask: d.maybe(Dice::u32),
            nice: d.maybe(Dice::i32),
            oom_score_adj: d.maybe(Dice::i32),
            keyring: d.truth(),
            loginuid: d.truth(),
        },
        selinux: d.maybe(Dice::text),
        watch: d.maybe(|d| Watch {
            filter: d.bytes(),
            pass: d.number(),
            required: d.truth(),
        }),
        timings: d.truth(),
    }
}

fn order(d: &mut Dice) -> Order {
    let work = match d.below(4) {
        0 => Work::Exec(exec(d)),
        1 => Work::Networking(net::Networking {
            ids: ids(d),
            max_pending: d.u32(),
            selinux: d.maybe(Dice::text),
        }),
        2 => Work::CheckHome(CheckHome {
            ids: ids(d),
            home: d.text(),
            files: d.list(Dice::text),
            strict_modes: d.truth(),
        }),
        _ => Work::Sftp(sftp::Sftp {
            ids: ids(d),
            home: d.text(),
            chroot: d.maybe(Dice::text),
            start: d.maybe(Dice::text),
            read_only: d.truth(),
            umask: d.maybe(Dice::u32),
            selinux: d.maybe(Dice::text),
        }),
    };
    let roles = [
        Role::Stdin,
        Role::Stdout,
        Role::Stderr,
        Role::Terminal,
        Role::Resolver,
        Role::Events,
    ];
    Order {
        work,
        roles: d.list(|d| roles[d.below(roles.len())]),
    }
}

fn failure(d: &mut Dice) -> Failure {
    let reasons = [
        Reason::BadOrder,
        Reason::System,
        Reason::NoLogin,
        Reason::NoProgram,
        Reason::Unsafe,
        Reason::Unsupported,
    ];
    Failure {
        reason: reasons[d.below(reasons.len())].clone(),
        errno: d.i32(),
        subject: d.text(),
    }
}

fn reply(d: &mut Dice) -> Reply {
    match d.below(4) {
        0 => Reply::Ready,
        1 => Reply::Leaving {
            timings: d.list(|d| Timing {
                step: d.text(),
                nanos: d.u32(),
            }),
            unrecorded: d.maybe(failure),
            unwatched: d.maybe(failure),
        },
        2 => Reply::Failed { failure: failure(d) },
        _ => Reply::Home {
            home: d.maybe(failure),
            files: d.list(|d| KeyFile {
                failure: d.maybe(failure),
                content: d.maybe(Dice::bytes),
            }),
        },
    }
}

fn request(d: &mut Dice) -> net::Request {
    let (host, port, backlog) = (d.text(), d.u16(), d.u32());
    net::Request {
        id: d.u32(),
        what: match d.below(10) {
            0 => net::What::Connect {
                host,
                port,
                timeout_ms: backlog,
            },
            1 => net::What::Bind { host, port },
            2 => net::What::Listen { host, port, backlog },
            3 => net::What::Accept { host, port, backlog },
            4 => net::What::ConnectUnix {
                path: host,
                timeout_ms: backlog,
            },
            5 => net::What::ListenUnix {
                path: host,
                umask: d.u32(),
                unlink_first: d.truth(),
                backlog,
            },
            6 => net::What::AgentSocket,
            7 => net::What::X11Display {
                first: port,
                last: d.u16(),
                any_address: d.truth(),
            },
            8 => net::What::Cancel { of: backlog },
            _ => net::What::Stop,
        },
    }
}

fn response(d: &mut Dice) -> net::Response {
    net::Response {
        id: d.u32(),
        done: match d.below(7) {
            0 => net::Done::Connected {
                peer: d.maybe(endpoint),
            },
            1 => net::Done::Listening {
                local: d.list(endpoint),
            },
            2 => net::Done::Accepted {
                peer: endpoint(d),
                local: d.roll() as u8,
            },
            3 => net::Done::UnixListening { path: d.text() },
            4 => net::Done::Display { number: d.u16() },
            5 => net::Done::Cancelled,
            _ => net::Done::Failed { failure: failure(d) },
        },
    }
}

fn question(d: &mut Dice) -> names::Question {
    names::Question {
        id: d.u32(),
        deadline_ms: d.u32(),
        about: match d.below(6) {
            0 => names::About::User { name: d.text() },
            1 => names::About::UserById { uid: d.u32() },
            2 => names::About::Names {
                uids: d.list(Dice::u32),
                gids: d.list(Dice::u32),
            },
            3 => names::About::Group { name: d.text() },
            4 => names::About::Host {
                name: d.text(),
                port: d.u16(),
            },
            _ => names::About::Context { user: d.text() },
        },
    }
}

fn answer(d: &mut Dice) -> names::Answer {
    names::Answer {
        id: d.u32(),
        found: match d.below(8) {
            0 => names::Found::User { account: account(d) },
            1 => names::Found::Names {
                users: d.list(Dice::text),
                groups: d.list(Dice::text),
            },
            2 => names::Found::Group { gid: d.u32() },
            3 => names::Found::Host {
                addresses: d.list(endpoint),
            },
            4 => names::Found::Context {
                context: d.maybe(Dice::text),
            },
            5 => names::Found::Unknown,
            6 => names::Found::TimedOut,
            _ => names::Found::Failed { why: d.text() },
        },
    }
}

fn start(d: &mut Dice) -> resolver::ToResolver {
    if d.truth() {
        return resolver::ToResolver::Names;
    }
    resolver::ToResolver::Pam {
        start: pam::Start {
            service: d.text(),
            user: d.text(),
            remote_host: d.text(),
            remote_user: d.text(),
            tty: d.text(),
            authenticate: d.truth(),
            defer_change: d.truth(),
            environment: d.list(variable),
            prompt_timeout_ms: d.u32(),
        },
    }
}

fn from_pam(d: &mut Dice) -> pam::FromPam {
    match d.below(8) {
        0 => pam::FromPam::Ask {
            prompts: d.list(|d| pam::Prompt {
                style: d.roll() as u8,
                text: d.text(),
            }),
        },
        1 => pam::FromPam::Accepted {
            user: d.text(),
            must_change: d.truth(),
        },
        2 => pam::FromPam::Opened {
            environment: d.list(variable),
            groups: d.list(Dice::u32),
            process: d.i32(),
        },
        3 => pam::FromPam::Started { pid: d.i32() },
        4 => pam::FromPam::NotStarted {
            step: d.u32(),
            errno: d.i32(),
        },
        5 => pam::FromPam::Exited {
            pid: d.i32(),
            signalled: d.truth(),
            status: d.i32(),
            core: d.truth(),
        },
        6 => pam::FromPam::Ended {
            close_errors: d.list(Dice::text),
        },
        _ => pam::FromPam::Refused {
            call: d.text(),
            code: d.i32(),
            message: d.text(),
        },
    }
}

fn event(d: &mut Dice) -> sftp::Event {
    let (path, flags, errno) = (d.text(), d.u32(), d.i32());
    match d.below(4) {
        0 => sftp::Event::Closed {
            path,
            read: d.number(),
            written: d.number(),
            flags,
        },
        1 => sftp::Event::Opened { path, flags, errno },
        2 => sftp::Event::Renamed {
            from: path,
            to: d.text(),
            errno,
        },
        _ => sftp::Event::Linked {
            target: d.text(),
            path,
            symbolic: d.truth(),
            errno,
        },
    }
}

/// Many values of one kind, there and back; then their bytes, spoilt in every way.
fn check<T: Encode + Decode + PartialEq + Debug>(make: fn(&mut Dice) -> T) {
    for seed in 1..400 {
        let mut dice = Dice(seed);
        let value = make(&mut dice);
        let frame = encode(&value);
        assert_eq!(decode::<T>(&frame).as_ref(), Ok(&value), "seed {seed}");
        for _ in 0..20 {
            let mut spoilt = frame.clone();
            match dice.below(4) {
                0 => spoilt.truncate(dice.below(frame.len())),
                1 => spoilt.push(dice.roll() as u8),
                2 => {
                    let at = dice.below(frame.len());
                    spoilt[at] = dice.roll() as u8;
                }
                _ => {
                    let at = dice.below(frame.len());
                    spoilt.rotate_left(at);
                }
            }
            // Whatever is still understood has one form.
            if let Ok(value) = decode::<T>(&spoilt) {
                assert_eq!(encode(&value), spoilt, "seed {seed}");
            }
        }
        let noise = [b"fg\x01", dice.bytes().as_slice(), dice.bytes().as_slice()].concat();
        let _ = decode::<T>(&noise);
    }
}

#[test]
fn orders() {
    check(order);
}

#[test]
fn replies() {
    check(reply);
}

#[test]
fn network_frames() {
    check(request);
    check(response);
}

#[test]
fn name_frames() {
    check(question);
    check(answer);
}

#[test]
fn resolver_and_pam_frames() {
    check(start);
    check(from_pam);
}

#[test]
fn file_events() {
    check(event);
}
