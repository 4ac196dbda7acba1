//! A private world: a copy of /etc that a test may break, seen by what is started in it and by nobody else. Nothing
//! is mounted outside the started program's own mount namespace, and all files go when the world is dropped.

use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Fd, poll};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The account that every world has: its name, its number and group, its password.
pub const USER: &str = "fgt";
/// See [`USER`].
pub const UID: u32 = 61_234;
/// See [`USER`].
pub const PASSWORD: &str = "correct horse";
/// [`PASSWORD`] as crypt(3) has it, with few rounds.
const HASH: &str = "$6$rounds=1000$fgtestsalt$dpYLsqjy86Yz0E9yHYWmeeV58cU.FVdxPGCTTfWPrNafgfU39e3pytqtQjOT9bOvyyr4O4sYIk/UNMKdQ6D4U.";

/// How long anything may take before a test gives up: only a hang reaches it.
pub const PATIENCE_MS: u32 = 60_000;

/// The world's files.
pub struct World {
    dir: PathBuf,
}

/// A program that runs in a world; killed when dropped.
pub struct Inhabitant {
    /// Its number.
    pub pid: i32,
    /// Its descriptor.
    pub pidfd: Fd,
}

impl Default for World {
    fn default() -> Self {
        World::new()
    }
}

impl World {
    /// A fresh one, with [`USER`] in it.
    pub fn new() -> World {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Not below /tmp: tests put other things there.
        let dir = PathBuf::from(format!("/var/tmp/fleetgate-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).expect("a fresh directory in /var/tmp");
        let world = World { dir };
        let copied = Command::new("cp").args(["-a", "/etc"]).arg(&world.dir).status();
        assert!(copied.expect("cp runs").success(), "copying /etc");
        world.append("etc/passwd", &format!("{USER}:x:{UID}:{UID}:A Test:/:/bin/sh\n"));
        world.append("etc/group", &format!("{USER}:x:{UID}:\nfgmore:x:61235:{USER}\n"));
        world.append("etc/shadow", &format!("{USER}:{HASH}:19000:0:99999:7:::\n"));
        world
    }

    /// The path of `name` in the world's directory; `etc/…` is what programs in it see as `/etc/…`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes a file whole, by renaming, as every tool that edits accounts does.
    pub fn write(&self, name: &str, content: &str) {
        let (path, fresh) = (self.path(name), self.path("fresh"));
        std::fs::write(&fresh, content).expect("write");
        if let Ok(old) = std::fs::metadata(&path) {
            std::fs::set_permissions(&fresh, old.permissions()).expect("chmod");
        }
        std::fs::create_dir_all(path.parent().expect("has one")).expect("mkdir");
        std::fs::rename(&fresh, &path).expect("rename");
    }

    /// What a file holds; empty when it is not there.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Adds to a file.
    pub fn append(&self, name: &str, content: &str) {
        self.write(name, &(self.read(name) + content));
    }

    /// Replaces text in a file, which must hold it.
    pub fn replace(&self, name: &str, old: &str, new: &str) {
        let content = self.read(name);
        assert!(content.contains(old), "{name} has no {old:?}");
        self.write(name, &content.replace(old, new));
    }

    /// Writes a script that may be executed; its path.
    pub fn script(&self, name: &str, content: &str) -> PathBuf {
        self.write(name, content);
        let path = self.path(name);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("chmod");
        path
    }

    /// Compiles a shared library from C; its path.
    pub fn library(&self, name: &str, source: &str) -> PathBuf {
        let code = self.path(&format!("{name}.c"));
        std::fs::write(&code, source).expect("write");
        let library = self.path(name);
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &code])
            .status();
        assert!(compiled.expect("cc runs").success(), "compiling {name}");
        library
    }

    /// Starts `program` under `name` in a mount namespace where the world's `/etc` is `/etc`, after the shell lines
    /// of `before` (mounts, `export`s). `fds` become 3, 4, …; its standard error goes to the file `log`.
    pub fn start(&self, program: &Path, name: &str, args: &[&str], before: &str, fds: &[&Fd]) -> Inhabitant {
        let dir = self.dir.display();
        let script = format!(
            "set -e; mount --bind {dir}/etc /etc; cd {dir}; {before}\nname=$1; shift; exec -a \"$name\" \"$@\""
        );
        let words: Vec<CString> = ["unshare", "--mount", "--propagation", "private", "bash", "-c"]
            .into_iter()
            .map(OsStr::new)
            .chain([
                OsStr::new(&script),
                OsStr::new("world"),
                OsStr::new(name),
                program.as_os_str(),
            ])
            .chain(args.iter().map(OsStr::new))
            .map(|w| CString::new(w.as_bytes()).expect("no zero byte"))
            .collect();
        let argv = Strings::new(words.iter().map(CString::as_c_str));
        let envp = Strings::new([c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
        let null = Fd::from(std::fs::File::open("/dev/null").expect("/dev/null"));
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.path("log"))
            .expect("a log");
        let log = Fd::from(log);
        let mut all = vec![null.raw(), log.raw(), log.raw()];
        all.extend(fds.iter().map(|fd| fd.raw()));
        let unshare = which("unshare");
        let what = Spawn {
            program: Program::Path(&unshare),
            argv: &argv,
            envp: &envp,
            fds: &all,
            cgroup: None,
        };
        let child = spawn(&what, &mut Stack::new().expect("a stack")).expect("unshare starts");
        Inhabitant {
            pid: child.pid,
            pidfd: child.pidfd,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the world {}:\n{}", self.dir.display(), self.read("log"));
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn which(name: &str) -> CString {
    let path = ["/usr/bin", "/bin", "/usr/sbin"]
        .into_iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|p| p.exists());
    let path = path.unwrap_or_else(|| panic!("{name} is not installed"));
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
}

impl Inhabitant {
    /// Waits for its end.
    pub fn wait(&self) -> Exit {
        wait_for(&self.pidfd, "a program to end");
        let exit = process::wait(&self.pidfd, true).expect("our own child");
        exit.expect("it has ended")
    }
}

impl Drop for Inhabitant {
    fn drop(&mut self) {
        let _ = process::signal(&self.pidfd, process::SIGKILL);
        let _ = process::wait(&self.pidfd, true);
    }
}

/// Waits until `fd` has something to read (for a pidfd: the end).
pub fn wait_for(fd: &Fd, what: &str) {
    let mut watch = [poll::Watch::new(fd.raw(), poll::READ)];
    let news = poll::poll(&mut watch, Some(PATIENCE_MS)).expect("poll");
    assert_eq!(news, 1, "waited too long for {what}");
}

/// Waits until `done`, asking again and again; for what has no event to wait for.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..PATIENCE_MS / 10 {
        if done() {
            return;
        }
        let _ = poll::poll(&mut [], Some(10));
    }
    panic!("waited too long for {what}");
}

/// A C string of a path.
pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
}

/// A C string of text.
pub fn c(text: &str) -> CString {
    CString::new(text).expect("no zero byte")
}

/// The text of a C string.
pub fn text(c: &CStr) -> String {
    c.to_string_lossy().into_owned()
}
