//! Which annotations and labels count: those that whoever started a container wrote, and none that the author of a pod or an image
//! chose.

use super::*;

/// containerd's container in this namespace, with these annotations.
fn of_containerd(name: &str, namespace: &str, annotations: &Value) -> ContainerRecord {
    let place = Place::new(name);
    place.write(&format!("tasks/{namespace}/abcdef/init.pid"), "77\n");
    let config = json!({ "annotations": annotations }).to_string();
    place.write(&format!("tasks/{namespace}/abcdef/config.json"), &config);
    let roots = SearchPaths {
        tasks: place.path("tasks"),
        ..SearchPaths::none()
    };
    roots.read().pop().expect("it is found")
}

/// runc's container with these annotations; its bundle is in a storage whose list has this entry, if there is one.
fn of_runc(name: &str, annotations: &Value, entry: Option<Value>) -> ContainerRecord {
    let place = Place::new(name);
    let bundle = match entry {
        Some(_) => "storage/abcdef/userdata",
        None => "bundle",
    };
    let state = json!({ "init_process_pid": 78,
        "config": { "labels": [format!("bundle={}", place.0.join(bundle).display())] } });
    place.write("runc/abcdef/state.json", &state.to_string());
    let config = json!({ "annotations": annotations }).to_string();
    place.write(&format!("{bundle}/config.json"), &config);
    if let Some(entry) = entry {
        place.write("storage/containers.json", &json!([entry]).to_string());
    }
    let roots = SearchPaths {
        runtimes: place.path("runc"),
        ..SearchPaths::none()
    };
    roots.read().pop().expect("it is found")
}

/// What containerd writes of a container.
fn pod(namespace: Option<&str>, pod: &str, container: &str) -> Value {
    let mut all = json!({ "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-name": pod,
        "io.kubernetes.cri.container-name": container });
    if let Some(namespace) = namespace {
        all["io.kubernetes.cri.sandbox-namespace"] = json!(namespace);
    }
    all
}

/// What CRI-O writes of one.
fn pod_of_cri_o() -> Value {
    json!({ "io.container.manager": "cri-o", "io.kubernetes.cri-o.SandboxID": "pod",
        "io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.pod.name": "shop",
        "io.kubernetes.pod.namespace": "prod", "io.kubernetes.container.name": "web" })
}

fn keys(found: &ContainerRecord) -> Vec<&str> {
    found.labels.keys().map(String::as_str).collect()
}

#[test]
fn by_dots_a_name_of_kubernetes_has_three_parts() {
    let names = |namespace: Option<&str>, name: &str, container: &str| {
        let found = of_containerd("dots", "k8s.io", &pod(namespace, name, container));
        assert_eq!((found.pid, found.runtime), (77, Runtime::Kubernetes));
        let names: Vec<String> = found.login_names().map(str::to_owned).collect();
        assert_eq!(names.last(), Some(&found.id));
        (found.names, names[..names.len() - 1].to_vec())
    };
    let (all, by_ssh) = names(Some("prod"), "shop-7d", "web");
    assert_eq!(all, ["shop-7d/web", "prod/shop-7d/web", "prod.shop-7d.web"]);
    assert_eq!(by_ssh, ["prod.shop-7d.web"]);
    // A pod of another namespace must not pass for one of `shopns`, nor for the container `web` of the pod `shop` in `prod`.
    assert_eq!(names(Some("evil"), "shopns.db", "web").1, ["evil.shopns.db.web"]);
    assert_eq!(names(Some("evil"), "prod.shop", "web").1, ["evil.prod.shop.web"]);
    // What Kubernetes would not take, and what is not known.
    assert_eq!(names(Some("prod.shop"), "a", "web").1, [""; 0]);
    assert_eq!(names(Some("prod"), "a", "web.x").1, [""; 0]);
    assert_eq!(
        names(None, "prod.shop", "web"),
        (vec!["prod.shop/web".to_owned()], vec![])
    );
}

#[test]
fn only_what_a_runtime_of_kubernetes_writes_names_a_pod() {
    let mut chosen = pod(Some("prod"), "shop", "web");
    for (key, value) in [
        ("app", "web"),
        ("io.kubernetes.pod.namespace", "bank"),
        ("io.kubernetes.pod.name", "vault"),
        ("io.kubernetes.container.name", "db"),
        ("io.kubernetes.cri.other", "x"),
        ("io.container.manager", "cri-o"),
    ] {
        chosen[key] = json!(value);
    }
    let found = of_containerd("chosen", "k8s.io", &chosen);
    assert_eq!(found.names[2], "prod.shop.web");
    assert_eq!(
        keys(&found),
        [
            "io.kubernetes.cri.container-name",
            "io.kubernetes.cri.container-type",
            "io.kubernetes.cri.sandbox-name",
            "io.kubernetes.cri.sandbox-namespace"
        ]
    );
    assert!(!found.labels_are_all);
    assert_eq!(found.kubernetes(), Some(crate::KubernetesRuntime::Containerd));

    // In another namespace of containerd's, and of runc's alone, nobody wrote that for Kubernetes.
    let found = of_containerd("other", "default", &chosen);
    assert_eq!(found.names, ["abcdef", "default/abcdef", "default.abcdef"]);
    assert_eq!((keys(&found), found.labels_are_all), (vec!["app"], false));
    let found = of_runc("by-hand", &pod(Some("prod"), "shop", "web"), None);
    assert_eq!(
        (found.runtime, found.names.len(), found.kubernetes()),
        (Runtime::Runc, 0, None)
    );

    // CRI-O copies what a pod is annotated with.
    let mut chosen = pod_of_cri_o();
    for (key, value) in [
        ("io.kubernetes.cri.sandbox-name", "vault"),
        ("io.kubernetes.cri.container-name", "db"),
        ("io.kubernetes.cri.sandbox-namespace", "bank"),
        ("io.kubernetes.cri.container-type", "sandbox"),
        ("io.kubernetes.anything", "x"),
        ("app", "web"),
    ] {
        chosen[key] = json!(value);
    }
    let noted = "{\"pod-name\":\"shop\",\"pod-id\":\"pod\",\"name\":\"k8s_web\"}";
    for (name, entry) in [
        ("cri-o", None),
        (
            "cri-o-stored",
            Some(json!({ "id": "abcdef", "names": ["k8s_web_shop"], "metadata": noted })),
        ),
    ] {
        let found = of_runc(name, &chosen, entry);
        assert_eq!(found.runtime, Runtime::Kubernetes, "{name}");
        assert_eq!(
            found.names,
            ["shop/web", "prod/shop/web", "prod.shop.web"],
            "{name}"
        );
        assert_eq!(found.kubernetes(), Some(crate::KubernetesRuntime::CriO), "{name}");
        assert!(
            !found.labels_are_all && !found.labels.contains_key("app"),
            "{found:?}"
        );
        assert!(
            !keys(&found)
                .iter()
                .any(|key| key.starts_with("io.kubernetes.cri.")),
            "{found:?}"
        );
        assert!(!found.labels.contains_key("io.kubernetes.anything"), "{found:?}");
    }
}

#[test]
fn an_image_s_author_gives_neither_names_nor_labels_of_podman() {
    let entry = || {
        Some(json!({ "id": "abcdef", "names": ["db"], "metadata": "{\"name\":\"db\",\"image-id\":\"x\"}" }))
    };
    let mut annotations = pod_of_cri_o();
    annotations["app"] = json!("web");
    // The image may name the manager, and Podman leaves it.
    for manager in ["libpod", "cri-o", "else"] {
        annotations["io.container.manager"] = json!(manager);
        let found = of_runc(&format!("podman-{manager}"), &annotations, entry());
        assert_eq!(
            (found.runtime, &found.names[..]),
            (Runtime::Podman, &["db".to_owned()][..])
        );
        assert!(found.labels.is_empty() && !found.labels_are_all, "{found:?}");
        assert_eq!(found.kubernetes(), None);
    }
    // Without a list, what lies in a storage is not by hand.
    let other = Some(json!({ "id": "another" }));
    let found = of_runc(
        "unlisted",
        &json!({ "app": "web", "io.container.manager": "else" }),
        other,
    );
    assert_eq!((found.runtime, found.labels.len()), (Runtime::Podman, 0));
    assert!(!found.labels_are_all);
}

#[test]
fn labels_of_docker_s_images_make_no_names_of_kubernetes() {
    let read = |name: &str, labels: Value, annotations: Value| {
        let place = Place::new(name);
        let state = json!({ "init_process_pid": 79,
            "config": { "labels": [format!("bundle={}", place.0.join("bundle").display())] } });
        place.write("moby/abcdef/state.json", &state.to_string());
        let config = json!({ "annotations": annotations }).to_string();
        place.write("bundle/config.json", &config);
        let config = json!({ "Name": "/web", "Config": { "Labels": labels } });
        place.write("containers/abcdef/config.v2.json", &config.to_string());
        let roots = SearchPaths {
            runtimes: place.path("moby"),
            docker: place.path("containers"),
            ..SearchPaths::none()
        };
        roots.read().pop().expect("it is found")
    };
    let found = read("docker-plain", json!({ "app": "shop" }), json!({}));
    assert_eq!((keys(&found), found.labels_are_all), (vec!["app"], true));
    let found = read(
        "docker-pod",
        json!({ "app": "shop", "io.kubernetes.pod.name": "shop", "io.kubernetes.container.name": "web",
            "io.kubernetes.pod.namespace": "prod", "io.container.manager": "cri-o" }),
        json!({}),
    );
    assert_eq!((found.runtime, found.display_name()), (Runtime::Docker, "web"));
    assert_eq!(found.names, ["web"]);
    // What was dropped is not known to be absent.
    assert_eq!((keys(&found), found.labels_are_all), (vec!["app"], false));
    let many: serde_json::Map<String, Value> = (0..=256).map(|n| (format!("l{n}"), json!(""))).collect();
    let found = read("docker-many", Value::Object(many), json!({}));
    assert!(found.labels.is_empty() && !found.labels_are_all, "{found:?}");
    let found = read("docker-annotated", json!({}), json!({ "io.kubernetes.x": "y" }));
    assert!(found.labels.is_empty() && !found.labels_are_all, "{found:?}");
}

#[test]
fn labels_are_all_only_where_nobody_else_keeps_some() {
    let of = |annotations: Value| {
        let found = of_runc("all", &annotations, None);
        (found.labels.len(), found.labels_are_all)
    };
    assert_eq!(of(json!({ "app": "web", "tier": "front" })), (2, true));
    assert_eq!(of(json!({})), (0, true));
    assert_eq!(of(json!({ "app": "web", "io.kubernetes.x": "y" })), (1, false));
    assert_eq!(
        of(json!({ "app": "web", "io.container.manager": "else" })),
        (1, false)
    );
    assert!(!of(json!({ "io.container.manager": "cri-o" })).1);
    // So many and so long ones are taken, and no more.
    let many = |n: usize| Value::Object((0..n).map(|n| (format!("l{n}"), json!("x"))).collect());
    assert_eq!(of(many(256)), (256, true));
    assert_eq!(of(many(257)), (0, false));
    assert_eq!(of(json!({ "a": "x".repeat((16 << 10) - 1) })), (1, true));
    assert_eq!(of(json!({ "a": "x".repeat(16 << 10) })), (0, false));
}

#[test]
fn what_cannot_be_shown_is_no_name() {
    let found = of_containerd("escape", "k8s.io", &pod(Some("prod"), "shop\u{1b}[2J", "web"));
    assert_eq!(found.display_name(), "abcdef");
    for (name, is) in [
        ("web", true),
        ("Wéb-1_x.y", true),
        ("web\u{1b}[0m", false),
        ("web\n", false),
        ("bew\u{202e}", false),
        ("we\u{200b}b", false),
        ("we\u{2066}b", false),
        ("web\u{9b}", false),
    ] {
        let place = Place::new("printable");
        place.write(
            "storage/containers.json",
            &json!([{ "id": "beef", "names": [name] }]).to_string(),
        );
        place.write("crun/beef/status", "{\"pid\":8}");
        place.write(
            "machines/one",
            &format!("NAME={name}\nCLASS=container\nLEADER=6\n"),
        );
        let roots = SearchPaths {
            runtimes: place.path("crun"),
            storage: place.path("storage"),
            machines: place.path("machines"),
            ..SearchPaths::none()
        };
        let all = roots.read();
        let shown: Vec<&str> = all.iter().map(ContainerRecord::display_name).collect();
        match is {
            true => assert_eq!(shown, [name, name]),
            // A line of the file ends the name.
            false if name == "web\n" => assert_eq!(shown, ["beef", "web"]),
            false => assert_eq!(shown, ["beef"], "{name:?}"),
        }
    }
}
