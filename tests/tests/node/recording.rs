//! Recorded sessions: everything that was shown is in the recording, and signed; nothing that was typed unseen; and a session
//! that must be recorded and cannot be does not run.

use fleetgate_policy::Recipient;
use fleetgate_record::age::{Identity, Keys};
use fleetgate_record::frame::Kind;
use fleetgate_tests::recording::{RECORDINGS, Recording, configuration, path, session};
use fleetgate_tests::service::{Manager, Service, audited, output, run, ssh};
use fleetgate_tests::world::wait_until;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// Recordings below this are what a transfer leaves, however large it is.
const SMALL: u64 = 100 << 10;

/// Ends it, and waits for that.
fn ends(service: Service) {
    service.signal(fleetgate_sys::signals::TERM);
    service.end();
}

#[test]
fn what_a_terminal_showed_is_recorded_and_signed() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let _service = manager.start(&configuration("sessions = \"output\""));
    let command = "printf 'first\\n'; sleep 0.3; printf '\\033[31mred\\033[0m \\303\\244\\n'; exit 3";
    let out = ssh("ada").args(["-tt", "gate", command]).output().expect("ssh");
    assert_eq!(out.status.code(), Some(3));
    let id = session(command);
    let recording = Recording::of(&id);
    let shown = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(recording.text(Kind::Output), shown);
    assert!(
        shown.contains("first\r\n\u{1b}[31mred\u{1b}[0m ä\r\n"),
        "{shown:?}"
    );
    let first = recording.json(Kind::Begin);
    assert_eq!(first["session"], id);
    assert_eq!(first["login"], "ada");
    assert_eq!(first["kind"], "exec");
    assert_eq!(first["command"], command);
    assert_eq!(first["recording"], "output");
    assert!(first["terminal"]["columns"].is_u64(), "{first}");
    assert_eq!(recording.json(Kind::End)["status"], 3);
    let at = |text: &str| {
        let is =
            |f: &&(Kind, u64, Vec<u8>)| f.0 == Kind::Output && String::from_utf8_lossy(&f.2).contains(text);
        recording.frames.iter().find(is).expect("recorded").1
    };
    let passed = at("red") - at("first");
    assert!((100_000..5_000_000).contains(&passed), "{passed} us");
    // Nobody but root reads it.
    let path = path(&id);
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().expect("a day")), 0o700);
    assert!(!path.with_extension("tail").exists());
}

#[test]
fn an_encrypted_recording_has_nothing_readable_on_the_disk_and_opens_with_its_key() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let identity = Identity::new([0x5a; 32]);
    let recipient = Recipient(identity.recipient()).to_string();
    let _service = manager.start(&configuration(&format!(
        "sessions = \"full\"\nrecipients = [\"{recipient}\"]"
    )));
    // The word is put together by the session, so that no command line has it.
    let command = "echo so-nobody-$((40 + 2))-reads; read -r line";
    let mut client = ssh("ada")
        .args(["-tt", "gate", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("ssh");
    let id = session(command);
    let path = path(&id);
    let tail = path.with_extension("tail");
    let bytes = |path: &std::path::Path| std::fs::read(path).unwrap_or_default();
    wait_until("the word is in the tail", || bytes(&tail).len() > 200);
    let has = |bytes: &[u8], word: &str| bytes.windows(word.len()).any(|at| at == word.as_bytes());
    for file in [&tail, &path] {
        assert!(!has(&bytes(file), "so-nobody-42-reads"), "{}", file.display());
    }
    client
        .stdin
        .take()
        .expect("piped")
        .write_all(b"typed\n")
        .expect("it reads");
    assert!(client.wait().expect("it ends").success());
    audited("the recording is whole", |event| {
        event["event"] == "recorded" && event["session"] == id
    });
    assert!(!has(&bytes(&path), "so-nobody-42-reads"));
    let recording = Recording::read_with(&path, Keys::new(vec![identity]));
    assert!(recording.text(Kind::Output).contains("so-nobody-42-reads"));
    assert_eq!(recording.text(Kind::Input), "typed\n");
    assert_eq!(
        recording.json(Kind::Begin)["recipients"],
        serde_json::json!([recipient])
    );
    let closed = Recording::read(&path);
    let kinds: Vec<Kind> = closed.frames.iter().map(|f| f.0).collect();
    assert_eq!(kinds, [Kind::Begin, Kind::End]);
    assert_eq!((closed.blocks, closed.chain), (recording.blocks, recording.chain));
}

#[test]
fn a_large_transfer_leaves_a_small_recording() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let _service = manager.start(&configuration("sessions = \"full\""));
    let command = "cat; head -c 30000000 /dev/urandom; echo told >&2";
    let mut client = ssh("ada")
        .args(["gate", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ssh");
    let mut input = client.stdin.take().expect("piped");
    let feeding = std::thread::spawn(move || input.write_all(&vec![b'i'; 3_000_000]));
    let out = client.wait_with_output().expect("it ends");
    feeding.join().expect("no panic").expect("it reads");
    assert!(out.status.success());
    assert_eq!(out.stdout.len(), 33_000_000);
    let recording = Recording::of(&session(command));
    assert!(recording.length < 2 * SMALL, "{} bytes", recording.length);
    assert_eq!(recording.text(Kind::Stderr), "told\n");
    for (kind, all) in [(Kind::Stdout, 33_000_000_u64), (Kind::Stdin, 3_000_000)] {
        let recorded: usize = recording
            .frames
            .iter()
            .filter(|f| f.0 == kind)
            .map(|f| f.2.len())
            .sum();
        // And what a minute adds, of the seconds that it took.
        assert!((64 << 10..80 << 10).contains(&recorded), "{recorded}");
        let omitted = recording.frames.iter().find_map(|(of, at, bytes)| {
            let frame = fleetgate_record::frame::Frame {
                kind: *of,
                at: *at,
                bytes,
            };
            frame.omitted().filter(|(of, _)| *of == kind)
        });
        assert_eq!(omitted, Some((kind, all - recorded as u64)));
    }
}

#[test]
fn what_is_typed_is_recorded_where_that_is_wanted_and_no_password() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let _service = manager.start(&configuration("sessions = \"full\""));
    let command =
        "stty -echo; echo pass:; read -r p; stty echo; echo name:; read -r n; echo $n $p | tr a-z A-Z";
    let mut client = ssh("ada")
        .args(["-tt", "gate", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ssh");
    let mut input = client.stdin.take().expect("piped");
    let mut said = std::io::BufRead::lines(std::io::BufReader::new(client.stdout.take().expect("piped")));
    let mut until = |word: &str| {
        said.by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains(word))
    };
    assert!(until("pass:"));
    input.write_all(b"hunter2\r").expect("it reads");
    assert!(until("name:"));
    input.write_all(b"smith\r").expect("it reads");
    assert!(until("SMITH HUNTER2"));
    assert!(client.wait().expect("it ends").success());
    let recording = Recording::of(&session(command));
    assert_eq!(recording.text(Kind::Input), "smith\r");
    let hidden: Vec<_> = recording.frames.iter().filter(|f| f.0 == Kind::Hidden).collect();
    let count: u64 = hidden
        .iter()
        .map(|f| u64::from_le_bytes(f.2[..].try_into().expect("a number")))
        .sum();
    assert_eq!(count, 8);
    let raw = std::fs::read(path(&session(command))).expect("there");
    assert!(!raw.windows(7).any(|w| w == b"hunter2"));
}

#[test]
fn file_transfers_have_their_operations_recorded() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let _service = manager.start(&configuration("sessions = \"output\""));
    std::fs::write("/run/test/sent", vec![7; 200_000]).expect("written");
    let mut sftp = std::process::Command::new("sftp");
    sftp.args(["-F", "/run/test/config", "-b", "-", "ada@gate"])
        .env("HOME", "/run/home/root")
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut child = sftp.spawn().expect("sftp");
    let mut batch = child.stdin.take().expect("piped");
    batch
        .write_all(b"put /run/test/sent moved\nrename moved there\nrm there\n")
        .expect("it reads");
    drop(batch);
    assert!(child.wait().expect("it ends").success());
    let started = audited("the transfer begins", |event| {
        event["event"] == "session_started" && event["kind"] == "sftp"
    });
    assert_eq!(started["recording"], "output");
    let recording = Recording::of(&started["session"]);
    let operations: Vec<String> = recording
        .frames
        .iter()
        .filter(|f| f.0 == Kind::Event)
        .map(|f| serde_json::from_slice::<serde_json::Value>(&f.2).expect("JSON"))
        .map(|event| event["operation"].as_str().unwrap_or("?").to_owned())
        .collect();
    for operation in ["open", "close", "rename", "remove"] {
        assert!(operations.contains(&operation.to_owned()), "{operations:?}");
    }
    assert!(recording.length < SMALL);
}

#[test]
fn a_session_that_cannot_be_recorded_does_not_run_or_says_so() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    // A file is where the directory should be.
    std::fs::write(RECORDINGS, "").expect("written");
    let service = manager.start(&configuration("sessions = \"output\""));
    let out = ssh("ada").args(["gate", "echo ran"]).output().expect("ssh");
    assert_eq!(out.status.code(), Some(255));
    assert_eq!(out.stdout, b"");
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        why.contains("the session has to be recorded, and cannot be"),
        "{why}"
    );
    audited("the refusal is told", |event| {
        event["event"] == "session_refused"
            && event["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("recorded"))
    });
    assert!(service.log().contains(RECORDINGS), "{}", service.log());
    ends(service);

    let service = manager.start(&configuration("sessions = \"output\"\non_failure = \"go-on\""));
    assert_eq!(run("ada", "echo went on"), "went on\n");
    let started = audited("it is told", |event| {
        event["event"] == "session_started" && event["recorded"] == false
    });
    assert!(
        started["reason"]
            .as_str()
            .is_some_and(|why| why.contains(RECORDINGS)),
        "{started}"
    );
    ends(service);
    std::fs::remove_file(RECORDINGS).expect("removed");

    let _service = manager.start(&configuration("sessions = \"output\""));
    output(ssh("ada").args(["gate", "echo ran again"]));
    Recording::of(&session("echo ran again"));
}

#[test]
fn a_full_directory_is_said_and_nobody_is_rid_of_what_was_recorded() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let settings = configuration("sessions = \"output\"\nmax_size = \"20K\"");
    let service = manager.start(&settings);
    output(ssh("ada").args(["gate", "echo evidence"]));
    let id = session("echo evidence");
    Recording::of(&id);
    ends(service);
    // As others would fill it.
    std::fs::write(path(&id).with_file_name("filler.rec"), vec![0; 30_000]).expect("written");

    let service = manager.start(&settings);
    wait_until("it is said", || {
        service.log().contains("holds more than recording.max_size")
    });
    let out = ssh("ada").args(["gate", "echo ran"]).output().expect("ssh");
    assert_eq!((out.status.code(), &out.stdout[..]), (Some(255), &b""[..]));
    assert!(service.log().contains("raise max_size"), "{}", service.log());
    Recording::read(&path(&id));
}
