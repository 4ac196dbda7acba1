//! Name services that hang or are slow: a login that waits for one stalls nobody else, and no time tells who has an
//! account.

use super::abuse::{KEPT, configuration};
use fleetgate_tests::by_hand::{Client, Kind, Said};
use fleetgate_tests::honest::Honest;
use fleetgate_tests::login_world::sh;
use fleetgate_tests::service::Manager;
use fleetgate_tests::weight::{Weight, settles};
use std::time::Duration;

/// Logins that wait for the name service at once.
const HANGING: usize = 3;
/// A name service that never answers about some.
const MODULE: &str = r#"
#include <nss.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>
enum nss_status _nss_fgtest_getpwnam_r(const char *name, struct passwd *pw, char *buf, size_t len, int *err) {
    (void)pw; (void)buf; (void)len; (void)err;
    if (strncmp(name, "hangs", 5) == 0) for (;;) pause();
    return NSS_STATUS_NOTFOUND;
}
"#;

#[test]
fn a_name_service_that_hangs_stalls_nobody_else() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    std::fs::write("/run/test/module.c", MODULE).expect("write");
    sh("set -e
        mkdir -p /run/test/lib /etc/ld.so.conf.d
        cc -shared -fPIC -o /run/test/lib/libnss_fgtest.so.2 /run/test/module.c
        echo /run/test/lib > /etc/ld.so.conf.d/0-fgtest.conf
        mkdir -p /var/cache/ldconfig; mount -t tmpfs none /var/cache/ldconfig
        ldconfig
        printf 'passwd: files fgtest\\ngroup: files\\nshadow: files\\nhosts: files\\n' > /etc/nsswitch.conf");
    let service = manager.start(&configuration("[limits]\nname_service = \"10s\"\n"));
    let mut honest = Honest::new(&service);
    let before = Weight::of(&service);
    // On a busy machine the time for an answer may be over before the others are in: then once more.
    let hanging = (0..5).find_map(|_| {
        let mut hanging: Vec<Client> = (0..HANGING)
            .map(|n| Kind::honest(&format!("hangs{n}")).connect())
            .collect();
        for client in &mut hanging {
            client.until("keys", |c| c.said.contains(&Said::Established));
            assert!(client.pushes());
        }
        for user in ["bea", "ada", "bea"] {
            let mut client = Client::login(user);
            assert_eq!(client.prints("echo in"), "in\n");
            client.leaves();
        }
        honest.answers();
        hanging.iter_mut().for_each(Client::turn);
        let waits = |c: &Client| !c.said.contains(&Said::Rejected);
        hanging.iter().all(waits).then_some(hanging)
    });
    let mut hanging = hanging.expect("others were let in while these waited");
    // They are let down in the end, each of them.
    for client in &mut hanging {
        client.until("an answer", |c| c.said.contains(&Said::Rejected));
    }
    for client in hanging {
        client.leaves();
    }
    settles("after a name service that hung", &service, &before, KEPT);
}

/// The share of pairs in which the first is larger: one half where nothing tells the two apart.
fn larger(these: &[Duration], those: &[Duration]) -> f64 {
    let pairs = these.iter().flat_map(|a| those.iter().map(move |b| (a, b)));
    let sum: f64 = pairs
        .map(|(a, b)| match a.cmp(b) {
            std::cmp::Ordering::Greater => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 0.0,
        })
        .sum();
    sum / (these.len() * those.len()) as f64
}

/// How long a login as `user` takes to be refused, by a key that nobody knows.
fn refused(user: &str) -> Duration {
    let mut client = Kind {
        key: "stranger",
        mute: true,
        ..Kind::honest(user)
    }
    .connect();
    client.until("keys", |c| c.said.contains(&Said::Established));
    let begin = std::time::Instant::now();
    client.authenticate();
    client.until("a refusal", |c| c.said.contains(&Said::Rejected));
    begin.elapsed()
}

/// What a directory on the network costs that has to be asked before the machine's own files.
const LOOK_UP: Duration = Duration::from_millis(200);
const SLOW_MODULE: &str = r#"
#include <nss.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>
enum nss_status _nss_fgslow_getpwnam_r(const char *n, struct passwd *p, char *b, size_t l, int *e) {
    (void)p, (void)b, (void)l, (void)e;
    if (!strncmp(n, "real", 4) || !strncmp(n, "none", 4))
        usleep(200000);
    return NSS_STATUS_NOTFOUND;
}
"#;

/// Whoever tries names learns by no time which of them have an account: not at the first try, and not at a second while
/// something of the first is still known. Two samples of 24 of the same distribution are further apart than the bound
/// once in 20,000 runs.
#[test]
fn accounts_cannot_be_told_by_time() {
    const NAMES: u32 = 24;
    const AT_ONCE: u32 = 3;
    const BOUND: f64 = 0.34;
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    std::fs::write("/run/test/slow.c", SLOW_MODULE).expect("write");
    sh("set -e
        for n in $(seq 100 123); do
            d=/run/home/real$n
            echo real$n:x:$((54000 + n)):54322::$d:/bin/sh >> /etc/passwd
            echo \"real$n:*:19000:0:99999:7:::\" >> /etc/shadow
            mkdir -p $d/.ssh
            cp /run/home/ada/.ssh/authorized_keys $d/.ssh
            chown -R $((54000 + n)):54322 $d
            chmod 700 $d $d/.ssh
        done
        mkdir -p /run/test/lib /etc/ld.so.conf.d
        cc -shared -fPIC -o /run/test/lib/libnss_fgslow.so.2 /run/test/slow.c
        echo /run/test/lib > /etc/ld.so.conf.d/0-fgslow.conf
        mkdir -p /var/cache/ldconfig; mount -t tmpfs none /var/cache/ldconfig
        ldconfig
        printf 'passwd: fgslow files\\ngroup: files\\nshadow: files\\nhosts: files\\n' > /etc/nsswitch.conf");
    let _service = manager.start(&configuration(""));
    // The first of all makes the node read what it reads once.
    refused("real1");
    let (mut first, mut second) = (Samples::default(), Samples::default());
    for from in (100..100 + NAMES).step_by(AT_ONCE as usize) {
        let batch = from..from + AT_ONCE;
        // Accounts and others in turn, so that whatever else the machine does hits both.
        batch.clone().for_each(|n| first.add(n));
        // What is known for two seconds is forgotten, what is known for five is not.
        let _ = fleetgate_sys::poll::poll(&mut [], Some(2200));
        batch.for_each(|n| second.add(n));
    }
    for (which, Samples { real, none }) in [("first", &first), ("second", &second)] {
        let found = larger(real, none);
        println!("{which} probes: {found:.3}; {real:?} {none:?}");
        // The same statistics see the time of one look-up.
        let later: Vec<Duration> = none.iter().map(|t| *t + LOOK_UP).collect();
        assert!(
            larger(&later, none) >= 0.5 + BOUND,
            "it would see nothing: {none:?}"
        );
        assert!(
            (found - 0.5).abs() < BOUND,
            "accounts are told by the time of their {which} refusal: {found:.3}"
        );
    }
}

/// How long refusals took, of accounts and of names that nobody has.
#[derive(Default)]
struct Samples {
    real: Vec<Duration>,
    none: Vec<Duration>,
}

impl Samples {
    fn add(&mut self, n: u32) {
        self.real.push(refused(&format!("real{n}")));
        self.none.push(refused(&format!("none{n}")));
    }
}
