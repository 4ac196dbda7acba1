//! Login records in wtmpdb's database, read back by SQLite's own program. Each test has its own /var/lib, in a mount
//! namespace that ends with the writer. libwtmpdb's part is played by a library made here from the documented
//! prototypes; the real one is not in Debian 12.

use fleetgate_tests::folder::Folder;
use fleetgate_tests::networking::text;
use fleetgate_tests::{fleetgate, needs_root};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const LOGIN: &[&str] = &[
    "1700000000000001",
    "alice",
    "/dev/pts/3",
    "192.0.2.7",
    "fleetgate",
];

/// A machine of the test's own: `lib` is its /var/lib.
struct Machine {
    dir: Folder,
}

impl Machine {
    /// With wtmpdb's directory, or without; never with its library.
    fn new(wtmpdb: bool) -> Machine {
        let machine = Machine {
            dir: Folder::owned(0o755, 0),
        };
        std::fs::create_dir_all(machine.dir.join("lib")).expect("mkdir");
        std::fs::create_dir_all(machine.dir.join("libraries")).expect("mkdir");
        // What the loader finds first is no library: so one that is installed here is not used.
        std::fs::write(machine.dir.join("libraries/libwtmpdb.so.0"), "").expect("write");
        if wtmpdb {
            std::fs::create_dir(machine.dir.join("lib/wtmpdb")).expect("mkdir");
        }
        machine
    }
    fn database(&self) -> PathBuf {
        self.dir.join("lib/wtmpdb/wtmp.db")
    }
    fn state(&self) -> PathBuf {
        self.dir.join("run/session")
    }
    fn writer(&self, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        let mount = format!(
            "mount --bind '{}' /var/lib && exec \"$@\"",
            text(&self.dir.join("lib"))
        );
        command.args(["--mount", "sh", "-ec", &mount, "sh"]);
        command.arg(fleetgate()).arg("wtmpdb").args(words);
        command.env("LD_LIBRARY_PATH", self.dir.join("libraries"));
        command
    }
    fn run(&self, words: &[&str]) -> Output {
        self.writer(words).output().expect("the writer runs")
    }
    fn login(&self) -> Output {
        self.run(&[&["login", &text(&self.state())], LOGIN].concat())
    }
    fn logout(&self, at: &str) -> Output {
        self.run(&["logout", &text(&self.state()), at])
    }
    fn sqlite(&self, query: &str) -> String {
        let out = Command::new("sqlite3")
            .arg(self.database())
            .arg(query)
            .output()
            .expect("sqlite3 runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text").trim_end().to_owned()
    }
    /// All rows as wtmpdb reads them.
    fn rows(&self) -> String {
        self.sqlite("SELECT ID, Type, User, Login, ifnull(Logout, 'open'), TTY, ifnull(RemoteHost, 'none'), Service FROM wtmp")
    }
}

fn fine(out: Output) {
    assert_eq!(
        out.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(out.stderr.is_empty() && out.stdout.is_empty());
}

fn refused(out: Output, code: i32, says: &str) {
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{said}");
    assert!(said.contains(says), "{said}");
}

#[test]
fn rows_are_read_back() {
    needs_root!("a mount namespace");
    let machine = Machine::new(true);
    fine(machine.login());
    assert_eq!(
        machine.rows(),
        "1|3|alice|1700000000000001|open|pts/3|192.0.2.7|fleetgate"
    );
    // The very table that wtmpdb makes.
    assert_eq!(
        machine.sqlite("SELECT sql FROM sqlite_master WHERE name = 'wtmp'"),
        "CREATE TABLE wtmp(ID INTEGER PRIMARY KEY, Type INTEGER, User TEXT NOT NULL, Login INTEGER, Logout INTEGER, \
         TTY TEXT, RemoteHost TEXT, Service TEXT) STRICT"
    );
    let found = std::fs::metadata(machine.database()).expect("the database");
    assert_eq!((found.mode() & 0o7777, found.uid()), (0o644, 0));
    let state = std::fs::metadata(machine.state()).expect("the state file");
    assert_eq!((state.mode() & 0o7777, state.uid()), (0o600, 0));
    let run = std::fs::metadata(machine.dir.join("run")).expect("its directory");
    assert_eq!(run.permissions().mode() & 0o7777, 0o700);
    // Told twice, written once.
    fine(machine.login());
    fine(machine.logout("1700000009000002"));
    let closed = "1|3|alice|1700000000000001|1700000009000002|pts/3|192.0.2.7|fleetgate";
    assert_eq!(machine.rows(), closed);
    assert!(!machine.state().exists());
    fine(machine.logout("1800000000000000"));
    assert_eq!(machine.rows(), closed);
}

#[test]
fn a_session_without_a_host_and_a_second_one() {
    needs_root!("a mount namespace");
    let machine = Machine::new(true);
    for session in ["one", "two"] {
        let state = text(&machine.dir.join(session));
        fine(machine.run(&["login", &state, "5", "bob", "ssh:notty", "", session]));
    }
    fine(machine.run(&["logout", &text(&machine.dir.join("two")), "6"]));
    assert_eq!(
        machine.rows(),
        "1|3|bob|5|open|ssh:notty|none|one\n2|3|bob|5|6|ssh:notty|none|two"
    );
}

#[test]
fn without_wtmpdb_nothing_is_written() {
    needs_root!("a mount namespace");
    let machine = Machine::new(false);
    fine(machine.login());
    fine(machine.logout("1700000009000002"));
    assert!(!machine.dir.join("lib/wtmpdb").exists() && !machine.dir.join("run").exists());
}

#[test]
fn what_a_crash_leaves_is_mended() {
    needs_root!("a mount namespace");
    let machine = Machine::new(true);
    fine(machine.login());
    // Between row and state file: told again, it finds its row.
    std::fs::remove_file(machine.state()).expect("removed");
    fine(machine.login());
    assert_eq!(machine.sqlite("SELECT count(*) FROM wtmp"), "1");
    // Between state file and row: told again, it writes the row.
    std::fs::write(machine.state(), "wtmpdb-row 99 1700000000000001\n").expect("write");
    machine.sqlite("DELETE FROM wtmp");
    fine(machine.login());
    assert_eq!(machine.sqlite("SELECT count(*) FROM wtmp"), "1");
    // The number went to somebody else meanwhile: his row is left alone.
    machine.sqlite("UPDATE wtmp SET User = 'mallory', Login = 7");
    refused(machine.logout("1700000009000002"), 1, "no row 1 of this login");
    assert_eq!(
        machine.sqlite("SELECT User, Logout IS NULL FROM wtmp"),
        "mallory|1"
    );
    assert!(!machine.state().exists());
    // Whatever else stands there is not believed, and not removed.
    for garbage in [
        "",
        "wtmpdb-row 1\n",
        "wtmpdb-row x 1\n",
        "wtmpdb-row 1 1",
        "wtmpdb-row 1 1 1\n",
        "\u{0}",
    ] {
        std::fs::write(machine.state(), garbage).expect("write");
        refused(machine.logout("8"), 1, "was not written by wtmpdb login");
        assert!(machine.state().exists());
    }
}

#[test]
fn a_busy_database_is_waited_for() {
    needs_root!("a mount namespace");
    let machine = Machine::new(true);
    fine(machine.login());
    let mut holder = Command::new("sqlite3")
        .arg(machine.database())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sqlite3 runs");
    let mut say = holder.stdin.take().expect("its input");
    say.write_all(b"BEGIN EXCLUSIVE; SELECT 'held';\n").expect("said");
    let mut line = String::new();
    let mut hear = BufReader::new(holder.stdout.take().expect("its output"));
    hear.read_line(&mut line).expect("heard");
    assert_eq!(line, "held\n");
    // Held all the time: told so, and the state stays for another try.
    refused(machine.logout("9"), 1, "was locked by another program");
    assert!(machine.state().exists());
    // Given back while it waits: done.
    let waiting = machine
        .writer(&["logout", &text(&machine.state()), "9"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the writer runs");
    say.write_all(b"COMMIT;\n").expect("said");
    fine(waiting.wait_with_output().expect("it ends"));
    assert_eq!(machine.sqlite("SELECT Logout FROM wtmp"), "9");
    drop(say);
    assert!(holder.wait().expect("it ends").success());
}

#[test]
fn writers_at_once_do_not_lose_rows() {
    needs_root!("a mount namespace");
    let machine = Machine::new(true);
    let writers: Vec<_> = (0..8)
        .map(|i| {
            let (state, tty) = (text(&machine.dir.join(format!("s{i}"))), format!("pts/{i}"));
            machine
                .writer(&["login", &state, "5", "bob", &tty, "h", "fleetgate"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the writer runs")
        })
        .collect();
    for writer in writers {
        fine(writer.wait_with_output().expect("it ends"));
    }
    assert_eq!(
        machine.sqlite("SELECT count(DISTINCT TTY), count(*) FROM wtmp"),
        "8|8"
    );
}

/// As wtmpdb.h declares them; writes what it is told into the file that the environment names.
const LIBRARY: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static FILE *told (void) { return fopen (getenv ("TOLD"), "a"); }
int64_t wtmpdb_login (const char *db_path, int type, const char *user, uint64_t usec_login, const char *tty,
                      const char *rhost, const char *service, char **error)
{
  FILE *f = told ();
  if (strcmp (user, "nobody") == 0) { *error = strdup ("the disk is on fire"); return -1; }
  fprintf (f, "login %s %d %s %llu %s %s %s\n", db_path ? db_path : "default", type, user,
           (unsigned long long) usec_login, tty, rhost ? rhost : "none", service);
  fclose (f);
  return 4000000000LL;
}
int wtmpdb_logout (const char *db_path, int64_t id, uint64_t usec_logout, char **error)
{
  FILE *f = told ();
  fprintf (f, "logout %s %lld %llu\n", db_path ? db_path : "default", (long long) id, (unsigned long long) usec_logout);
  fclose (f);
  return 0;
}
"#;

#[test]
fn the_library_does_it_where_it_is_installed() {
    needs_root!("a mount namespace");
    let machine = Machine::new(true);
    let (source, told) = (machine.dir.join("library.c"), machine.dir.join("told"));
    std::fs::write(&source, LIBRARY).expect("write");
    let cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(machine.dir.join("libraries/libwtmpdb.so.0"))
        .arg(&source)
        .status();
    assert!(cc.expect("cc runs").success());
    let run = |words: &[&str]| {
        machine
            .writer(words)
            .env("TOLD", &told)
            .output()
            .expect("the writer runs")
    };
    let state = text(&machine.state());
    fine(run(&[&["login", &state], LOGIN].concat()));
    fine(run(&[&["login", &state], LOGIN].concat()));
    fine(run(&["logout", &state, "1700000009000002"]));
    fine(run(&["login", &state, "5", "bob", "pts/1", "", "fleetgate"]));
    assert_eq!(
        std::fs::read_to_string(&told).expect("told"),
        "login default 3 alice 1700000000000001 pts/3 192.0.2.7 fleetgate\n\
         logout default 4000000000 1700000009000002\n\
         login default 3 bob 5 pts/1 none fleetgate\n"
    );
    assert!(!machine.database().exists(), "the library's business");
    fine(run(&["logout", &state, "6"]));
    refused(
        run(&["login", &state, "5", "nobody", "pts/1", "", "fleetgate"]),
        1,
        "the disk is on fire",
    );
    assert!(!machine.state().exists());
}

#[test]
fn bad_arguments_are_named() {
    needs_root!("a mount namespace");
    let machine = Machine::new(true);
    let long = "x".repeat(1025);
    let cases: &[(&[&str], &str)] = &[
        (&[], "not understood"),
        (&["login"], "not understood"),
        (&["boot", "/s", "1"], "not understood"),
        (&["logout", "relative", "1"], "not absolute"),
        (&["logout", "/s", "-1"], "no time"),
        (&["logout", "/s", "9223372036854775808"], "no time"),
        (&["login", "/s", "1", &long, "t", "h", "s"], "the user is longer"),
    ];
    for (words, says) in cases {
        refused(machine.run(words), 2, says);
    }
    assert!(!machine.database().exists());
}
