//! Measures PAM sessions where `cargo xtask bench pam` starts it: in a mount namespace with a service of its own.
//! One word a line in, one line of numbers out:
//! `warm` and `cold`: microseconds of one session, until it is open and until it is closed; `memory N`: the bytes (PSS) of N open sessions' processes.
#![forbid(unsafe_code)]

use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::spawn::{Child, Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Fd, socket};
use fleetgate_wire::pam::{FromPam, Start, ToPam};
use fleetgate_wire::resolver::ToResolver;
use fleetgate_wire::{MAX_INLINE, decode, encode};
use std::ffi::CString;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, String>;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [resolver, cold, service, user] = words.as_slice() else {
        eprintln!("usage: bench-pam RESOLVER BENCH_PAM_COLD SERVICE USER");
        std::process::exit(2);
    };
    if let Err(why) = drive(resolver, cold, service, user) {
        eprintln!("bench-pam: {why}");
        std::process::exit(1);
    }
}

fn drive(resolver: &str, cold: &str, service: &str, user: &str) -> Result<()> {
    let (control, theirs) = socket::pair().map_err(said)?;
    let serve = ["fleetgate-resolver", "serve", "--service", service];
    let mut driver = Driver {
        stack: Stack::new().map_err(said)?,
        control,
        service: c(service),
        user: c(user),
        buffer: vec![0; MAX_INLINE],
    };
    driver.start(resolver, &serve, &[&theirs])?;
    drop(theirs);
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let answer = match line.split_once(' ').unwrap_or((&line, "")) {
            ("warm", _) => driver.warm()?,
            ("cold", _) => driver.cold(cold)?,
            ("memory", n) => driver.memory(n.parse().map_err(|_| "how many?")?)?,
            _ => return Err(format!("unknown word {line:?}")),
        };
        println!("{answer}");
        std::io::stdout().flush().map_err(|e| e.to_string())?;
    }
    Ok(())
}

struct Driver {
    stack: Stack,
    control: Fd,
    service: CString,
    user: CString,
    buffer: Vec<u8>,
}

impl Driver {
    fn start(&mut self, program: &str, argv: &[&str], more: &[&Fd]) -> Result<Child> {
        let words: Vec<CString> = argv.iter().map(|w| c(w)).collect();
        let null = Fd::from(std::fs::File::open("/dev/null").map_err(|e| e.to_string())?);
        let mut fds = vec![null.raw(), null.raw(), 2];
        fds.extend(more.iter().map(|fd| fd.raw()));
        let path = c(program);
        let what = Spawn {
            program: Program::Path(&path),
            argv: &Strings::new(words.iter().map(CString::as_c_str)),
            envp: &Strings::new([]),
            fds: &fds,
            cgroup: None,
        };
        spawn(&what, &mut self.stack).map_err(|e| format!("{program}: {e}"))
    }

    fn request(&self) -> Start {
        Start {
            service: self.service.clone(),
            user: self.user.clone(),
            remote_host: c("192.0.2.7"),
            remote_user: c(""),
            tty: c("ssh"),
            authenticate: false,
            defer_change: false,
            environment: Vec::new(),
            prompt_timeout_ms: 10_000,
        }
    }

    fn begin(&mut self) -> Result<Fd> {
        let (ours, theirs) = socket::pair().map_err(said)?;
        let start = self.request();
        let word = encode(&ToResolver::Pam { start });
        socket::send(&self.control, &word, &[theirs.raw()]).map_err(said)?;
        Ok(ours)
    }

    /// Goes on until the session is open; the number of its process.
    fn open(&mut self, ours: &Fd) -> Result<i32> {
        match self.hear(ours)? {
            FromPam::Accepted { .. } => {}
            other => return Err(format!("not accepted: {other:?}")),
        }
        socket::send(ours, &encode(&ToPam::Open { tty: c("ssh") }), &[]).map_err(said)?;
        loop {
            match self.hear(ours)? {
                FromPam::Ask { .. } => {}
                FromPam::Opened { process, .. } => return Ok(process),
                other => return Err(format!("not opened: {other:?}")),
            }
        }
    }

    fn close(&mut self, session: &Fd) -> Result<()> {
        socket::send(session, &encode(&ToPam::Close), &[]).map_err(said)?;
        match self.hear(session)? {
            FromPam::Ended { .. } => Ok(()),
            other => Err(format!("not ended: {other:?}")),
        }
    }

    fn hear(&mut self, session: &Fd) -> Result<FromPam> {
        let got = socket::receive(session, &mut self.buffer, true).map_err(said)?;
        decode(&self.buffer[..got.len]).map_err(|e| format!("the PAM process: {e}"))
    }

    /// One session over the resolver: until it is open, and until it is closed.
    fn warm(&mut self) -> Result<String> {
        let begin = Instant::now();
        let session = self.begin()?;
        self.open(&session)?;
        let open = begin.elapsed();
        self.close(&session)?;
        Ok(micros(open, begin.elapsed()))
    }

    /// The same by a program executed for it.
    fn cold(&mut self, program: &str) -> Result<String> {
        let begin = Instant::now();
        let (ours, theirs) = socket::pair().map_err(said)?;
        socket::send(&ours, &encode(&self.request()), &[]).map_err(said)?;
        let child = self.start(program, &["bench-pam-cold"], &[&theirs])?;
        drop(theirs);
        self.open(&ours)?;
        let open = begin.elapsed();
        self.close(&ours)?;
        let all = begin.elapsed();
        match process::wait(&child.pidfd, true).map_err(said)? {
            Some(Exit::Code(0)) => Ok(micros(open, all)),
            other => Err(format!("{program} ended with {other:?}")),
        }
    }

    /// The proportional set size of each of `n` processes of sessions that are open at once.
    fn memory(&mut self, n: usize) -> Result<String> {
        let mut sessions = Vec::new();
        for _ in 0..n {
            let session = self.begin()?;
            let pid = self.open(&session)?;
            sessions.push((session, pid));
        }
        let mut sizes = Vec::new();
        for (_, pid) in &sessions {
            let path = format!("/proc/{pid}/smaps_rollup");
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
            let line = text.lines().find_map(|l| l.strip_prefix("Pss:"));
            let kb = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
            sizes.push((kb.ok_or("no Pss")? * 1024).to_string());
        }
        for (session, _) in &sessions {
            self.close(session)?;
        }
        Ok(sizes.join(" "))
    }
}

fn micros(open: Duration, all: Duration) -> String {
    format!("{} {}", open.as_secs_f64() * 1e6, all.as_secs_f64() * 1e6)
}

fn c(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

fn said(e: fleetgate_sys::Errno) -> String {
    e.to_string()
}
