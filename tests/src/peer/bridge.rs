//! A port whose connections are carried by a program each: the way through a proxy for clients that know no proxies.

use super::world::DIR;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A port on which every connection is carried by a program of its own, on its standard input and output: what a
/// ProxyCommand is to ssh, for clients that know no such thing.
pub struct Bridge {
    over: Arc<AtomicBool>,
    address: (&'static str, u16),
    children: Arc<Mutex<Vec<Child>>>,
}

impl Bridge {
    /// Listens; `command` is run for each connection.
    pub fn listen(address: (&'static str, u16), command: Vec<String>) -> Bridge {
        let listener = TcpListener::bind(address).expect("bound");
        let over = Arc::new(AtomicBool::new(false));
        let children = Arc::new(Mutex::new(Vec::new()));
        let (ends, running) = (over.clone(), children.clone());
        let log = PathBuf::from(format!("{DIR}/bridge.log"));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let said = std::fs::File::options().create(true).append(true).open(&log);
                let input = OwnedFd::from(stream.try_clone().expect("dup"));
                let child = Command::new(&command[0])
                    .args(&command[1..])
                    .env("FLEETGATE_HOME", crate::cluster::HOME)
                    .env("HOME", "/run/home/root")
                    .env_remove("SSH_AUTH_SOCK")
                    .stdin(Stdio::from(input))
                    .stdout(Stdio::from(OwnedFd::from(stream)))
                    .stderr(said.expect("a log"))
                    .spawn()
                    .expect("spawned");
                let mut children: std::sync::MutexGuard<'_, Vec<Child>> =
                    running.lock().expect("no panic holds it");
                children.retain_mut(|c| matches!(c.try_wait(), Ok(None)));
                children.push(child);
            }
        });
        Bridge {
            over,
            address,
            children,
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = std::net::TcpStream::connect(self.address);
        for child in self.children.lock().expect("no panic holds it").iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
