//! What pods' owners choose, within bounds: too much of it, names that only Kubernetes gives, and what those behind lose by it.

use super::*;

#[test]
fn labels_of_a_pod_are_bounded_and_printable() {
    let many = (0..=MAX_LABELS).map(|n| (format!("label{n}"), String::new()));
    let long = "x".repeat(MAX_BYTES);
    for (name, pod, said) in [
        ("many", many.collect::<Map>(), "too many labels"),
        ("long", map(&[("app", &long)]), "too many labels, or too long"),
        ("escape", map(&[("app", "\u{1b}]0;x\u{7}")]), "cannot be printed"),
        ("turned", map(&[("app\u{202e}", "web")]), "cannot be printed"),
        ("lines", map(&[("app", "web\nroot")]), "cannot be printed"),
    ] {
        let place = Place::new(name);
        place.serves(Fake {
            pod,
            ids: vec!["web".to_owned()],
            ..Fake::default()
        });
        let told = why(&place.pods());
        assert!(told.contains(said), "{name}: {told}");
    }
}

#[test]
fn a_name_of_kubernetes_counts_where_the_container_has_it() {
    let place = Place::new("reserved");
    let container = map(&[("io.kubernetes.pod.namespace", "prod")]);
    let fake = |pod: &[(&str, &str)]| Fake {
        pod: map(pod),
        container: container.clone(),
        ids: vec!["web".to_owned()],
        ..Fake::default()
    };
    place.serves(fake(&[("app", "shop"), ("io.kubernetes.pod.namespace", "bank")]));
    let (found, _) = asked(&place.pods());
    assert_eq!(found.labels["io.kubernetes.pod.namespace"], "prod");
    assert!(found.labels_are_all, "{found:?}");

    // Of others nobody says that they are not there.
    let place = Place::new("invented");
    place.serves(fake(&[("app", "shop"), ("io.kubernetes.container.name", "db")]));
    let (found, _) = asked(&place.pods());
    assert_eq!(
        found.labels.keys().collect::<Vec<_>>(),
        ["app", "io.kubernetes.pod.namespace"]
    );
    assert!(!found.labels_are_all, "{found:?}");
}

#[test]
fn where_asking_fails_labels_are_not_all_known() {
    let place = Place::new("failed");
    let mut found = super::container("web");
    // As what looked at the disk may have left it.
    found.labels_are_all = true;
    place.pods().add_to([&mut found]);
    assert!(
        found.labels_missing.is_some() && !found.labels_are_all,
        "{found:?}"
    );
}

#[test]
fn pods_with_huge_labels_take_nothing_from_those_behind() {
    let place = Place::new("behind");
    let ids: Vec<String> = (0..8)
        .map(|n| format!("huge{n}"))
        .chain(["web".to_owned()])
        .collect();
    let huge = map(&[("app", &"x".repeat(ANSWER))]);
    let long = map(&[("app", &"x".repeat(ANSWER - 10_000))]);
    let pods = ids.iter().take(8).enumerate();
    let fake = Fake {
        pods: pods
            .map(|(n, id)| (id.clone(), [&huge, &long][n % 2].clone()))
            .collect(),
        pod: map(&[("app", "shop")]),
        ids: ids.clone(),
        ..Fake::default()
    };
    place.serves(fake);
    let mut all: Vec<ContainerRecord> = ids.iter().map(|id| container(id)).collect();
    place.pods().add_to(&mut all);
    for (n, found) in all[..8].iter().enumerate() {
        let missing = found.labels_missing.as_ref().expect("a reason");
        let said = ["said more about it than is read", "too long ones"][n % 2];
        assert!(missing.contains(said) && !found.labels_are_all, "{n}: {missing}");
    }
    assert_eq!(all[8].labels_missing, None);
    assert_eq!(all[8].labels["app"], "shop");
}

#[test]
fn labels_that_cannot_be_taken_are_not_asked_for_again() {
    for (name, value, said) in [
        ("again-long", "x".repeat(MAX_BYTES), "too long ones"),
        ("again-escape", "\u{1b}".to_owned(), "cannot be printed"),
        ("again-huge", "x".repeat(ANSWER), "said more about it"),
    ] {
        let place = Place::new(name);
        let came = place.serves(Fake {
            pod: map(&[("app", &value)]),
            ids: vec!["web".to_owned()],
            ..Fake::default()
        });
        let paths = place.task("web");
        let pods = place.pods();
        let begun = Instant::now();
        loop {
            let before = came.load(Relaxed);
            let mut all = list(&paths);
            pods.add_to(&mut all);
            let missing = all[0].labels_missing.as_ref().expect("a reason");
            assert!(missing.contains(said) && !all[0].labels_are_all, "{missing}");
            if came.load(Relaxed) == before {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{name}: it is asked again and again");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
