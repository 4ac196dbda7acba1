//! Pods as Kubernetes has them, without Kubernetes: Debian's containerd with its part for it, and what the kubelet would say to
//! it, beside a node of a test's.

use crate::containers::{cgroups_called, errors, make_root};
use crate::folder::Folder;
use crate::world::wait_until;
use fleetgate_net::h2::{Channel, Tuning, connect, words};
use fleetgate_proto::codec::Codec;
use prost::Message;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;

/// The image of all containers, the one that holds a pod's namespaces too.
const IMAGE: &str = "fleetgate.test/busybox:1";
/// What they run.
const SLEEPS: [&str; 2] = ["/bin/sleep", "601"];
/// A pod has the machine's network: no other is set up here.
const OF_THE_MACHINE: i32 = 2;

/// containerd, which ends with this value, and its pods before it.
pub struct Kubernetes {
    folder: Folder,
    daemon: Child,
    before: Vec<String>,
    socket: PathBuf,
    pods: Vec<String>,
}

// What the interface of container runtimes calls its messages, with the fields that are sent here (version 1).

#[derive(Clone, PartialEq, Message)]
struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PodSandboxMetadata>,
    #[prost(map = "string, string", tag = "6")]
    labels: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxPodSandboxConfig {
    #[prost(string, tag = "1")]
    cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    security_context: Option<SecurityContext>,
}

#[derive(Clone, PartialEq, Message)]
struct SecurityContext {
    #[prost(message, optional, tag = "1")]
    namespace_options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, Message)]
struct NamespaceOption {
    #[prost(int32, tag = "1")]
    network: i32,
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Text>,
    #[prost(message, optional, tag = "2")]
    image: Option<Text>,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
    #[prost(map = "string, string", tag = "9")]
    labels: HashMap<String, String>,
    #[prost(message, optional, tag = "15")]
    linux: Option<LinuxContainerConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxContainerConfig {
    #[prost(message, optional, tag = "2")]
    security_context: Option<ContainerSecurityContext>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerSecurityContext {
    #[prost(message, optional, tag = "3")]
    namespace_options: Option<NamespaceOption>,
}

/// A message whose first field is a text: an id, or a name.
#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

impl Kubernetes {
    /// On the machine that this process sees.
    pub fn beside(process: i32) -> Kubernetes {
        let folder = Folder::below(Path::new("/var/tmp")).with_mode(0o755);
        make_root(&folder);
        make_image(&folder);
        let config = format!(
            "version = 2\nroot = {:?}\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = {IMAGE:?}\n\
             restrict_oom_score_adj = true\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = {:?}\nbin_dir = {:?}\n",
            folder.join("root"),
            folder.join("cni"),
            folder.join("cni"),
        );
        let file = folder.word("config.toml");
        std::fs::write(&file, config).expect("written");
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let pid = process.to_string();
        let before = ["nsenter", "--pid", "--mount", "--target", &pid, "--"].map(str::to_owned);
        let daemon = Command::new(&before[0])
            .args(&before[1..])
            .args([
                "sh",
                "-c",
                "containerd --config \"$1/config.toml\" & echo $! > \"$1/pid\"; wait",
                "sh",
            ])
            .arg(&*folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("dup"))
            .stderr(log)
            .spawn()
            .expect("nsenter runs");
        let kubernetes = Kubernetes {
            folder,
            daemon,
            before: before.into(),
            socket: format!("/proc/{pid}/root/run/containerd/containerd.sock").into(),
            pods: Vec::new(),
        };
        wait_until("containerd answers", || {
            let version = kubernetes.command(&["ctr", "version"]).output();
            version.expect("ctr is installed").status.success()
        });
        let image = kubernetes.folder.word("image.tar");
        let words = [
            "ctr",
            "--namespace",
            "k8s.io",
            "images",
            "import",
            "--snapshotter",
            "native",
            &image,
        ];
        let out = kubernetes.command(&words).output().expect("ctr runs");
        assert!(out.status.success(), "{} {}", errors(&out), kubernetes.log());
        kubernetes
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").args(&self.before).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// What it logged.
    pub fn log(&self) -> String {
        self.folder.text("log")
    }

    /// A pod in the namespace `prod` with one container `web`, each with these labels; the container's id.
    pub fn run(&mut self, pod: &str, labels: &[(&str, &str)], container: &[(&str, &str)]) -> String {
        let namespaces = || {
            Some(NamespaceOption {
                network: OF_THE_MACHINE,
            })
        };
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: pod.to_owned(),
                uid: format!("uid-of-{pod}"),
                namespace: "prod".to_owned(),
            }),
            labels: map(labels),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/{}", self.cgroup()),
                security_context: Some(SecurityContext {
                    namespace_options: namespaces(),
                }),
            }),
        };
        // containerd's part for Kubernetes learns of the image a moment after ctr.
        let (mut id, mut why) = (String::new(), String::new());
        wait_until("the pod runs", || {
            let request = RunPodSandboxRequest {
                config: Some(config.clone()),
            };
            match self.ask("RunPodSandbox", request) {
                Ok(sandbox) => id = sandbox,
                Err(e) if e != why => {
                    eprintln!("{e}\n{}", self.log());
                    why = e;
                }
                Err(_) => {}
            }
            !id.is_empty()
        });
        self.pods.push(id.clone());
        let request = CreateContainerRequest {
            pod_sandbox_id: id,
            config: Some(ContainerConfig {
                metadata: text("web"),
                image: text(IMAGE),
                command: SLEEPS.map(str::to_owned).into(),
                labels: map(container),
                linux: Some(LinuxContainerConfig {
                    security_context: Some(ContainerSecurityContext {
                        namespace_options: namespaces(),
                    }),
                }),
            }),
            sandbox_config: Some(config),
        };
        let made = self.ask("CreateContainer", request);
        let id = made.unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
        let started = self.ask("StartContainer", Text { text: id.clone() });
        started.unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
        id
    }

    /// Signals the daemon, and not the shell before it: that would stop with it.
    pub fn signal(&self, signal: &str) {
        let pid = self.folder.text("pid");
        let out = self.command(&["kill", "-s", signal, pid.trim()]).output();
        let out = out.expect("kill runs");
        assert!(out.status.success(), "{} {}", errors(&out), self.log());
    }

    fn cgroup(&self) -> String {
        self.folder.file_name().expect("a name").display().to_string()
    }

    /// A request whose answer is an id, or nothing.
    fn ask(&self, what: &str, request: impl Message + Default + 'static) -> Result<String, String> {
        let path = format!("/runtime.v1.RuntimeService/{what}");
        let path = PathAndQuery::try_from(path).expect("a path");
        runtime().block_on(async {
            let stream = UnixStream::connect(&self.socket)
                .await
                .map_err(|e| e.to_string())?;
            let channel = connect(stream, Tuning::HERE).await.map_err(|e| e.to_string())?;
            let mut client: Grpc<Channel> = Grpc::new(channel);
            client.ready().await.map_err(|e| e.to_string())?;
            let codec: Codec<_, Text> = Codec::default();
            let answer = client.unary(tonic::Request::new(request), path, codec).await;
            answer
                .map(|answer| answer.into_inner().text)
                .map_err(|status| format!("{what}: {}", words(&status)))
        })
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        // A test that failed may have left it stopped.
        self.signal("CONT");
        for pod in &self.pods {
            for what in ["StopPodSandbox", "RemovePodSandbox"] {
                if let Err(e) = self.ask(what, Text { text: pod.clone() }) {
                    eprintln!("{e}");
                }
            }
        }
        self.signal("TERM");
        let _ = self.daemon.wait();
        for group in cgroups_called(&self.cgroup()) {
            let _ = std::fs::remove_dir(group);
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn text(text: &str) -> Option<Text> {
    Some(Text {
        text: text.to_owned(),
    })
}

fn map(labels: &[(&str, &str)]) -> HashMap<String, String> {
    let pairs = labels.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Of `rootfs` an image as registries have it, in `image.tar`.
fn make_image(folder: &Folder) {
    let image = folder.join("image");
    std::fs::create_dir_all(image.join("blobs/sha256")).expect("mkdir");
    let tar = |place: &str, file: &str| {
        let mut command = Command::new("tar");
        let made = command
            .arg("-C")
            .arg(folder.join(place))
            .args(["-cf", file, "."])
            .status();
        assert!(made.expect("tar runs").success());
    };
    let blob = |file: &Path, kind: &str| -> Value {
        let sum = Command::new("sha256sum").arg(file).output().expect("it runs");
        let digest: String = String::from_utf8_lossy(&sum.stdout).chars().take(64).collect();
        let size = std::fs::metadata(file).expect("there").len();
        std::fs::rename(file, image.join("blobs/sha256").join(&digest)).expect("moved");
        json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size })
    };
    let document = |name: &str, kind: &str, document: &Value| {
        let file = folder.join(name);
        std::fs::write(&file, document.to_string()).expect("written");
        blob(&file, kind)
    };
    let layer = folder.word("layer");
    tar("rootfs", &layer);
    let layer = blob(Path::new(&layer), "application/vnd.oci.image.layer.v1.tar");
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({ "architecture": architecture, "os": "linux", "config": { "Cmd": SLEEPS },
        "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] } });
    let config = document("config", "application/vnd.oci.image.config.v1+json", &config);
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer] });
    let mut manifest = document("manifest", kind, &manifest);
    manifest["annotations"] = json!({ "io.containerd.image.name": IMAGE });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    std::fs::write(image.join("index.json"), index.to_string()).expect("written");
    let layout = json!({ "imageLayoutVersion": "1.0.0" });
    std::fs::write(image.join("oci-layout"), layout.to_string()).expect("written");
    tar("image", &folder.word("image.tar"));
}
