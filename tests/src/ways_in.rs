//! Ways in and rules, as tables: a configuration, what stands before a try, the try with a real client, what comes of
//! it, and what the audit log has of it. One server goes through a table after the other, by reloads. Where sshd has the
//! same rule a table says how sshd is told, and `FLEETGATE_INTEROP=both` holds sshd to the same outcomes: they are its.
//! Nothing here decides what is right.

use crate::peer::{Subject, World, subjects};
use crate::service::forgiving;
use crate::service::{Manager, Service, audit};
use fleetgate_sys::signals;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A try: what is done before it, the try itself (bash after `tests/peers/prelude.sh`), its exit code and output, and what
/// is told of it.
///
/// The outcome may hold `*`. What is told: `EVENT WORDS` in the audit log, `log WORDS` in the node's log; a `!` before it
/// says that there is none. Only the node is asked what it tells.
pub type Case = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// Tries under one configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Table {
    /// Done once, before the configuration is read.
    pub before: &'static str,
    /// Of `node.toml`, beside what every table has.
    pub node: &'static str,
    /// The same for sshd; none: it has no such rule.
    pub sshd: Option<&'static str>,
    /// The tries.
    pub cases: &'static [Case],
}

/// What every node is told. Only a table's own lines say who comes in.
const NODE: &str = "host_keys = [\"/run/test/host_ed25519\"]
audit_log = \"/run/test/audit.jsonl\"
";

/// What every sshd is told.
const SSHD: &str = "ListenAddress 127.0.0.1:2222
HostKey /run/test/host_ed25519
AcceptEnv LANG LC_* COLORTERM NO_COLOR
Subsystem sftp /usr/lib/openssh/sftp-server
PidFile none
UseDNS no
PerSourcePenalties no
";

/// What cases use beside the prelude.
const WORDS: &str = include_str!("../scripts/ways_in.sh");

/// The servers' world, and the one that runs.
struct Gate {
    subject: Subject,
    manager: Option<Manager>,
    running: Option<Running>,
    _world: World,
}

enum Running {
    Node(Service),
    Sshd(Child),
}

/// Goes through all tables with every server of this run, and names every case that came out otherwise. `FLEETGATE_ROW`
/// leaves only the cases that hold it.
pub fn drive(tables: &[Table]) {
    if !crate::is_root() {
        return crate::skip("a network and accounts of its own need root");
    }
    // sshd only where all of its rows are asked for.
    let rivals = subjects()
        .into_iter()
        .filter(|(s, most)| *s == Subject::Sshd && *most > 1)
        .map(|(s, _)| s);
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let mut wrong = Vec::new();
    // A thread has one world.
    for subject in rivals.chain([Subject::Node]) {
        let thread = std::thread::Builder::new().name(name.clone());
        std::thread::scope(|scope| {
            let thread = thread.spawn_scoped(scope, || drive_one(subject, tables));
            wrong.extend(thread.expect("a thread").join().expect("its assertions"));
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The cases that came out otherwise with this server.
fn drive_one(subject: Subject, tables: &[Table]) -> Vec<String> {
    let only = std::env::var("FLEETGATE_ROW").unwrap_or_default();
    let mut wrong = Vec::new();
    let mut gate = Gate::new(subject);
    for table in tables {
        if !gate.open(table) {
            continue;
        }
        for case in table.cases {
            let wanted = case.0.contains(&only) || case.1.contains(&only);
            if wanted && let Err(why) = gate.tried(case) {
                let (before, ask, ..) = case;
                wrong.push(format!(
                    "{subject:?}: [{}] {before}; {ask}\n{why}",
                    table.node.trim()
                ));
            }
        }
    }
    if let Err(why) = gate.schema() {
        wrong.push(why);
    }
    wrong
}

impl Gate {
    fn new(subject: Subject) -> Gate {
        let world = World::new();
        for path in ["/run/test/config", "/run/test/bare"] {
            let config = std::fs::read_to_string(path).expect("the world's");
            // The client's own choice costs it a tenth of a second more.
            let config = format!("{config}    KexAlgorithms curve25519-sha256\n");
            std::fs::write(path, config).expect("write");
        }
        Gate {
            subject,
            manager: (subject == Subject::Node).then(|| Manager::new(&world)),
            running: None,
            _world: world,
        }
    }

    /// The server is told; false: it has no such rule.
    fn open(&mut self, table: &Table) -> bool {
        let Some(manager) = &self.manager else {
            return table.sshd.is_some_and(|lines| {
                drop(self.running.take());
                shell(table.before);
                self.running = Some(Running::Sshd(sshd(lines)));
                true
            });
        };
        shell(table.before);
        let config = forgiving(&format!("{NODE}{}\n", table.node));
        // Where the metrics are is read at the start only.
        if table.node.contains("metrics") {
            self.running = None;
        }
        if let Some(Running::Node(service)) = &self.running {
            std::fs::write("/run/test/service.toml", &config).expect("write");
            service.signal(signals::HUP);
            manager.hear("RELOADING=1", service);
            let said = manager.hear("READY=1", service);
            let status = "the old configuration stays";
            assert!(!said.contains(status), "{}: {said}", table.node);
        } else {
            self.running = Some(Running::Node(manager.start(&config)));
        }
        true
    }

    fn log(&self) -> String {
        match &self.running {
            Some(Running::Node(service)) => service.log(),
            _ => String::new(),
        }
    }

    fn tried(&self, case: &Case) -> Result<(), String> {
        let (before, ask, wanted, tells) = case;
        let (told, log) = (audit().len(), self.log());
        let (logged, begun) = (log.len(), connections(&log));
        let (code, said) = shell_of(
            &format!("{before}\nset +e +o pipefail\n{{ {ask}\n}} > out"),
            self.subject,
        );
        let got = format!("{code} {}", said.trim());
        let mut wrong = Vec::new();
        if !matches(wanted.trim(), got.trim()) {
            wrong.push(format!("  got    {got:?}\n  wanted {wanted:?}"));
        }
        let news = || {
            // What is told of the case before may come after it.
            let ours = |e: &Value| e["connection"].as_u64().is_none_or(|number| number > begun);
            let events = audit().into_iter().skip(told).filter(ours).map(|e| e.to_string());
            let log = self.log();
            let lines = log
                .get(logged..)
                .unwrap_or_default()
                .lines()
                .map(|l| format!("log {l}"));
            events.chain(lines).collect::<Vec<String>>()
        };
        let holds = |wanted: &str, news: &[String]| {
            let (kind, words) = wanted.split_once(' ').unwrap_or((wanted, ""));
            let kind = match kind {
                "log" => "log ".to_owned(),
                event => format!("\"event\":\"{event}\""),
            };
            news.iter()
                .any(|line| line.contains(&kind) && line.contains(words))
        };
        if self.subject == Subject::Node {
            for tell in tells.iter().filter(|t| !t.starts_with('!')) {
                // What is told comes from another thread; a case that is wrong anyway is not waited for.
                let patience = if wrong.is_empty() { 500 } else { 1 };
                let mut left = patience;
                while !holds(tell, &news()) && left > 0 {
                    left -= 1;
                    let _ = fleetgate_sys::poll::poll(&mut [], Some(10));
                }
                if !holds(tell, &news()) {
                    wrong.push(format!("  not told: {tell}"));
                }
            }
            for tell in tells.iter().filter_map(|t| t.strip_prefix('!')) {
                if holds(tell, &news()) {
                    wrong.push(format!("  told: {tell}"));
                }
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let mut news = news();
        news.retain(|line| !line.contains("timing"));
        news.truncate(60);
        Err(format!(
            "{}\n  told was:\n    {}",
            wrong.join("\n"),
            news.join("\n    ")
        ))
    }

    /// Every event that was written stands in docs/audit.md, with these fields and no others.
    fn schema(&self) -> Result<(), String> {
        if self.subject != Subject::Node {
            return Ok(());
        }
        let wrong = undocumented();
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "docs/audit.md:\n  {}",
                wrong.into_iter().collect::<Vec<_>>().join("\n  ")
            )),
        }
    }
}

/// The number of the last connection in the node's log.
fn connections(log: &str) -> u64 {
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["connection"].as_u64())
        .max()
        .unwrap_or(0)
}

/// What the audit log has otherwise than docs/audit.md says.
pub fn undocumented() -> BTreeSet<String> {
    let documented = Documented::read();
    audit().iter().flat_map(|e| documented.objections(e)).collect()
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Running::Sshd(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn sshd(lines: &str) -> Child {
    let config = "/run/test/sshd_config";
    // The first word on a matter counts.
    std::fs::write(config, format!("{lines}\n{SSHD}")).expect("write");
    let known = Command::new("/usr/sbin/sshd")
        .args(["-t", "-f", config])
        .output()
        .expect("sshd");
    let complaint = String::from_utf8_lossy(&known.stderr);
    if complaint.contains("PerSourcePenalties") {
        let text = std::fs::read_to_string(config).expect("read");
        std::fs::write(config, text.replace("PerSourcePenalties no\n", "")).expect("write");
    }
    let mut child = Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f", config])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sshd: install openssh-server");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let listens = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|l| l.contains("Server listening on"));
    assert!(listens, "sshd does not listen");
    std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .for_each(|line| eprintln!("sshd: {line}"))
    });
    child
}

/// Runs what stands before a table.
fn shell(script: &str) {
    let (code, said) = shell_of(script, Subject::Node);
    assert_eq!(code, 0, "{script}: {said}");
}

/// Runs a script in a directory and a process namespace of its own; its exit code, and what it wrote to the file `out`.
fn shell_of(script: &str, subject: Subject) -> (i32, String) {
    let dir = "/run/test/row";
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir(dir).expect("mkdir");
    let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
    let script = format!(". '{peers}/prelude.sh'\n{WORDS}\n{script}");
    let said = std::fs::File::create("/run/test/said").expect("create");
    let status = Command::new("timeout")
        .args([
            "--signal=KILL",
            "60",
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["bash", "-c", &script, "case"])
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/run/home/root")
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm")
        .env("PEERS", crate::peer::peers())
        .env("SUBJECT", format!("{subject:?}"))
        .stdin(Stdio::null())
        .stdout(said.try_clone().expect("dup"))
        .stderr(said)
        .status()
        .expect("timeout");
    let out = std::fs::read(format!("{dir}/out")).unwrap_or_default();
    let mut text = String::from_utf8_lossy(&out).replace('\r', "");
    if !std::path::Path::new(&format!("{dir}/out")).exists() {
        text = std::fs::read_to_string("/run/test/said").unwrap_or_default();
    }
    (status.code().unwrap_or(-1), text)
}

/// Whether the text is what a pattern with `*` says.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// docs/audit.md's tables: the fields of each event, and of each operation on files.
struct Documented {
    events: BTreeMap<String, BTreeSet<String>>,
    operations: BTreeMap<String, BTreeSet<String>>,
    watched: BTreeMap<String, BTreeSet<String>>,
    used: BTreeSet<String>,
}

/// Fields of watched sessions' events that stand in the text above their table.
const OF_WATCHED: [&str; 16] = [
    "time",
    "event",
    "connection",
    "login",
    "session",
    "pid",
    "parent",
    "uid",
    "program",
    "operation",
    "directory",
    "to_directory",
    "target_directory",
    "from_directory",
    "cut",
    "descriptor",
];
/// Where the fields come from.
const MARKS: [&str; 3] = ["kernel", "register", "claimed"];

/// Fields that are there only where they are known.
const SOMETIMES: [&str; 36] = [
    "owner",
    "onward_ssh",
    "runs_as",
    "container",
    "sessions",
    "audit",
    "unwatched",
    "recorded",
    "recording",
    "recovered",
    "undelivered",
    "ended",
    "code",
    "signal",
    "terminal",
    "command",
    "original",
    "cpu_us",
    "memory",
    "read",
    "written",
    "size",
    "uid",
    "gid",
    "mode",
    "login",
    "unrecorded",
    "via",
    "user",
    "roles",
    "mfa",
    "device",
    "rule",
    "ended_by",
    "inherited",
    "cut",
];

impl Documented {
    fn read() -> Documented {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/audit.md");
        let text = std::fs::read_to_string(path).expect("docs/audit.md");
        let mut tables: Vec<BTreeMap<String, BTreeSet<String>>> = Vec::new();
        for line in text.lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            match cells[..] {
                ["", head, .., _, ""] if head == "`event`" || head == "`operation`" => {
                    tables.push(BTreeMap::new())
                }
                ["", names, .., fields, ""] if names.starts_with('`') => {
                    let table = tables.last_mut().expect("a head came first");
                    for name in words(names) {
                        table.insert(name, words(fields));
                    }
                }
                _ => {}
            }
        }
        let used = text
            .split("\n\n")
            .find(|p| p.starts_with("What a session used:"))
            .expect("the paragraph");
        let used = words(used);
        // The node's own events, and what sftp does; behind them stand the cluster's, which no node tells.
        let mut tables = tables.into_iter();
        let [events, operations, watched] =
            [tables.next(), tables.next(), tables.next()].map(|t| t.expect("three tables"));
        Documented {
            events,
            operations,
            watched,
            used,
        }
    }

    /// What is wrong with an event.
    fn objections(&self, event: &Value) -> Vec<String> {
        let fields: BTreeSet<String> = event.as_object().expect("an object").keys().cloned().collect();
        let name = event["event"].as_str().unwrap_or_default();
        let is_watched = MARKS.iter().any(|mark| fields.contains(*mark)) || !self.events.contains_key(name);
        if let Some(own) = self.watched.get(name).filter(|_| is_watched) {
            let known = |field: &&String| {
                own.contains(*field)
                    || OF_WATCHED.contains(&field.as_str())
                    || MARKS.contains(&field.as_str())
            };
            let unknown = fields.iter().filter(|field| !known(field));
            return unknown.map(|f| format!("{name} has no field {f:?}")).collect();
        }
        let Some(own) = self.events.get(name) else {
            return vec![format!("has no event {name:?}")];
        };
        let mut known = own.clone();
        match name {
            "session_ended" => {
                known.extend(self.used.clone());
                // Only where somebody ordered it.
                if !fields.contains("ended_by") {
                    known.remove("reason");
                }
            }
            // Only where it is not recorded though it should be.
            "session_started" if !fields.contains("recorded") => drop(known.remove("reason")),
            "file" => match self
                .operations
                .get(event["operation"].as_str().unwrap_or_default())
            {
                Some(fields) => known.extend(fields.clone()),
                None => return vec![format!("has no operation {}", event["operation"])],
            },
            "node_reloaded" | "cluster_state" if event["done"] == true => drop(known.remove("reason")),
            _ => {}
        }
        known.extend(["time", "event"].map(String::from));
        if ![
            "node_started",
            "node_reloaded",
            "cluster_state",
            "connection_refused",
            "process_died",
            "audit_lost",
        ]
        .contains(&name)
        {
            known.extend(["connection", "login"].map(String::from));
        }
        if ["session_started", "session_ended", "file"].contains(&name) {
            known.insert("session".to_owned());
        }
        let unknown = fields
            .difference(&known)
            .map(|f| format!("{name} has no field {f:?}"));
        let absent = known
            .difference(&fields)
            .filter(|f| !SOMETIMES.contains(&f.as_str()));
        unknown
            .chain(absent.map(|f| format!("{name}: the field {f:?} is not told")))
            .collect()
    }
}

/// The words in backticks, without what stands in parentheses and after a colon's explanation.
fn words(cell: &str) -> BTreeSet<String> {
    let mut depth = 0;
    let outside: String = cell
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '(');
            let keep = depth == 0;
            depth -= i32::from(*c == ')');
            keep
        })
        .collect();
    let word = |w: &&str| w.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    outside
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(word)
        .map(String::from)
        .collect()
}
