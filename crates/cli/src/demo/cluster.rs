//! The demo's cluster: made, started, logged in to, used, locked and looked back on by the commands that a person types,
//! in a directory that goes at the end. Nothing of it reaches the user's own login or ssh-agent.

use super::{Costs, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long the services may take until they are up, and the node until it is connected.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether the node is there.
const LOOK: Duration = Duration::from_millis(50);

/// Makes it and walks through it; `account` is who logs in.
pub fn run(account: &str, costs: &mut Costs) -> Result<()> {
    let place = Place::make()?;
    let (proxy, auth) = (free_port()?, free_port()?);
    let (proxy, auth) = (proxy.to_string(), auth.to_string());
    let state = place.path("state");
    let state = state.to_string_lossy();
    let user = account.to_ascii_lowercase();
    costs.time("a cluster: authorities, state, certificates (once)", || {
        place.quiet(&[
            "init",
            "--state",
            &state,
            "--name",
            "demo",
            "--listen",
            &proxy,
            "--auth-listen",
            &auth,
            "--node-name",
            "here",
        ])
    })?;
    println!("$ fleetgate init --name demo && fleetgate up");
    let up = costs.time("auth, proxy and node, until they are up (once)", || {
        Up::start(&place, &state)
    })?;
    let added = place.quiet(&[
        "user", "add", &user, "--role", "admin", "--role", "access", "--state", &state,
    ])?;
    place.secret("invite", &added.stdout)?;
    place.secret("password", b"only for this demo\n")?;
    let file = |name: &str| place.path(name).to_string_lossy().into_owned();
    let (invite, password, factor) = (file("invite"), file("password"), file("factor"));
    println!("$ fleetgate user add {user} --role admin --role access\n$ fleetgate login --proxy {proxy}");
    costs.time("the first login: password, second factor, certificates", || {
        place.shown(&[
            "login",
            "--proxy",
            &proxy,
            "--invite-file",
            &invite,
            "--password-file",
            &password,
            "--authenticator",
            &factor,
            "--no-agent",
        ])
    })?;
    place.until_connected()?;
    for words in [
        vec!["ls"],
        vec!["ssh", "here", "echo \"hello from $(id -un), through the proxy\""],
        vec!["ssh", "--explain", "here", "true"],
    ] {
        // As it would be typed: the node's shell expands it, and not this one.
        let typed = words.iter().map(|word| match word.contains(' ') {
            true => format!("'{word}'"),
            false => (*word).to_owned(),
        });
        println!("\n$ fleetgate {}", typed.collect::<Vec<_>>().join(" "));
        if let Err(why) = place.shown(&words) {
            return Err(format!("{why}\nthe services' log:\n{}", up.log()).into());
        }
    }
    println!("\n$ fleetgate lock add --user {user} --reason demo");
    place.shown(&[
        "lock", "add", "--user", &user, "--reason", "demo", "--state", &state,
    ])?;
    let refused = place.command(&["ssh", "here", "true"]).output()?;
    print!(
        "$ fleetgate ssh here true\n{}",
        String::from_utf8_lossy(&refused.stderr)
    );
    println!("\n$ fleetgate audit --limit 6");
    place.shown(&["audit", "--limit", "6", "--state", &state])?;
    drop(up);
    println!(
        "\nThe same for good: `fleetgate init`, then `fleetgate up`; it says what comes next. Another machine joins with \
         `fleetgate token add` and `fleetgate join`. docs/quickstart.md goes through all of it."
    );
    Ok(())
}

/// A port of loopback that is free now.
fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The demo's directory, which goes with it.
struct Place(PathBuf);

impl Place {
    fn make() -> Result<Place> {
        let path = std::env::temp_dir().join(format!("fleetgate-demo-cluster-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Place(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn secret(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path(name))?;
        Ok(file.write_all(bytes)?)
    }

    /// This program, with a login of its own and none of the user's.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command
            .args(words)
            .env("FLEETGATE_HOME", self.path("home"))
            .env_remove("SSH_AUTH_SOCK")
            .stdin(Stdio::null());
        command
    }

    fn quiet(&self, words: &[&str]) -> Result<Output> {
        let out = self.command(words).output()?;
        match out.status.success() {
            true => Ok(out),
            false => Err(format!("fleetgate {}: {}", words[0], String::from_utf8_lossy(&out.stderr)).into()),
        }
    }

    fn shown(&self, words: &[&str]) -> Result<()> {
        let status = self.command(words).status()?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("fleetgate {} ended with {status}", words[0]).into()),
        }
    }

    fn until_connected(&self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let out = self.quiet(&["ls", "--json"])?;
            let document: serde_json::Value = serde_json::from_slice(&out.stdout)?;
            if document["nodes"][0]["connected"] == true {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err("the node does not connect to the proxy".into())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `fleetgate up`, ended when dropped.
struct Up {
    child: Child,
    log: PathBuf,
}

impl Up {
    fn start(place: &Place, state: &str) -> Result<Up> {
        let log = place.path("log");
        let mut child = place
            .command(&["up", "--state", state])
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no pipe for what `up` says")?);
        let (told, ready) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(std::result::Result::ok) {
                let _ = told.send(line);
            }
        });
        let up = Up { child, log };
        loop {
            match ready.recv_timeout(PATIENCE) {
                Ok(line) if line.starts_with("all of it") => return Ok(up),
                Ok(line) => println!("{}", line.replace(&*place.0.to_string_lossy(), "…")),
                Err(_) => {
                    return Err(format!("`fleetgate up` does not come up; its log:\n{}", up.log()).into());
                }
            }
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // As Ctrl-C does: all of it ends, sessions too.
        if let Ok(pidfd) = fleetgate_sys::process::pidfd_open(self.child.id().cast_signed()) {
            let _ = fleetgate_sys::process::signal(&pidfd, fleetgate_sys::signals::INT);
        }
        let _ = self.child.wait();
    }
}
