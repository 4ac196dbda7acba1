//! Where containers are found, by files as runtimes leave them.

mod labels;

use super::*;
use serde_json::{Value, json};
use std::fs;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("fleetgate-containers-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("made");
        Place(path)
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("one")).expect("made");
        fs::write(path, content).expect("written");
    }

    fn path(&self, name: &str) -> Vec<PathBuf> {
        vec![self.0.join(name)]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// As Docker 24 and containerd's shim leave it, as far as it is read.
#[test]
fn docker_s_names_belong_to_runc_s_states() {
    let place = Place::new("docker");
    let bundle = place.0.join("bundle");
    let state = json!({ "id": "4f5e6d", "init_process_pid": 4711, "init_process_start": 99,
        "config": { "labels": [format!("bundle={}", bundle.display())] } });
    place.write("moby/4f5e6d/state.json", &state.to_string());
    place.write("bundle/config.json", "{\"annotations\":{\"a\":\"b\"}}");
    place.write(
        "containers/4f5e6d/config.v2.json",
        "{\"Name\":\"/web\",\"Config\":{\"Labels\":{\"app\":\"shop\",\"n\":1}}}",
    );
    // Where Docker keeps its containers in another place, with users of their own.
    let own = place.0.join("data/1.1/containers/7a8b9c");
    let state = json!({ "id": "7a8b9c", "init_process_pid": 4712,
        "config": { "labels": [format!("bundle={}", place.0.join("other").display())] } });
    place.write("moby/7a8b9c/state.json", &state.to_string());
    let config = json!({ "mounts": [{ "destination": "/proc", "source": "proc" },
        { "destination": "/etc/hostname", "source": own.join("hostname") }] });
    place.write("other/config.json", &config.to_string());
    place.write(
        "data/1.1/containers/7a8b9c/config.v2.json",
        "{\"Name\":\"/other\"}",
    );
    // Neither is one.
    place.write("moby/broken/state.json", "{");
    place.write("moby/none/state.json", "{\"init_process_pid\":-4}");
    let roots = SearchPaths {
        runtimes: place.path("moby"),
        docker: place.path("containers"),
        ..SearchPaths::none()
    };
    let mut all = roots.read();
    all.sort_by_key(|found| found.pid);
    let [found, other] = all.as_slice() else {
        panic!("{all:?}")
    };
    assert_eq!((other.display_name(), other.runtime), ("other", Runtime::Docker));
    assert_eq!((found.display_name(), found.id.as_str()), ("web", "4f5e6d"));
    assert_eq!(
        (found.pid, found.started, found.runtime),
        (4711, Some(99), Runtime::Docker)
    );
    assert_eq!(found.config, Some(bundle.join("config.json")));
    assert_eq!(found.labels.get("app").map(String::as_str), Some("shop"));
    assert_eq!(found.labels.get("a").map(String::as_str), Some("b"));
}

#[test]
fn an_id_may_be_in_two_namespaces_of_containerd() {
    let place = Place::new("namespaces");
    let state = |pid: i32| format!("{{\"init_process_pid\":{pid}}}");
    place.write("runc/default/web/state.json", &state(7));
    place.write("runc/staging/web/state.json", &state(8));
    place.write("tasks/staging/web/init.pid", "8\n");
    place.write("tasks/other/web/init.pid", "9\n");
    let roots = SearchPaths {
        runtime_namespaces: place.path("runc"),
        tasks: place.path("tasks"),
        ..SearchPaths::none()
    };
    let mut all: Vec<(i32, String)> = roots
        .read()
        .into_iter()
        .map(|found| (found.pid, found.names[1].clone()))
        .collect();
    all.sort();
    let name = |pid, name: &str| (pid, name.to_owned());
    assert_eq!(
        all,
        [
            name(7, "default/web"),
            name(8, "staging/web"),
            name(9, "other/web")
        ]
    );
}

#[test]
fn machines_and_podman_and_a_fifo_in_the_way() {
    let place = Place::new("others");
    place.write("machines/user", "NAME=db\nCLASS=container\nUID=1000\nLEADER=5\n");
    place.write("machines/vm", "NAME=vm\nCLASS=vm\nLEADER=5\n");
    place.write("machines/box", "# comment\nNAME=box\nCLASS=container\nLEADER=6\n");
    place.write(
        "crun/beef/status",
        "{\"pid\":8,\"process-start-time\":7,\"bundle\":\"/nowhere\"}",
    );
    place.write(
        "storage/containers.json",
        "[{\"id\":\"beef\",\"names\":[\"db\"]}]",
    );
    // As `podman run --rm` has it.
    place.write("crun/cafe/status", "{\"pid\":9,\"process-start-time\":7}");
    place.write(
        "storage/volatile-containers.json",
        "[{\"id\":\"cafe\",\"names\":[\"unit\"]}]",
    );
    // In a storage that is somewhere else; and where nothing is known but whose it is: its labels are in a database.
    let status = json!({ "pid": 10, "bundle": place.0.join("data/vfs-containers/f00d/userdata") });
    place.write("crun/f00d/status", &status.to_string());
    place.write(
        "data/vfs-containers/containers.json",
        "[{\"id\":\"f00d\",\"names\":[\"far\"]}]",
    );
    let config = json!({ "annotations": { "io.container.manager": "libpod" } });
    place.write("crun/dead/status", "{\"pid\":11,\"process-start-time\":7}");
    place.write("crun/dead/config.json", &config.to_string());
    fs::create_dir_all(place.0.join("crun/hole")).expect("made");
    let fifo = place.0.join("crun/hole/status");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    let roots = SearchPaths {
        runtimes: place.path("crun"),
        storage: place.path("storage"),
        machines: place.path("machines"),
        ..SearchPaths::none()
    };
    let all = roots.read();
    let of = |name: &str| {
        all.iter()
            .find(|found| found.display_name() == name)
            .map(|found| (found.pid, found.runtime))
    };
    assert_eq!(of("db"), Some((8, Runtime::Podman)));
    assert_eq!(of("unit"), Some((9, Runtime::Podman)));
    assert_eq!(of("far"), Some((10, Runtime::Podman)));
    assert_eq!(of("dead"), Some((11, Runtime::Podman)));
    assert!(all.iter().all(|found| !found.labels_are_all), "{all:?}");
    assert_eq!(of("box"), Some((6, Runtime::Machined)));
    assert_eq!(all.len(), 5, "{all:?}");
}
