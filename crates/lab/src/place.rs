//! One place: a process that keeps namespaces alive, and the ways into them.
//!
//! The keeper is the first process of the place's own process namespace. It reads from a pipe whose other end only we
//! have, so it ends when the lab is dropped and also when this process is killed, and the kernel ends with it all
//! that runs in the place. Namespaces and devices have no names outside, so nothing is left to remove.

use crate::process::{self, Process, Shared};
use crate::{Error, Result};
use fleetgate_sys::{Fd, file, namespaces, tun};
use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// What the keeper does: a /run of its own, the place's name; metrics of earlier connections are not kept, because a
/// link's time is changed between measurements. Root has an empty home and a plain shell: what the machine's reads before
/// it runs a command may take longer than a connection.
const KEEPER: &str = "set -e
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/sshd /run/lock
mkdir -m 700 /run/root
touch /run/utmp
sed 's|^\\(root:.*:0:0:[^:]*\\):.*|\\1:/run/root:/bin/sh|' /etc/passwd > /run/passwd
chmod 644 /run/passwd
mount --bind /run/passwd /etc/passwd
echo \"$1\" > /proc/sys/kernel/hostname
echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save
ip link set lo up
echo ready
read -r nothing || exit 0";

/// A device's queue towards the relay, in packets: what a sender's whole window is at a gigabyte per second.
const DEVICE_QUEUE: &str = "10000";
/// As on an Ethernet.
const MTU: &str = "1500";

/// A place; everything in it ends when this is dropped.
pub(crate) struct Place {
    name: &'static str,
    keeper: Child,
    mounts: Fd,
    host_name: Fd,
    network: Fd,
    processes: Fd,
    started: Mutex<Vec<Shared>>,
}

impl Place {
    /// Makes it, with a loopback device and nothing else.
    pub(crate) fn new(name: &'static str) -> Result<Place> {
        let failed = |why: String| Error::new(format!("making the place {name}"), why);
        if name.is_empty() || name.len() > tun::MAX_NAME {
            return Err(failed(format!(
                "a name has 1 to {} bytes, as devices are called after it",
                tun::MAX_NAME
            )));
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--uts", "--net", "--pid", "--fork", "--kill-child"]);
        command.args([
            "--mount-proc",
            "--propagation",
            "private",
            "sh",
            "-c",
            KEEPER,
            "lab",
            name,
        ]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command
            .spawn()
            .map_err(|e| failed(format!("unshare (package util-linux): {e}")))?;
        let mut ready = String::new();
        let said = keeper
            .stdout
            .take()
            .map(|out| BufReader::new(out).read_line(&mut ready));
        if !matches!(said, Some(Ok(_))) || ready != "ready\n" {
            let _ = keeper.kill();
            let _ = keeper.wait();
            return Err(failed("its keeper ended; it needs root and iproute2".to_owned()));
        }
        let namespace = |kind: &str| {
            let path = format!("/proc/{}/ns/{kind}", keeper.id());
            let c_path = CString::new(path.as_str()).expect("no zero");
            file::openat(file::CWD, &c_path, file::flags::O_RDONLY, 0)
                .map_err(|e| failed(format!("{path}: {e}")))
        };
        Ok(Place {
            name,
            mounts: namespace("mnt")?,
            host_name: namespace("uts")?,
            network: namespace("net")?,
            // The keeper's parent is not in it; its children are.
            processes: namespace("pid_for_children")?,
            started: Mutex::default(),
            keeper,
        })
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// A device in its network that leads to the place `to`.
    pub(crate) fn device(&self, to: &str, here: Ipv4Addr, there: Ipv4Addr) -> Result<Fd> {
        let failed = |why: String| Error::new(format!("a device in {} that leads to {to}", self.name), why);
        let device = self.inside(|| tun::open(to))?;
        let device = device.map_err(|e| failed(format!("/dev/net/tun: {e}")))?;
        let (here, there) = (here.to_string(), there.to_string());
        self.ip(&["address", "add", &here, "peer", &there, "dev", to])?;
        // No address of version 6: nothing travels that nobody asked for.
        self.ip(&[
            "link",
            "set",
            to,
            "mtu",
            MTU,
            "txqueuelen",
            DEVICE_QUEUE,
            "addrgenmode",
            "none",
            "up",
        ])?;
        Ok(device)
    }

    /// Makes the names of its neighbours known in it.
    pub(crate) fn knows(&self, neighbours: &[(&'static str, Ipv4Addr)]) -> Result<()> {
        let mut hosts = format!("127.0.0.1 localhost {}\n", self.name);
        for (name, address) in neighbours {
            hosts += &format!("{address} {name}\n");
        }
        let failed = |e: std::io::Error| Error::new(format!("/etc/hosts of {}", self.name), e);
        self.inside(|| std::fs::write("/run/hosts", hosts))?
            .map_err(failed)?;
        self.run(Command::new("mount").args(["--bind", "/run/hosts", "/etc/hosts"]))
    }

    /// Starts `command` in it.
    pub(crate) fn start(&self, command: &mut Command) -> Result<Process> {
        // Last, because no thread can be started from then on.
        let started = self.inside(|| {
            namespaces::enter(&self.processes).map_err(|e| e.to_string())?;
            command.spawn().map_err(|e| e.to_string())
        })?;
        let program = command.get_program().display();
        let started =
            started.map_err(|why| Error::new(format!("starting {program} in {}", self.name), why))?;
        let process = Process::new(started);
        let mut all = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|child| !process::is_over(child));
        all.push(process.share());
        Ok(process)
    }

    /// Does `work` on a thread that is in its network and mounts, and gives what comes of it.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let enter = || {
            namespaces::own_directory()?;
            [&self.mounts, &self.host_name, &self.network]
                .into_iter()
                .try_for_each(namespaces::enter)
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| enter().map(|()| work()));
            match thread.join() {
                Ok(done) => done.map_err(|e| Error::new(format!("entering {}", self.name), e)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// An error if one of its devices dropped a packet, which happens when the relay does not keep up.
    pub(crate) fn dropped_nothing(&self) -> Result<()> {
        // Its /proc knows its own processes only, which this thread is none of.
        let text = self.inside(|| std::fs::read_to_string("/proc/1/net/dev"))?;
        let text = text.map_err(|e| Error::new(format!("/proc/net/dev of {}", self.name), e))?;
        match dropped(&text) {
            0 => Ok(()),
            n => Err(Error::new(
                format!("{n} packets were dropped by devices of {}", self.name),
                "what was measured over its links does not count",
            )),
        }
    }

    fn ip(&self, words: &[&str]) -> Result<()> {
        self.run(Command::new("ip").args(words))
    }

    fn run(&self, command: &mut Command) -> Result<()> {
        let mut child = self.start(command)?;
        let why = match child.wait() {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => status.to_string(),
            Err(e) => e.to_string(),
        };
        Err(Error::new(format!("{command:?} in {}", self.name), why))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The pipe closes: the keeper ends, and the kernel ends all processes of the place before its parent hears it.
        drop(self.keeper.stdin.take());
        let all = self.started.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.iter().for_each(process::reap);
        let _ = self.keeper.wait();
    }
}

/// Packets that devices dropped, both ways, in the form of /proc/net/dev: after two lines of headings one device each,
/// its name and sixteen numbers, of which the fourth and the twelfth are these.
fn dropped(text: &str) -> u64 {
    let devices = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    let numbers = devices.flat_map(|(_, numbers)| {
        let numbers: Vec<u64> = numbers
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        [3, 11].map(|at| numbers.get(at).copied().unwrap_or(0))
    });
    numbers.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_devices_dropped_is_the_sum_of_both_directions() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n \
            proxy:  100       2    0    3    0     0          0         0      900       8    0   40    0     0       0          0\n";
        assert_eq!(dropped(text), 43);
        assert_eq!(dropped(""), 0);
    }
}
