//! Where the servers live: keys, a hundred logins, programs, and a mount namespace for each server in which these
//! logins are the machine's. Nothing of the machine's /etc, /run or /var/log is changed.

use super::cluster::Cluster;
use super::group::Group;
use super::load::Load;
use crate::bench::{Bench, rival};
use crate::shell::{Result, build_benches, read_text, root, run, target};
use std::cell::OnceCell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How many logins there are: fgbench00 to fgbench99.
pub const LOGINS: usize = 100;
/// The user id of the first.
const FIRST_UID: u32 = 61_000;
/// The user that our lobby and fronts run as.
const OURS_UID: u32 = 60_999;
/// Where homes are, for the servers.
const HOMES: &str = "/run/home";
/// The shell of all logins, the same for all servers.
const SHELL: &str = "/bin/sh";
/// What a transfer moves, in MiB.
pub const LARGE: usize = 384;

/// One PAM service for all: what Debian's and Fedora's have in common, without what needs a login manager.
const SERVICE: &str = "auth required pam_unix.so\naccount required pam_nologin.so\naccount required pam_unix.so\n\
    session optional pam_keyinit.so force revoke\nsession required pam_limits.so\n\
    session required pam_unix.so\nsession required pam_env.so\nsession optional pam_umask.so\n\
    session optional pam_mail.so standard noenv\npassword required pam_unix.so\n";

/// A server's namespace: $1 is the world, $2 where cgroup v2 is; the rest is executed. Its cgroup is the root of the
/// hierarchy that it sees, so that it may make groups for sessions in it, as a service that systemd delegates to.
/// /run and /var/log are new, so that login records go to files of its own; programs that users run are copied to
/// /run, since a checkout may be closed to them.
const ENTER: &str = "set -e; w=$1; umount -l \"$2\"; mount -t cgroup2 none \"$2\"; shift 2; mount --bind $w/passwd /etc/passwd; mount --bind $w/group /etc/group; \
    mount --bind $w/shadow /etc/shadow; mount --bind $w/pam.d /etc/pam.d; mount -t tmpfs -o mode=755 none /run; \
    mkdir /run/sshd /run/home; cp $w/bench-usage /run; mount --bind $w/home /run/home; \
    mount -t tmpfs -o mode=755 none /var/log; touch /run/utmp /var/log/wtmp /var/log/lastlog; \
    if [ -d /var/lib/wtmpdb ]; then mount -t tmpfs -o mode=755 none /var/lib/wtmpdb; fi; exec \"$@\"";

/// Puts images where a package installs them, for what is executed then: $1 has an empty directory for them, $2 is a file
/// system that has them. The directory is not the machine's, so it is laid over /usr/lib. The file system reads ahead as
/// far as Linux does unless it is told otherwise, 128 KB: with more (8 MB were seen) the page cache has all of an image that
/// anybody has begun to read.
const INSTALL: &str = "set -e; mount -t overlay -o \"lowerdir=$1:/usr/lib\" none /usr/lib; \
    mount -o ro,loop \"$2\" /usr/lib/fleetgate; \
    echo 128 > /sys/class/bdi/$(mountpoint --fs-devno /usr/lib/fleetgate)/read_ahead_kb; shift 2; exec \"$@\"";

/// The programs and files of all servers and clients.
pub struct World {
    /// Where all of it is.
    pub at: PathBuf,
    /// OpenSSH's client.
    pub ssh: PathBuf,
    /// OpenSSH's server.
    pub sshd: PathBuf,
    /// Dropbear.
    pub dropbear: PathBuf,
    /// The server made of Go's library.
    pub go: PathBuf,
    /// `fleetgate`, with its images.
    pub fleetgate: PathBuf,
    load: PathBuf,
    images: [PathBuf; 5],
    cluster: OnceCell<Cluster>,
}

/// The name of a login.
pub fn login(n: usize) -> String {
    format!("fgbench{:02}", n % LOGINS)
}

impl World {
    /// Makes all of it.
    pub fn new(bench: &Bench) -> Result<World> {
        let ssh = rival("ssh", "openssh-client")?;
        let sshd = rival("sshd", "openssh-server")?;
        let dropbear = rival("dropbear", "dropbear-bin")?;
        let go = |program: &str| build_go(program);
        let (server, load) = (go("server")?, go("load")?);
        build_benches(&["bench-usage"])?;
        let world = World {
            at: Path::new("/dev/shm").join(format!("fleetgate-bench-ssh-{}", std::process::id())),
            ssh,
            sshd,
            dropbear,
            go: server,
            fleetgate: bench.built.fleetgate.clone(),
            load,
            images: [
                &bench.built.helper,
                &bench.built.front,
                &bench.built.tunnel,
                &bench.built.recorder,
                &bench.built.resolver,
            ]
            .map(Clone::clone),
            cluster: OnceCell::new(),
        };
        world.fill()?;
        Ok(world)
    }

    fn fill(&self) -> Result {
        let failed = |e: std::io::Error| format!("making files in {}: {e}", self.at.display());
        std::fs::create_dir_all(self.at.join("log")).map_err(failed)?;
        for key in ["host", "user"] {
            let mut make = Command::new(rival("ssh-keygen", "openssh-client")?);
            make.args(["-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f"]);
            run(make.arg(self.at.join(key)))?;
        }
        let mut convert = Command::new(rival("dropbearconvert", "dropbear-bin")?);
        convert.args(["openssh", "dropbear"]).arg(self.at.join("host"));
        run(convert
            .arg(self.at.join("host.dropbear"))
            .stdout(Stdio::null())
            .stderr(Stdio::null()))?;
        let host = read_text(&self.at.join("host.pub"))?;
        std::fs::write(self.at.join("known_hosts"), format!("bench {host}")).map_err(failed)?;
        std::fs::copy(target().join("release/bench-usage"), self.at.join("bench-usage")).map_err(failed)?;

        let (mut passwd, mut group) = (
            read_text(Path::new("/etc/passwd"))?,
            read_text(Path::new("/etc/group"))?,
        );
        // The machine's own passwords are not copied.
        let mut shadow = "root:*:19000:0:99999:7:::\n".to_owned();
        let key = read_text(&self.at.join("user.pub"))?;
        let logins = (0..LOGINS).map(|n| (login(n), FIRST_UID + n as u32));
        for (name, uid) in logins.chain([("fleetgate".to_owned(), OURS_UID)]) {
            let _ = writeln!(passwd, "{name}:x:{uid}:{uid}::{HOMES}/{name}:{SHELL}");
            let _ = writeln!(group, "{name}:x:{uid}:");
            let _ = writeln!(shadow, "{name}:*:19000:0:99999:7:::");
            let home = self.at.join("home").join(&name);
            let keys = home.join(".ssh/authorized_keys");
            std::fs::create_dir_all(home.join(".ssh")).map_err(failed)?;
            std::fs::write(&keys, &key).map_err(failed)?;
            for path in [&home, &home.join(".ssh"), &keys] {
                std::os::unix::fs::chown(path, Some(uid), Some(uid)).map_err(failed)?;
            }
        }
        std::fs::write(self.at.join("passwd"), passwd).map_err(failed)?;
        std::fs::write(self.at.join("group"), group).map_err(failed)?;
        std::fs::write(self.at.join("shadow"), shadow).map_err(failed)?;
        run(Command::new("chmod").arg("0600").arg(self.at.join("shadow")))?;
        run(Command::new("cp").arg("-a").arg("/etc/pam.d").arg(&self.at))?;
        for service in ["sshd", "fleetgate"] {
            std::fs::write(self.at.join("pam.d").join(service), SERVICE).map_err(failed)?;
        }

        // Not zeros: what moves shall be like data.
        let part: Vec<u8> = (0..1u32 << 20)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let mut large = std::fs::File::create(self.at.join("large")).map_err(failed)?;
        for _ in 0..LARGE {
            std::io::Write::write_all(&mut large, &part).map_err(failed)?;
        }
        Ok(())
    }

    /// The cluster that our nodes join. It starts with the first of them.
    pub fn cluster(&self) -> Result<&Cluster> {
        match self.cluster.get() {
            Some(cluster) => Ok(cluster),
            None => {
                let cluster = Cluster::start(self, "cluster")?;
                Ok(self.cluster.get_or_init(|| cluster))
            }
        }
    }

    /// A command that puts itself into `group`, enters a namespace of its own and executes what is added to it. It
    /// stays the same process.
    pub fn enter(&self, group: &Group) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$1\"; shift; exec \"$@\"", "bench"])
            .arg(group.door());
        command.args([
            "unshare",
            "--mount",
            "--cgroup",
            "--propagation",
            "private",
            "sh",
            "-c",
            ENTER,
            "bench",
        ]);
        command.arg(&self.at).arg(&group.hierarchy);
        command
    }

    /// Where a node on this port keeps its recordings: in memory, so that no disk is measured.
    pub fn recordings(&self, port: u16) -> PathBuf {
        self.at.join(format!("recordings-{port}"))
    }

    /// The words before a command that finds the images installed.
    pub fn with_installed_images(&self) -> Result<Vec<String>> {
        // In /dev/shm, where the rest of the world is, a file is in memory whether or not anybody reads it.
        let (over, from) = (self.at.join("lib"), target().join("bench/installed"));
        let version = from.join(env!("CARGO_PKG_VERSION"));
        let made =
            std::fs::create_dir_all(over.join("fleetgate")).and_then(|()| std::fs::create_dir_all(&version));
        made.map_err(|e| format!("{}: {e}", version.display()))?;
        let mut install = Command::new("install");
        run(install
            .args(["--mode=0755", "--target-directory"])
            .arg(&version)
            .args(&self.images))?;
        // Of a file system that is new to the kernel the page cache has nothing: of files just written it has all.
        let system = from.with_extension("ext4");
        let mut make = Command::new(rival("mkfs.ext4", "e2fsprogs")?);
        run(make.args(["-q", "-F", "-d"]).arg(&from).arg(&system).arg("16M"))?;
        let words = ["sh", "-c", INSTALL, "bench"].map(str::to_owned);
        let paths = [over, system].map(|path| path.display().to_string());
        Ok(words.into_iter().chain(paths).collect())
    }

    /// OpenSSH's client, with everything pinned: key exchange, host key and cipher.
    pub fn client(&self, port: u16, login: &str, cipher: &str) -> Command {
        let mut command = Command::new(&self.ssh);
        command.args(["-F", "none", "-l", login, "-p", &port.to_string(), "-c", cipher]);
        let known = format!("UserKnownHostsFile={}", self.at.join("known_hosts").display());
        for option in [
            "BatchMode=yes",
            "GlobalKnownHostsFile=/dev/null",
            &known,
            "HostKeyAlias=bench",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "KexAlgorithms=curve25519-sha256",
            "HostKeyAlgorithms=ssh-ed25519",
            "MACs=hmac-sha2-256",
            "LogLevel=ERROR",
        ] {
            command.args(["-o", option]);
        }
        command.arg("-i").arg(self.at.join("user"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// A client process for many connections.
    pub fn load(&self, port: u16) -> Result<Load> {
        let mut command = Command::new(&self.load);
        command
            .arg(format!("127.0.0.1:{port}"))
            .arg(self.at.join("user"))
            .arg(self.at.join("host.pub"));
        Load::start(command)
    }

    /// Gives a login another shell.
    pub fn set_shell(&self, login: &str, shell: &str) -> Result {
        let path = self.at.join("passwd");
        let begin = format!("{login}:");
        let changed = |line: &str| match line.rsplit_once(':') {
            Some((rest, _)) if line.starts_with(&begin) => format!("{rest}:{shell}\n"),
            _ => format!("{line}\n"),
        };
        let text: String = read_text(&path)?.lines().map(changed).collect();
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The program that the logins' shells are, as the kernel names it.
    pub fn shell(&self) -> Result<PathBuf> {
        std::fs::canonicalize(SHELL).map_err(|e| format!("{SHELL}: {e}"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // It writes there until it ends.
        drop(self.cluster.take());
        let _ = std::fs::remove_dir_all(&self.at);
    }
}

/// A program of benches/peers/go-sshd. Go fetches the modules that it needs; go.sum says which bytes they are.
fn build_go(program: &str) -> Result<PathBuf> {
    let out = target().join("bench/go-sshd").join(program);
    let mut build = Command::new(rival("go", "golang-go")?);
    build
        .args(["build", "-mod=readonly", "-trimpath", "-o"])
        .arg(&out)
        .arg(format!("./{program}"));
    build
        .current_dir(root().join("benches/peers/go-sshd"))
        .env("CGO_ENABLED", "0");
    run(&mut build)?;
    Ok(out)
}
