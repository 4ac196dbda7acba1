//! Restarts of every service of a cluster, one after the other, while people are in and others come: nobody's session ends,
//! and nobody is refused.

use fleetgate_tests::cluster::{Cluster, Managed, OWN_PORT, PROXY, STATE};
use fleetgate_tests::needs_root;
use fleetgate_tests::peer::DIR;
use fleetgate_tests::world::{wait_for, wait_until};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Sessions that are open all the while.
const OPEN: usize = 50;
/// New sessions that have to come in after each restart before the next one.
const NEW: usize = 150;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session that says again what it is told.
struct Open {
    child: Child,
    input: ChildStdin,
    said: Receiver<String>,
    name: String,
}

impl Open {
    fn new(cluster: &Cluster, name: String, words: &str) -> Open {
        let mut child = cluster
            .command(&format!(
                "exec {words} 'while read word; do echo $word; done' 2> {name}.said"
            ))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash");
        let input = child.stdin.take().expect("piped");
        let (say, said) = channel();
        let output = child.stdout.take().expect("piped");
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        Open {
            child,
            input,
            said,
            name,
        }
    }

    /// Says a word, and hears it again.
    fn answers(&mut self, word: &str) {
        let told = writeln!(self.input, "{word}");
        let heard = self.said.recv_timeout(PATIENCE);
        if told.is_err() || heard.as_deref() != Ok(word) {
            let said = std::fs::read_to_string(format!("{DIR}/{}.said", self.name));
            panic!(
                "{} at {word}: {heard:?}, {:?}, {said:?}",
                self.name,
                self.child.try_wait()
            );
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What came of the sessions that were begun all the while.
#[derive(Default)]
struct Arrivals {
    came: AtomicUsize,
    refused: Mutex<Vec<String>>,
    over: AtomicBool,
}

impl Arrivals {
    /// One session after the other.
    fn go_on(&self, cluster: &Cluster, begun: Instant, words: &str) {
        while !self.over.load(Ordering::Relaxed) {
            let at = begun.elapsed();
            match cluster.attempt(words) {
                Ok(_) => _ = self.came.fetch_add(1, Ordering::Relaxed),
                Err(said) => {
                    let took = begun.elapsed() - at;
                    self.refusals()
                        .push(format!("at {at:.1?}, for {took:.1?}, {words}: {said}"));
                }
            }
        }
    }

    fn refusals(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cluster and its node, each under a service manager of its own; the node is reached.
fn managed() -> (Cluster, Managed, Managed) {
    let mut cluster = Cluster::new();
    cluster.down(STATE);
    let gate = cluster.managed(STATE, PROXY);
    cluster.join_node();
    let node = cluster.managed("node", OWN_PORT);
    wait_until("the node is reached through the proxy", || {
        cluster.attempt(r#""$F" ssh --home home ada@gate true"#).is_ok()
    });
    (cluster, gate, node)
}

#[test]
fn a_restart_of_any_service_ends_no_session_and_refuses_nobody() {
    needs_root!("services in a world of their own");
    let (cluster, mut gate, mut node) = managed();
    let command = r#""$F" ssh --home home -o ControlMaster=no ada@gate"#;
    let plain =
        r#"ssh -F home.config -o ProxyCommand="$F proxy-command --home home --login %r %h %p" ada@gate.test"#;
    let jump = r#"ssh -F home.config -o UserKnownHostsFile=/run/test/home/known_hosts -J ada@127.0.0.1:3080 ada@gate"#;
    let kept = r#""$F" ssh --home home ada@gate"#;
    let ways = [command, plain, kept, jump];
    let mut open: Vec<Open> = (0..OPEN)
        .map(|n| Open::new(&cluster, format!("session-{n}"), ways[n % ways.len()]))
        .collect();
    open.iter_mut().for_each(|session| session.answers("begun"));

    let begun = Instant::now();
    let arrivals = Arrivals::default();
    let mut restarts = Vec::new();
    thread::scope(|scope| {
        for words in [kept, command, plain] {
            let words = format!("{words} true");
            let (arrivals, cluster) = (&arrivals, &cluster);
            scope.spawn(move || arrivals.go_on(cluster, begun, &words));
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 1..=2 {
                for what in ["auth", "proxy", "node", "up of the cluster", "up of the node"] {
                    restarts.push(format!("{what} at {:.1?}", begun.elapsed()));
                    match what {
                        "auth" | "proxy" => gate.restart_role(what),
                        "node" => node.restart_role(what),
                        "up of the cluster" => gate.restart(),
                        _ => node.restart(),
                    }
                    let before = arrivals.came.load(Ordering::Relaxed);
                    wait_until("new sessions come in", || {
                        arrivals.came.load(Ordering::Relaxed) >= before + NEW
                            || arrivals.refusals().len() > 20
                    });
                    for session in &mut open {
                        session.answers(&format!("after-{round}-{}", what.replace(' ', "-")));
                    }
                }
            }
        }));
        arrivals.over.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            eprintln!("restarts: {restarts:#?}; refused: {:#?}", arrivals.refusals());
            std::panic::resume_unwind(panic);
        }
    });
    let refused = arrivals.refusals();
    assert!(
        refused.is_empty(),
        "restarts: {restarts:#?}\nof {} new sessions these were refused: {refused:#?}",
        refused.len() + arrivals.came.load(Ordering::Relaxed)
    );
}

/// Each service is killed once, and the proxy ten times in a row: sessions come in again. How long nobody came in is printed.
#[test]
fn sessions_come_in_again_after_deaths() {
    needs_root!("services in a world of their own");
    let (cluster, gate, node) = managed();
    let away = |what: &str, dies: &dyn Fn()| {
        let begun = Instant::now();
        dies();
        wait_until(&format!("a session after {what}"), || {
            cluster.attempt(r#""$F" ssh --home home ada@gate true"#).is_ok()
        });
        println!("{what}: a session after {:.1?}", begun.elapsed());
    };
    away("the death of auth", &|| gate.kill_role("auth"));
    away("the death of the proxy", &|| gate.kill_role("proxy"));
    away("the death of the node", &|| node.kill_role("node"));
    for _ in 0..9 {
        gate.kill_role("proxy");
    }
    away("the last of ten deaths in a row", &|| gate.kill_role("proxy"));
}

/// What a `fleetgate up` that was killed had started ends or drains, so that it can be started again; no session ends.
#[test]
fn an_up_that_was_killed_is_started_again_and_ends_no_session() {
    needs_root!("services in a world of their own");
    let (cluster, mut gate, mut node) = managed();
    let mut open = Open::new(&cluster, "session".to_owned(), r#""$F" ssh --home home ada@gate"#);
    open.answers("begun");
    for (which, what) in [(&mut gate, "cluster"), (&mut node, "node")] {
        which.kill_and_restart();
        wait_until(&format!("a session after the {what}'s up was killed"), || {
            cluster.attempt(r#""$F" ssh --home home ada@gate true"#).is_ok()
        });
        open.answers(what);
    }
}

/// A connection that the master keeps holds up no process that drains: the next command goes to the new one, and the former
/// ends. A session that runs goes on.
#[test]
fn a_kept_connection_leaves_what_drains() {
    needs_root!("services in a world of their own");
    let (cluster, gate, node) = managed();
    for (role, manager) in [("node", &node), ("proxy", &gate)] {
        let mut open = Open::new(&cluster, role.to_owned(), r#""$F" ssh --home home ada@gate"#);
        open.answers("begun");
        let former = manager.processes_of(role);
        manager.restart_role(role);
        wait_until("a session by the new one", || {
            cluster.attempt(r#""$F" ssh --home home ada@gate true"#).is_ok()
        });
        open.answers("after");
        drop(open);
        for process in &former {
            wait_for(process, &format!("the end of the former {role}"));
        }
        cluster.script(r#""$F" ssh --home home ada@gate true"#);
    }
}
