//! Logins into containers that roles choose by labels.

use super::*;

/// `alice` into the container `web` of db1, by roles that look at labels.
fn into_web(container: ContainerLabels<'_>, change: impl FnOnce(&mut Role)) -> Result<Allowed, String> {
    let (apps, mut front) = (
        role("apps", "*", &["deploy+*"], |r| {
            r.containers = vec![Selector::parse("app=web").unwrap()];
            r.kinds = vec![Kind::Shell];
        }),
        role("front", "*", &["deploy", "deploy+w*"], |r| {
            r.containers = vec![Selector::parse("tier=front,app!=db").unwrap()];
            r.kinds = vec![Kind::Exec];
        }),
    );
    change(&mut front.1);
    into_web_by(BTreeMap::from([apps, front]), container)
}

fn into_web_by(roles: BTreeMap<Name, Role>, container: ContainerLabels<'_>) -> Result<Allowed, String> {
    let identity = alice(&["apps", "front"]).identity;
    let decided = decide(&Attempt {
        identity: &identity,
        expires: None,
        cluster: &name("c"),
        roles: &roles,
        locks: &Locks::default(),
        node: &name("db1"),
        labels: &Labels::new(),
        login: "deploy+web",
        container,
        now: NOW,
        skew: SKEW,
    });
    decided.map_err(|refusal| refusal.words)
}

#[test]
fn a_role_with_labels_counts_for_containers_that_have_them() {
    let may = |pairs: &[(&str, &str)]| {
        let labels = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let labels: BTreeMap<String, String> = labels.collect();
        let known = ContainerLabels::Known {
            labels: &labels,
            are_all: true,
            missing: None,
        };
        let allowed = into_web(known, |_| {})?;
        let kinds = [Kind::Shell, Kind::Exec].map(|kind| allowed.permits.allow_kind(kind).is_ok());
        Ok::<_, String>(kinds)
    };
    // Each role gives what it allows only where its own labels are.
    assert_eq!(may(&[("app", "web")]), Ok([true, false]));
    assert_eq!(may(&[("tier", "front")]), Ok([false, true]));
    assert_eq!(may(&[("tier", "front"), ("app", "web")]), Ok([true, true]));
    let words = "by roles apps and front, alice enters containers with app=web or tier=front,app!=db as deploy on db1, and web is \
                 not one of those: ask an administrator for a role that allows it";
    assert_eq!(may(&[("tier", "front"), ("app", "db")]), Err(words.to_owned()));
    assert_eq!(may(&[]), Err(words.to_owned()));
    // Before anybody looked, both may count; where no container can be, neither does.
    let unknown = into_web(ContainerLabels::Unknown, |_| {}).expect("it may be");
    assert_eq!(unknown.roles, [name("apps"), name("front")]);
    assert!(into_web(ContainerLabels::NoContainers, |_| {}).is_err());
    let free = into_web(ContainerLabels::NoContainers, |role| role.containers.clear());
    assert_eq!(free.expect("by name alone").roles, [name("front")]);
}

#[test]
fn labels_that_do_not_fit_and_those_that_are_not_known_have_words_of_their_own() {
    let none = BTreeMap::new();
    let web = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let known = |labels, are_all, missing| ContainerLabels::Known {
        labels,
        are_all,
        missing,
    };
    let unread = "it is not known whether web is one of those: its labels are kept where the node does not read (Podman's, and \
                  containerd's without Kubernetes): ask an administrator for a role that names deploy+web in its logins, without \
                  `containers`";
    let silent =
        "it is not known whether web is one of those: its labels of Kubernetes are not known: no answer";
    let unfit = "web has none of that: ask an administrator for a role that allows it";
    let excluded = "web is not one of those: ask an administrator for a role that allows it";
    let plain = "db1 has a plain sshd, which enters no containers";
    for (selector, container, wanted) in [
        ("app=shop", known(&web, true, None), unfit),
        // What is known speaks against it already.
        ("app=shop", known(&web, false, None), unfit),
        ("app!=web", known(&web, true, None), excluded),
        ("app!=web", known(&web, false, None), excluded),
        ("app=shop", known(&none, true, None), unfit),
        ("app=shop", known(&none, false, None), unread),
        ("app!=web", known(&none, false, None), unread),
        ("app=web,tier=front", known(&web, false, None), unread),
        ("app=shop", known(&none, false, Some("no answer")), silent),
        ("app=shop", ContainerLabels::NoContainers, NO_CONTAINERS),
        ("app=shop", ContainerLabels::PlainSshd, plain),
    ] {
        let front = role("front", "*", &["deploy+*"], |r| {
            r.containers = vec![Selector::parse(selector).unwrap()];
        });
        let words = into_web_by(BTreeMap::from([front]), container).expect_err("refused");
        let (_, why) = words.split_once(" on db1, and ").expect("why");
        assert_eq!(why, wanted, "{selector} {container:?}");
    }
}
