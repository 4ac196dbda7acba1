//! Real clients: OpenSSH's `sftp -D` and paramiko do the same to our server and to OpenSSH's, and see the same.

use fleetgate_tests::folder::Folder;
use fleetgate_tests::sftp::Field::S;
use fleetgate_tests::sftp::{self, kind, s};
use fleetgate_tests::{helper, skip};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// The two servers as one word each, for `sftp -D` and for a script: theirs, then ours.
fn servers(scratch: &Folder) -> [String; 2] {
    let link = scratch.join("fleetgate-session");
    // `sftp -D` splits at spaces and gives no argv[0] of its own: a link has the proper name.
    symlink(helper(), &link).unwrap();
    [
        sftp::openssh_path().to_str().unwrap().to_owned(),
        format!("{} sftp", link.display()),
    ]
}

/// What a tree looks like: names, kinds, modes, owners, lengths, contents, whole seconds of chosen times.
fn tree(at: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(at)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    for path in names {
        let meta = path.symlink_metadata().unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let kept_time = if meta.mtime() < 1_500_000_000 {
            meta.mtime()
        } else {
            0
        };
        let mut line = format!(
            "{name} {:o} {}:{} {} links {kept_time}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.nlink()
        );
        if meta.is_file() {
            let content = std::fs::read(&path).unwrap();
            let sum = content
                .iter()
                .fold(7u64, |sum, b| sum.wrapping_mul(31).wrapping_add((*b).into()));
            line += &format!(" {} bytes {sum:x}", content.len());
        } else if meta.is_symlink() {
            line += &format!(" -> {}", std::fs::read_link(&path).unwrap().display());
        }
        lines.push(line);
        if meta.is_dir() {
            lines.extend(tree(&path).into_iter().map(|l| format!("{name}/{l}")));
        }
    }
    lines
}

/// Every command of `sftp`, good and bad. A dash before a command lets the batch go on after its refusal.
const BATCH: &str = "\
version
pwd
lpwd
put local/a
put -p local/a kept
put -p local/big
put local/big part
-put local/missing
put local/a \"name with spaces\"
put -R local/tree
ls
ls -1
-ls missing
ls -n kept
ls -1 tree/*
get big local/back
get -p kept local/
get -R tree local/tree2
-get missing
truncate
reput local/big part
reget big local/half
rename kept moved
-rename -l moved big
-rename missing other
-rename -l moved a
ln moved hard
-ln missing hard2
ln -s moved soft
symlink tree/sub dirlink
-symlink x soft
chmod 600 moved
-chmod 600 missing
chmod 1755 tree
chown 54321 moved
chgrp 54322 moved
chown -h 54323 soft
chgrp -h 54324 soft
mkdir made
-mkdir made
mkdir made/below
-rmdir made
rmdir made/below
cd made
pwd
cd ..
-cd missing
cp a copied
copy big made/copied
rm hard
-rm hard
rm tree/sub/t*
-rmdir a
df
df -h
df -i
lls local
lmkdir local/made
lcd local
lcd ..
ls -l soft
progress
?
get \"name with spaces\" local/
bye
";

#[test]
fn openssh_s_client_sees_and_leaves_the_same() {
    let scratch = Folder::new().with_mode(0o777);
    let mut seen = Vec::new();
    for server in servers(&scratch) {
        let here = scratch.join("work");
        std::fs::create_dir_all(here.join("local/tree/sub")).unwrap();
        std::fs::write(here.join("local/a"), "a file\n").unwrap();
        let big: Vec<u8> = (0..3_000_000u32).map(|n| (n ^ n >> 8) as u8).collect();
        std::fs::write(here.join("local/big"), &big).unwrap();
        std::fs::write(here.join("local/half"), &big[..1_234_567]).unwrap();
        for n in 0..5 {
            std::fs::write(here.join(format!("local/tree/sub/t{n}")), format!("{n}")).unwrap();
        }
        std::fs::set_permissions(here.join("local/a"), std::fs::Permissions::from_mode(0o751)).unwrap();
        let touched = Command::new("touch")
            .args(["-d", "@1000000001"])
            .arg(here.join("local/a"))
            .status();
        assert!(touched.unwrap().success());
        // What `put` leaves of "part" is cut, so that `reput` has something to do.
        let batch = BATCH.replace("truncate\n", "!truncate -s 1000000 part\n");
        let batch = batch.replace("progress\n", "");
        std::fs::write(scratch.join("batch"), batch).unwrap();
        let output = Command::new("sftp")
            .args(["-q", "-D", &server, "-b"])
            .arg(scratch.join("batch"))
            .current_dir(&here)
            .env("HOME", &here)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .expect("sftp: install openssh-client");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&server, "SERVER");
        // The hour in a long listing, and how full the disk is, may change from one run to the other.
        let steady = |line: &&str| !line.contains('%') && !line.contains("Used");
        let said: Vec<String> = text(&output.stdout)
            .lines()
            .filter(steady)
            .map(str::to_owned)
            .collect();
        seen.push((output.status.code(), said, text(&output.stderr), tree(&here)));
        let lines = seen.last().unwrap();
        assert_eq!(lines.0, Some(0), "{lines:?}");
        assert!(text(&output.stdout).contains('%'), "df says how full the disk is");
        assert_eq!(std::fs::read(here.join("part")).unwrap(), big);
        assert_eq!(std::fs::read(here.join("local/half")).unwrap(), big);
        std::fs::remove_dir_all(&here).unwrap();
    }
    let (theirs, ours) = (&seen[0], &seen[1]);
    for (theirs, ours) in theirs.1.iter().zip(&ours.1) {
        assert_eq!(theirs, ours, "OpenSSH's, then ours");
    }
    assert_eq!(theirs, ours);
}

/// What paramiko does, with its answers printed; argv: the server's command.
const SCRIPT: &str = r#"
import os, socket, stat, subprocess, struct, sys, threading
import paramiko

class Pipe:
    "What SFTPClient needs of a channel, over a socket pair."
    def __init__(self, command):
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs)
        theirs.close()
        self.sock = ours
        self.name = "pipe"
        self.closed = False
    def send(self, data): return self.sock.send(data)
    def recv(self, n): return self.sock.recv(n)
    def recv_ready(self):
        import select
        return bool(select.select([self.sock], [], [], 0)[0])
    def get_name(self): return self.name
    def get_transport(self):
        class T:
            @staticmethod
            def get_hexdump(): return False
        return T
    def settimeout(self, t): self.sock.settimeout(t)
    def gettimeout(self): return self.sock.gettimeout()
    def close(self):
        if not self.closed:
            self.closed = True
            self.sock.shutdown(socket.SHUT_WR)
            self.process.wait()
            self.sock.close()

pipe = Pipe(sys.argv[1].split())
sftp = paramiko.SFTPClient(pipe)

def show(what, call):
    try:
        value = call()
    except IOError as e:
        value = "%s %s %s" % (type(e).__name__, e.errno, e.args)
    print(what, value)

def attributes(a):
    return oct(a.st_mode), a.st_uid, a.st_gid, a.st_size if stat.S_ISREG(a.st_mode) else 0

show("stat", lambda: attributes(sftp.stat(".")))
show("normalize", lambda: os.path.basename(sftp.normalize("x/..") if os.path.isdir("x") else sftp.normalize("new")))
sftp.mkdir("dir", 0o750)
with sftp.open("dir/file", "w") as f:
    f.set_pipelined(True)
    for n in range(300):
        f.write(struct.pack(">I", n) * 2048)
show("size", lambda: sftp.stat("dir/file").st_size)
with sftp.open("dir/file", "r") as f:
    f.prefetch()
    data = f.read()
    print("prefetched", len(data), sum(data) % 65521)
    f.seek(8192 * 7)
    print("seek", f.read(8))
    print("readv", [len(x) for x in f.readv([(0, 100), (50000, 70000), (2457590, 100)])])
with sftp.open("dir/file", "a") as f:
    f.write("appended")
with sftp.open("dir/file", "r+") as f:
    f.seek(4); f.write("patched"); f.seek(0); print("patched", f.read(16))
    f.truncate(100)
    print("truncated", f.stat().st_size)
    f.chmod(0o604); f.utime((1111, 2222))
a = sftp.stat("dir/file"); print("attributes", attributes(a), a.st_atime, a.st_mtime)
show("exclusive", lambda: sftp.open("dir/file", "wx"))
show("missing", lambda: sftp.open("dir/missing"))
sftp.utime("dir/file", (3333, 4444)); print("utime", sftp.stat("dir/file").st_mtime)
sftp.truncate("dir/file", 9); print("truncate", sftp.stat("dir/file").st_size)
sftp.chown("dir/file", 54321, 54322); print("chown", attributes(sftp.stat("dir/file")))
sftp.symlink("file", "dir/link"); print("readlink", sftp.readlink("dir/link"))
print("lstat", attributes(sftp.lstat("dir/link"))[:1], attributes(sftp.stat("dir/link"))[:1])
show("readlink of a file", lambda: sftp.readlink("dir/file"))
sftp.open("other", "w").close()
show("rename", lambda: sftp.rename("other", "dir/file"))
show("posix_rename", lambda: sftp.posix_rename("other", "dir/file"))
print("listdir", sorted(sftp.listdir("dir")))
print("long", [str(a).split()[0] for a in sorted(sftp.listdir_attr("dir"), key=lambda a: a.filename)])
kind, answer = sftp._request(200, "statvfs@openssh.com", ".")
print("statvfs", kind, len(answer.get_remainder()))
with sftp.open("sparse", "w") as f:
    f.seek(5 << 30); f.write(b"end")
print("sparse", sftp.stat("sparse").st_size, os.stat("sparse").st_blocks < 1000)
with sftp.open("sparse") as f:
    f.seek((5 << 30) - 5); print("far", f.read())
show("rmdir", lambda: sftp.rmdir("dir"))
names = sftp.listdir("many")
print("many", len(names), len(set(names)), min(names), max(names))
total = sum(a.st_size for a in sftp.listdir_iter("many", read_aheads=20))
print("read ahead", total)
sftp.close()
print("exit", pipe.process.returncode)
"#;

#[test]
fn paramiko_sees_and_leaves_the_same() {
    let present = Command::new("/usr/bin/python3")
        .args(["-c", "import paramiko"])
        .output();
    if !present.is_ok_and(|o| o.status.success()) {
        return skip("python3-paramiko is not installed");
    }
    let scratch = Folder::new().with_mode(0o777);
    let many = scratch.join("many");
    std::fs::create_dir(&many).unwrap();
    let count = 100_000;
    std::fs::write(many.join("one"), "x").unwrap();
    for n in 1..count {
        // Links to a few files: made quickly, and names all the same.
        let target = many.join(if n % 50_000 == 0 {
            format!("file{n}")
        } else {
            format!("file{}", n - n % 50_000)
        });
        if n % 50_000 == 0 || n == 1 {
            std::fs::write(many.join(format!("file{}", n - n % 50_000)), "xy").unwrap();
        }
        let name = many.join(format!("name{n}"));
        if std::fs::hard_link(&target, &name).is_err() {
            std::fs::write(&name, "xy").unwrap();
        }
    }
    let mut seen = Vec::new();
    for server in servers(&scratch) {
        let here = scratch.join("work");
        std::fs::create_dir(&here).unwrap();
        symlink(&many, here.join("many")).unwrap();
        let output = Command::new("/usr/bin/python3")
            .args(["-W", "ignore", "-c", SCRIPT, &server])
            .current_dir(&here)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{server}: {}", text(&output.stderr));
        let _ = std::fs::remove_file(here.join("sparse"));
        seen.push((text(&output.stdout), tree(&here)));
        std::fs::remove_dir_all(&here).unwrap();
    }
    for (theirs, ours) in seen[0].0.lines().zip(seen[1].0.lines()) {
        assert_eq!(theirs, ours, "OpenSSH's, then ours");
    }
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].0.contains("many 100"), "{}", seen[0].0);
}

/// The line of `ls -l`, name by name, as OpenSSH writes it: old and new dates, long names, every kind of file.
#[test]
fn long_names_are_openssh_s() {
    let scratch = Folder::new().with_mode(0o777);
    let dir = scratch.join("d");
    std::fs::create_dir(&dir).unwrap();
    for (n, (mode, owner, date)) in [
        (0o644, 0, "@0"),
        (0o4755, 1, "@951782400"),
        (0o2640, 54_321, "2 hours ago"),
        (0o1777, 2, "200 days ago"),
        (0o000, 65_534, "170 days ago"),
        (0o7000, 3, "1 day"),
        (0o600, 4_000_000_000, "@1583020799"),
    ]
    .iter()
    .enumerate()
    {
        let path = dir.join(format!("f{n}"));
        std::fs::write(&path, vec![b'x'; 10usize.pow(n as u32)]).unwrap();
        std::os::unix::fs::chown(&path, Some(*owner), Some(*owner)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(*mode)).unwrap();
        assert!(
            Command::new("touch")
                .args(["-d", date])
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
    }
    symlink("f0", dir.join("link")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(dir.join("pipe"))
            .status()
            .unwrap()
            .success()
    );
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    // Listing changes the directory's own time of access, unless that is younger than its last change already.
    assert!(
        Command::new("touch")
            .args(["-d", "@1000000000"])
            .arg(&dir)
            .status()
            .unwrap()
            .success()
    );
    assert!(std::fs::read_dir(&dir).unwrap().count() > 5);
    for zone in ["UTC", "Europe/Berlin", "America/St_Johns", "XYZ3:30"] {
        let listed: Vec<Vec<u8>> = [sftp::openssh(&[]), sftp::ours(&[])]
            .into_iter()
            .map(|mut command| {
                command.env("TZ", zone);
                let mut served = sftp::serve(command, &scratch);
                served.client.init();
                let handle = served.client.ask(kind::OPENDIR, &[s("d")]).handle();
                let answer = served.client.ask(kind::READDIR, &[S(&handle)]);
                served.end();
                answer.rest
            })
            .collect();
        let text = |n: usize| String::from_utf8_lossy(&listed[n]).into_owned();
        assert_eq!(text(0), text(1), "{zone}: OpenSSH's, then ours");
        assert_eq!(listed[0], listed[1]);
    }
}
