//! Recordings on the disk: what is written is read, what a killed proxy left is finished, and nothing grows without bounds.

use super::*;
use crate::audit::{Events, audit};
use fleetgate_policy::Recording;
use fleetgate_policy::cluster::Labels;
use fleetgate_record::frame::Kind;
use fleetgate_record::reader::{Content, Reader};
use fleetgate_ssh::event::Stream;
use fleetgate_ssh::key::KeyType;
use fleetgate_ssh::sshsig;
use std::fs::{self, File};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::task::Poll;
use std::time::Duration;

/// A state directory of a test's own.
pub(crate) fn fresh_state() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let state = std::env::temp_dir().join(format!(
        "fleetgate-proxy-recordings-{}-{number}",
        std::process::id()
    ));
    let _ = fs::remove_dir_all(&state);
    fs::create_dir_all(&state).expect("made");
    state
}

/// Records there.
pub(crate) fn recorder(state: &Path) -> Recorder {
    bounded(state, 0).0
}

pub(crate) fn bounded(state: &Path, most: u64) -> (Recorder, Events) {
    let (audit, events) = audit("edge");
    let key = HostKey::generate(KeyType::Ed25519, "test").expect("made").0;
    (Recorder::new(state, most, Arc::new(key), Arc::new(audit)), events)
}

/// The recordings there are.
pub(crate) fn files(state: &Path, ending: &str) -> Vec<PathBuf> {
    let days = fs::read_dir(state.join(RECORDINGS))
        .into_iter()
        .flatten()
        .flatten();
    let all = days.flat_map(|day| fs::read_dir(day.path()).expect("a day").flatten());
    let mut found: Vec<PathBuf> = all
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect();
    found.sort();
    found
}

/// The frames of a recording that is whole, and signed to its end.
pub(crate) fn frames(path: &Path) -> Vec<(Kind, String)> {
    let mut reader = Reader::new(File::open(path).expect("it is there")).expect("a recording");
    let (mut frames, mut signed) = (Vec::new(), 0);
    while let Some(block) = reader.next_block().expect("no fault") {
        if let Content::Signature {
            statement,
            signature: blob,
        } = &block.content
        {
            sshsig::verify(blob, signature::NAMESPACE, statement.text().as_bytes()).expect("rightly signed");
            signed = statement.blocks;
        }
        for frame in block.frames() {
            let frame = frame.expect("a frame");
            frames.push((frame.kind, String::from_utf8_lossy(frame.bytes).into_owned()));
        }
    }
    assert_eq!(
        signed + 1,
        reader.blocks(),
        "the last signature covers everything"
    );
    assert_eq!(frames.last().map(|(kind, _)| *kind), Some(Kind::End));
    frames
}

fn first_frame(number: u8) -> FirstFrame<'static> {
    static LABELS: OnceLock<Labels> = OnceLock::new();
    FirstFrame {
        session: [number; 16],
        node: "old1",
        proxy: "edge",
        user: "ada",
        login: "root",
        client: "192.0.2.7:4000",
        kind: "exec",
        command: b"uptime",
        terminal: None,
        recording: Recording::Full,
        recipients: &[],
        roles: &[],
        keep: Some(Duration::from_secs(86_401)),
        labels: LABELS.get_or_init(|| Labels::of([("env", "prod")]).expect("labels")),
    }
}

pub(crate) async fn begin(recorder: &Recorder, number: u8) -> Result<Tap, String> {
    let opening = recorder.begin(&first_frame(number), serde_json::json!({"node": "old1"}))?;
    opening.opened.await.expect("an answer")?;
    Ok(opening.tap)
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(test());
}

async fn poll_once(tap: &mut Tap) -> Result<bool, String> {
    std::future::poll_fn(|cx| Poll::Ready(tap.poll(cx))).await
}

/// What was told of recordings.
fn told(events: &mut Events) -> Vec<Value> {
    let mut told = Vec::new();
    while let Ok(line) = events.from_all.try_recv() {
        told.push(serde_json::from_str(&line).expect("JSON"));
    }
    told
}

/// Waits until the thread that synchronises has done so.
async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn what_passed_is_in_the_recording_and_no_more_of_a_stream_than_its_limit() {
    run(async || {
        let state = fresh_state();
        let (recorder, mut events) = bounded(&state, 0);
        let mut tap = begin(&recorder, 1).await.expect("begun");
        tap.event("{\"event\":\"session_started\"}\n");
        tap.typed(b"typed");
        tap.output(Stream::Main, &[b'x'; 100_000]);
        tap.output(Stream::Stderr, b"wrong");
        tap.end(end(Some(3), None));
        recorder.settle().await;
        let paths = files(&state, "rec");
        let frames = frames(&paths[0]);
        let of = |kind: Kind| -> String {
            let of_it = frames.iter().filter(|(k, _)| *k == kind);
            of_it.map(|(_, text)| text.as_str()).collect()
        };
        let begin: Value = serde_json::from_str(&of(Kind::Begin)).expect("JSON");
        let fields = ["node", "proxy", "user", "login", "kind", "command", "recording"];
        assert_eq!(
            fields.map(|field| begin[field].as_str().unwrap_or_default()),
            ["old1", "edge", "ada", "root", "exec", "uptime", "full"]
        );
        assert_eq!(begin["session"], "01".repeat(16));
        assert_eq!(
            (&begin["keep_days"], &begin["labels"]["env"]),
            (&2.into(), &"prod".into())
        );
        assert_eq!(
            (of(Kind::Stdin), of(Kind::Stderr)),
            ("typed".into(), "wrong".into())
        );
        assert_eq!(of(Kind::Stdout).len(), 64 << 10);
        assert_eq!(of(Kind::Event), "{\"event\":\"session_started\"}");
        assert!(
            of(Kind::Omitted).starts_with('\u{4}'),
            "how much of stdout is not there"
        );
        assert!(of(Kind::End).contains("\"status\":3"));
        let told = told(&mut events);
        assert_eq!((told.len(), &told[0]["event"]), (1, &"recorded".into()));
        assert_eq!(told[0]["bytes"], fs::metadata(&paths[0]).expect("there").len());
        assert_eq!(told[0]["session"], "01".repeat(16));
        until(|| files(&state, "tail").is_empty()).await;
        assert_eq!(
            lock(&recorder.spool().ended).iter().collect::<Vec<_>>(),
            [&paths[0]]
        );
        fs::remove_dir_all(&state).expect("removed");
    });
}

#[test]
fn what_a_killed_proxy_left_is_finished_and_what_another_one_makes_is_left_alone() {
    run(async || {
        let (state, next) = (fresh_state(), fresh_state());
        let (first, _events) = bounded(&state, 0);
        let mut tap = begin(&first, 2).await.expect("begun");
        tap.output(Stream::Main, b"before the kill");
        first.settle().await;
        // As the disk is at a kill.
        for path in files(&state, "rec").iter().chain(&files(&state, "tail")) {
            let to = next.join(path.strip_prefix(&state).expect("below it"));
            fs::create_dir_all(to.parent().expect("a day")).expect("made");
            fs::copy(path, to).expect("copied");
        }
        let (second, mut events) = bounded(&next, 0);
        second.look();
        let path = &files(&next, "rec")[0];
        let frames = frames(path);
        assert!(
            frames.contains(&(Kind::Stdout, "before the kill".to_owned())),
            "{frames:?}"
        );
        assert!(
            frames
                .last()
                .is_some_and(|(_, json)| json.contains("\"recovered\":true"))
        );
        let told = told(&mut events);
        assert_eq!(
            (&told[0]["event"], &told[0]["recovered"]),
            (&"recorded".into(), &true.into())
        );
        assert!(files(&next, "tail").is_empty());
        assert_eq!(lock(&second.spool().ended).len(), 1);
        // The same directory as another process sees it.
        recorder(&state).look();
        assert_eq!(files(&state, "tail").len(), 1, "it is locked");
        drop(tap);
        for state in [state, next] {
            fs::remove_dir_all(&state).expect("removed");
        }
    });
}

#[test]
fn a_directory_that_is_full_takes_no_more_and_one_session_does_not_fill_it() {
    run(async || {
        let state = fresh_state();
        let (recorder, _events) = bounded(&state, 1 << 20);
        let frame = FirstFrame {
            terminal: Some(&Terminal::default()),
            ..first_frame(3)
        };
        let mut tap = recorder.begin(&frame, serde_json::json!({})).expect("begun").tap;
        assert_eq!(poll_once(&mut tap).await, Ok(false));
        // A tenth of it, of what does not compress.
        let mut noise = vec![0; 60 << 10];
        for _ in 0..3 {
            noise
                .iter_mut()
                .for_each(|byte| *byte = fleetgate_net::backoff::random().to_le_bytes()[0]);
            tap.output(Stream::Main, &noise);
        }
        recorder.settle().await;
        let why = poll_once(&mut tap).await.expect_err("it is too large");
        assert!(why.contains("a tenth of recordings_size"), "{why}");
        tap.give_up();
        recorder.spool().bytes.store(1 << 20, Relaxed);
        let why = begin(&recorder, 4).await.expect_err("it is full");
        assert!(why.contains("raise recordings_size"), "{why}");
        recorder.spool().bytes.store(0, Relaxed);
        recorder.spool().files.store(MAX_FILES.into(), Relaxed);
        let why = begin(&recorder, 4).await.expect_err("too many");
        assert!(why.contains("8192 recordings wait"), "{why}");
        // What was given up is finished like any other.
        recorder.settle().await;
        recorder.look();
        frames(&files(&state, "rec")[0]);
        begin(&recorder, 4).await.expect("counted anew");
        fs::remove_dir_all(&state).expect("removed");
    });
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_with_its_name() {
    run(async || {
        let state = fresh_state();
        fs::write(state.join(RECORDINGS), "in the way").expect("written");
        let why = begin(&recorder(&state), 5).await.expect_err("no directory");
        assert!(why.contains(RECORDINGS), "{why}");
        fs::remove_dir_all(&state).expect("removed");
    });
}

#[test]
fn a_session_waits_while_its_recording_is_behind() {
    run(async || {
        let (work, jobs) = std::sync::mpsc::channel();
        let line = Arc::new(Line::default());
        let frame = FirstFrame {
            terminal: Some(&Terminal::default()),
            ..first_frame(6)
        };
        let mut tap = Tap::new(work, line.clone(), &frame);
        tap.output(Stream::Main, &vec![b'x'; MAX_WAITING]);
        assert_eq!(poll_once(&mut tap).await, Ok(false), "control");
        tap.output(Stream::Main, b"more");
        assert_eq!(poll_once(&mut tap).await, Ok(true));
        // It is woken when there is room, and when it fails.
        for (does, awaited) in [(true, Ok(false)), (false, Err("a disk".to_owned()))] {
            let line = line.clone();
            let other = std::thread::spawn(move || match does {
                true => line.done(4),
                false => line.fail("a disk".to_owned()),
            });
            let changed = std::future::poll_fn(|cx| match tap.poll(cx) {
                now if now == awaited => Poll::Ready(()),
                _ => Poll::Pending,
            });
            changed.await;
            other.join().expect("no panic");
        }
        drop(jobs);
    });
}
