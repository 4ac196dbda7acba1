//! What strangers' wrong passwords leave behind in memory: in a process of its own, because tests beside it allocate too.

use super::place::{Keys, Place, run};
use crate::RefusedKind;
use crate::cache;
use crate::caller::{Caller, CallerProof};
use crate::documents::{Secrets, User};
use crate::password::Kept;
use crate::service::Service;
use crate::totp::Seed;
use crate::users::secrets_key;
use fleetgate_proto::v1;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Told to the process that is measured.
const MEASURED: &str = "FLEETGATE_AUTH_MEMORY_TEST";
/// Users whose passwords are tried.
const USERS: usize = 200;
/// How often each is.
const ROUNDS: usize = 50;
/// Tries of names that nobody has, which take argon2's whole memory.
const HEAVY: usize = 400;
/// What may be left of all of it, in KB.
const LEFT: u64 = 5 * 1024;
/// How many tries are under way at once.
const AT_ONCE: usize = 40;

#[test]
fn ten_thousand_wrong_passwords_leave_memory_as_it_was() {
    const NAME: &str = "tests::memory::ten_thousand_wrong_passwords_leave_memory_as_it_was";
    if std::env::var_os(MEASURED).is_some() {
        return run(measure());
    }
    let own = std::env::current_exe().expect("this program");
    let mut child = Command::new(own);
    child.args(["--exact", NAME, "--nocapture", "--test-threads=1"]);
    let done = child.env(MEASURED, "1").output().expect("it starts");
    let text = String::from_utf8_lossy(&done.stderr);
    eprintln!("{text}");
    assert!(done.status.success() && text.contains("KB left"), "{text}");
}

async fn measure() {
    let place = Place::new().await;
    let service = place.service();
    let users: Vec<String> = (0..USERS).map(|n| format!("user{n}")).collect();
    for some in users.chunks(32) {
        let steps = some.iter().flat_map(|name| stored(name));
        assert!(
            service
                .ledger
                .attempt(steps.collect(), Vec::new())
                .await
                .expect("stored")
        );
    }
    // Once before, so that threads and tables are there.
    assert_eq!(tries(&service, &users).await, USERS);
    place.clock.advance(301);
    let before = resident();
    for heavy in 0..HEAVY / AT_ONCE {
        let names: Vec<String> = (0..AT_ONCE)
            .map(|n| format!("nobody{}", heavy * AT_ONCE + n))
            .collect();
        assert_eq!(tries(&service, &names).await, AT_ONCE);
        place.clock.advance(3);
    }
    for _ in 0..ROUNDS {
        place.clock.advance(301);
        assert_eq!(tries(&service, &users).await, USERS);
    }
    place.posted().await;
    drop(service);
    let most = resident();
    let guard = Instant::now() + Duration::from_secs(120);
    while resident() > before + LEFT && Instant::now() < guard {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let after = resident();
    eprintln!(
        "{before} KB before, {most} KB at the end, {after} KB after a rest: {} KB left",
        after.saturating_sub(before)
    );
    assert!(after <= before + LEFT, "{after} KB, and {before} KB before");
}

/// A wrong password for each name, each from a source of its own: how many were looked at and found wrong.
async fn tries(service: &Arc<Service>, names: &[String]) -> usize {
    let mut wrong = 0;
    for (at, some) in names.chunks(AT_ONCE).enumerate() {
        let mut under_way = tokio::task::JoinSet::new();
        for (n, name) in some.iter().enumerate() {
            let address = Ipv4Addr::from(0x0a00_0000 + (at * AT_ONCE + n) as u32);
            let caller = Caller {
                who: CallerProof::Nobody,
                address: Some(SocketAddr::from((address, 1024))),
            };
            let request = v1::LoginRequest {
                user: name.clone(),
                password: "wrong horse battery".to_string(),
                code: "000000".to_string(),
                keys: Some(Keys::fresh().request()),
                ..v1::LoginRequest::default()
            };
            let service = service.clone();
            under_way.spawn(async move { service.login(&caller, request).await.expect_err("wrong").kind });
        }
        while let Some(kind) = under_way.join_next().await {
            wrong += usize::from(kind.expect("it ends") == RefusedKind::Unproven);
        }
    }
    wrong
}

fn stored(name: &str) -> [fleetgate_store::Step; 2] {
    let user = User {
        roles: Vec::new(),
        active: true,
        made: 0,
    };
    let secrets = Secrets {
        password: Kept::light(),
        seed: Seed::fresh().expect("random numbers"),
        used: 0,
    };
    let key = secrets_key(&name.parse().expect("a name"));
    [
        cache::put(cache::key(&["users", name]), &user),
        cache::put(key, &secrets),
    ]
}

/// What this process has in memory, in KB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number
        .and_then(|number| number.trim().parse().ok())
        .expect("a number")
}
