//! Container runtimes that answer, are silent, say too much, or close, each on a socket of the test's own.

mod bounds;

use crate::client::{ANSWER, TIME};
use crate::labels::{MAX_BYTES, MAX_LABELS};
use crate::pods::{PodLabels, REMEMBERED, Sockets};
use fleetgate_containers::{ContainerRecord, SearchPaths, list};
use fleetgate_net::h2::{Caller, Routes, Tuning, serve};
use fleetgate_proto::cri::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use fleetgate_proto::cri::{
    Container, ListContainersRequest, ListContainersResponse, ListPodSandboxRequest, ListPodSandboxResponse,
    PodSandbox,
};
use std::collections::HashMap;
use std::fs;
use std::future::pending;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tonic::{Request, Response, Status};

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A place for a socket and for what a runtime leaves of containers, gone with this value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("fleetgate-cri-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("made");
        Place(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// Answers every connection on a thread of its own; how many came.
    fn listens(&self, answer: impl Fn(UnixStream) + Clone + Send + 'static) -> Arc<AtomicUsize> {
        let listener = UnixListener::bind(self.socket()).expect("bound");
        let came = Arc::new(AtomicUsize::new(0));
        let counter = came.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counter.fetch_add(1, Relaxed);
                let answer = answer.clone();
                std::thread::spawn(move || answer(stream));
            }
        });
        came
    }

    /// A runtime that knows labels.
    fn serves(&self, runtime: Fake) -> Arc<AtomicUsize> {
        self.listens(move |stream| {
            let runtime = runtime.clone();
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
            tokio.expect("a runtime").block_on(async move {
                stream.set_nonblocking(true).expect("set");
                let stream = tokio::net::UnixStream::from_std(stream).expect("a stream");
                let routes = Arc::new(Routes::new().with(RuntimeServiceServer::new(runtime)));
                let nobody = Caller {
                    peer: None,
                    address: None,
                };
                let _ = serve(stream, nobody, routes, Tuning::HERE, pending()).await;
            });
        })
    }

    /// A container as containerd leaves it, and where that is looked for. What changed lately is read again, so its files are
    /// made first and are old enough at some later look.
    fn task(&self, id: &str) -> SearchPaths {
        let task = self.0.join("tasks/k8s.io").join(id);
        fs::create_dir_all(&task).expect("made");
        fs::write(task.join("init.pid"), std::process::id().to_string()).expect("written");
        fs::write(task.join("config.json"), "{}").expect("written");
        SearchPaths {
            tasks: vec![self.0.join("tasks")],
            ..SearchPaths::none()
        }
    }

    fn pods(&self) -> PodLabels {
        PodLabels::new(Sockets {
            containerd: self.socket(),
            k3s: self.0.join("none"),
            cri_o: self.0.join("none"),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Map = HashMap<String, String>;

fn map(labels: &[(&str, &str)]) -> Map {
    let pairs = labels.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// A container runtime whose containers each have a pod of their own, called after them and all alike.
#[derive(Clone, Default)]
struct Fake {
    pod: Map,
    /// The labels of single pods, by their containers' ids.
    pods: HashMap<String, Map>,
    container: Map,
    /// The ids of containers that it has.
    ids: Vec<String>,
}

#[tonic::async_trait]
impl RuntimeService for Fake {
    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Result<Response<ListContainersResponse>, Status> {
        let wanted = request.into_inner().filter.expect("a filter").id;
        let container = |id: &String| Container {
            id: id.clone(),
            pod_sandbox_id: format!("pod of {id}"),
            labels: self.container.clone(),
        };
        let fit = self.ids.iter().filter(|id| id.starts_with(&wanted));
        Ok(Response::new(ListContainersResponse {
            containers: fit.map(container).collect(),
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Result<Response<ListPodSandboxResponse>, Status> {
        let id = request.into_inner().filter.expect("a filter").id;
        let container = id.strip_prefix("pod of ").expect("a pod's id");
        let labels = self.pods.get(container).unwrap_or(&self.pod).clone();
        let pod = PodSandbox { id, labels };
        Ok(Response::new(ListPodSandboxResponse { items: vec![pod] }))
    }
}

/// A container of Kubernetes' with this id, as `containers` finds it; this process stands for its first.
fn container(id: &str) -> ContainerRecord {
    let mut found = ContainerRecord::process(1);
    found.id = id.to_owned();
    found.namespace = Some("k8s.io".to_owned());
    found
}

/// What comes of asking about `web`: the record, and how long it took.
fn asked(pods: &PodLabels) -> (ContainerRecord, Duration) {
    let mut found = container("web");
    let begun = Instant::now();
    pods.add_to([&mut found]);
    (found, begun.elapsed())
}

fn why(pods: &PodLabels) -> String {
    let (found, took) = asked(pods);
    assert!(took < PATIENCE, "{took:?}");
    assert!(!found.labels_are_all && found.labels.is_empty(), "{found:?}");
    found.labels_missing.expect("a reason")
}

#[test]
fn labels_of_pod_and_container_come_together() {
    let place = Place::new("answers");
    place.serves(Fake {
        pod: map(&[
            ("app", "shop"),
            ("tier", "front"),
            ("io.kubernetes.cri.sandbox-namespace", "another"),
        ]),
        container: map(&[("tier", "back"), ("io.kubernetes.container.name", "web")]),
        ids: vec!["web-longer".to_owned(), "web".to_owned()],
        ..Fake::default()
    });
    let pods = place.pods();
    let mut found = container("web");
    let annotations = [("io.kubernetes.cri.sandbox-namespace", "prod"), ("note", "kept")];
    found.labels.extend(map(&annotations));
    pods.add_to([&mut found]);
    assert_eq!(found.labels_missing, None);
    assert!(found.labels_are_all);
    let labels: Vec<(&str, &str)> = found
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        labels,
        [
            ("app", "shop"),
            ("io.kubernetes.container.name", "web"),
            // A pod does not choose what its runtime wrote.
            ("io.kubernetes.cri.sandbox-namespace", "prod"),
            ("note", "kept"),
            ("tier", "back"),
        ]
    );

    // The beginning of an id is none, and others' containers are not asked about.
    let mut all = [container("we"), container("web"), container("web")];
    all[2].namespace = Some("moby".to_owned());
    pods.add_to(&mut all);
    let missing = all[0].labels_missing.as_ref().expect("a reason");
    assert!(missing.contains("does not know it"), "{missing}");
    assert_eq!(all[1].labels_missing, None);
    assert!(all[2].labels.is_empty() && all[2].labels_missing.is_none());
}

#[test]
fn labels_are_asked_for_once() {
    let place = Place::new("once");
    let came = place.serves(Fake {
        pod: map(&[("app", "shop")]),
        ids: vec!["web".to_owned()],
        ..Fake::default()
    });
    let paths = place.task("web");
    let pods = place.pods();
    let look = || {
        let mut all = list(&paths);
        pods.add_to(&mut all);
        all.pop().expect("it is found").labels.remove("app")
    };
    let begun = Instant::now();
    while look() == Some("shop".to_owned()) {
        let before = came.load(Relaxed);
        assert_eq!(look().as_deref(), Some("shop"));
        if came.load(Relaxed) == before {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "it is asked again and again");
        std::thread::sleep(Duration::from_millis(100));
    }
    // The runtime is gone, and nobody needs it.
    fs::remove_file(place.socket()).expect("removed");
    assert_eq!(look().as_deref(), Some("shop"));
    const { assert!(REMEMBERED * MAX_BYTES <= 8 << 20) };
}

#[test]
fn a_silent_container_runtime_is_waited_for_once() {
    let place = Place::new("silent");
    let came = place.listens(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let pods = place.pods();
    let begun = Instant::now();
    let mut all: Vec<ContainerRecord> = (0..100).map(|n| container(&n.to_string())).collect();
    pods.add_to(&mut all);
    assert!(begun.elapsed() >= TIME);
    for found in &all {
        let missing = found.labels_missing.as_ref().expect("a reason");
        assert!(missing.contains("did not answer in time"), "{missing}");
    }
    // Whoever comes next does not wait.
    let begun = Instant::now();
    assert!(why(&pods).contains("did not answer in time"));
    assert_eq!(came.load(Relaxed), 1);
    // The pause ends, however often somebody comes meanwhile.
    while came.load(Relaxed) == 1 {
        assert!(begun.elapsed() < PATIENCE);
        why(&pods);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_container_runtime_that_says_too_much_is_read_no_further() {
    let place = Place::new("much");
    let (tell, told) = std::sync::mpsc::channel();
    place.listens(move |mut stream| {
        // A frame that HTTP/2 lets pass unread: of a type that nobody knows (RFC 9113, section 5.5).
        let frame = [&[0, 0x40, 0, 0xee, 0, 0, 0, 0, 0][..], &[0; 0x4000]].concat();
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let mut sent = 0;
        let _ = stream.write_all(&settings);
        while stream.write_all(&frame).is_ok() {
            sent += frame.len();
        }
        let _ = tell.send(sent);
    });
    let pods = place.pods();
    assert!(why(&pods).contains("said more about it than is read"));
    let sent = told.recv_timeout(PATIENCE).expect("it was left");
    // What the socket holds comes to it.
    assert!(sent < ANSWER + (1 << 20), "{sent}");
}

#[test]
fn container_runtimes_that_lie_or_end_are_named() {
    let refused = |name: &str, answer: fn(UnixStream)| {
        let place = Place::new(name);
        place.listens(answer);
        why(&place.pods())
    };
    for (name, answer) in [
        ("closes", (|_| {}) as fn(UnixStream)),
        ("http1", |mut stream| {
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }),
        ("noise", |mut stream| {
            let _ = stream.write_all(&[0xff; 70_000]);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }),
    ] {
        let said = refused(name, answer);
        assert!(said.contains("gave no answer of use"), "{name}: {said}");
        assert!(said.chars().all(|c| !c.is_control()), "{name}: {said:?}");
    }
    let place = Place::new("absent");
    assert!(why(&place.pods()).contains("there is no socket"));
    drop(UnixListener::bind(place.socket()).expect("bound"));
    assert!(why(&place.pods()).contains("cannot be connected to"));
}
