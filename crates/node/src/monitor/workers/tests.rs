//! Whom a process's death is put down to.

use super::*;
use fleetgate_seal::{Image, Source, Strategy};
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use std::sync::{Arc, Mutex};

/// Starts `cat` on the control socket, and notes what it is told of deaths.
struct Cats {
    image: Arc<Image>,
    early: Arc<Mutex<Vec<(WorkerKind, Death)>>>,
}

impl WorkerStarter for Cats {
    fn start(&mut self, order: StartOrder) {
        let (argv, envp) = (Strings::new([c"cat"]), Strings::new([]));
        let what = Spawn {
            program: Program::Path(c"/bin/cat"),
            argv: &argv,
            envp: &envp,
            fds: &[order.control.raw(), order.control.raw(), order.log.raw()],
            cgroup: None,
        };
        let child = spawn(&what, &mut Stack::new().expect("a stack")).expect("cat starts");
        (order.done)(Ok(Process {
            pid: child.pid,
            pidfd: child.pidfd,
            image: Some(self.image.clone()),
        }));
    }

    fn died_early(&mut self, kind: WorkerKind, _: Arc<Image>, death: Death) {
        self.early.lock().expect("no panic holds it").push((kind, death));
    }
}

/// One life.
#[derive(Clone, Copy, Debug)]
enum Life {
    /// It is killed before it says anything.
    Silent,
    /// It says something, then it is killed.
    Spoke,
    /// It is ended by us.
    Ended,
}

#[test]
fn a_death_before_the_first_word_is_looked_into() {
    let made = Image::make(Strategy::Memfd, &Source::File("/bin/cat".into()), c"cat", None);
    let image = Arc::new(made.expect("an image"));
    for (life, blamed) in [(Life::Silent, true), (Life::Spoke, false), (Life::Ended, false)] {
        let mut wakes = Wakes::new().expect("epoll");
        let early = Arc::default();
        let cats = Cats {
            image: image.clone(),
            early: Arc::clone(&early),
        };
        let mut workers = Workers::new(Box::new(cats), &wakes).expect("workers");
        let id = workers.start(WorkerKind::Lobby, &wakes).expect("asked");
        let (mut news, mut keys) = (Vec::new(), Vec::new());
        workers.started(&wakes, &mut news);
        if let Life::Spoke = life {
            let message = fleetgate_wire::node::starter::ToMonitor::Drain;
            workers.say(id, &message, Vec::new(), &wakes);
        }
        let mut killed = false;
        let gone = loop {
            let heard = news.iter().any(|n| matches!(n, WorkerEvent::Heard(..)));
            if let Some(WorkerEvent::Gone(_, worker, _, how)) =
                news.iter().find(|n| matches!(n, WorkerEvent::Gone(..)))
            {
                break (*worker, how.clone());
            }
            if !killed && (heard || !matches!(life, Life::Spoke)) {
                killed = true;
                match life {
                    Life::Ended => workers.end(id, "the test ends it"),
                    _ => {
                        let pidfd = &workers.table[&id].process.as_ref().expect("it runs").pidfd;
                        process::signal(pidfd, SIGKILL).expect("killed");
                    }
                }
            }
            keys.clear();
            wakes.wait(Some(60_000), &mut keys).expect("wait");
            assert!(!keys.is_empty(), "{life:?}: nothing happened");
            for key in &keys {
                if key.owner == Owner::Workers {
                    workers.woken(key.id, &wakes, &mut news);
                }
            }
        };
        assert_eq!(gone.0, WorkerKind::Lobby, "{life:?}: {}", gone.1);
        let early = early.lock().expect("no panic holds it");
        let told: Vec<bool> = early
            .iter()
            .map(|(worker, death)| {
                *worker == WorkerKind::Lobby && matches!(death, Death::Killed { signal: SIGKILL, .. })
            })
            .collect();
        assert_eq!(told, vec![true; usize::from(blamed)], "{life:?}");
    }
}
