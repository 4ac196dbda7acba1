//! Penalties, places and sums in virtual time.

use super::*;
use std::cell::Cell;
use std::collections::HashMap;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(1_000 + seconds)
}

/// For how many seconds a connection is refused.
fn refused(penalties: &Penalties, source: &str, now: Duration) -> Option<u64> {
    penalties
        .refuses_connection(ip(source), now)
        .map(|left| left.as_secs())
}

#[test]
fn offences_add_up_and_decay() {
    use Offence::*;
    let settings = Settings::default();
    // (offences at their seconds, then what is left at a second)
    type Row<'a> = (&'a [(u64, Offence)], u64, Option<u64>);
    let rows: &[Row<'_>] = &[
        (&[], 0, None),
        (&[(0, WrongPassword)], 0, None),
        (&[(0, WrongPassword), (0, WrongPassword)], 0, None),
        (
            &[(0, WrongPassword), (0, WrongPassword), (0, WrongPassword)],
            0,
            Some(15),
        ),
        (
            &[(0, WrongPassword), (0, WrongPassword), (0, WrongPassword)],
            14,
            Some(1),
        ),
        (
            &[(0, WrongPassword), (0, WrongPassword), (0, WrongPassword)],
            15,
            None,
        ),
        // Slow enough to have decayed before it adds up.
        (
            &[(0, WrongPassword), (5, WrongPassword), (10, WrongPassword)],
            10,
            None,
        ),
        (&[(0, TooLate), (0, WrongPassword)], 0, Some(15)),
        // Once it holds it holds until it is gone, and more makes it longer.
        (&[(0, TooLate), (0, TooLate), (18, NoLogin)], 18, Some(3)),
        // After that it begins anew.
        (&[(0, TooLate), (0, TooLate), (20, TooLate)], 20, None),
        (
            &[
                (0, Garbage),
                (0, Garbage),
                (0, WrongKey),
                (0, WrongKey),
                (0, NoLogin),
            ],
            0,
            Some(15),
        ),
    ];
    for (offences, second, left) in rows {
        let mut penalties = Penalties::new(settings.clone());
        for (second, offence) in *offences {
            penalties.offend(ip("192.0.2.1"), *offence, at(*second));
        }
        assert_eq!(
            refused(&penalties, "192.0.2.1", at(*second)),
            *left,
            "{offences:?} {second}"
        );
        assert_eq!(refused(&penalties, "192.0.2.2", at(*second)), None, "nobody else");
    }
    // However much: no longer than the longest.
    let mut penalties = Penalties::new(settings.clone());
    for _ in 0..10_000 {
        penalties.offend(ip("192.0.2.1"), TooLate, at(0));
    }
    assert_eq!(
        refused(&penalties, "192.0.2.1", at(0)),
        Some(settings.most.as_secs())
    );
    assert_eq!(refused(&penalties, "192.0.2.1", at(600)), None);
}

#[test]
fn guesses_of_one_source_come_one_by_one_however_fast_they_are_sent() {
    // An hour of twenty passwords a second: how many are tried?
    let mut penalties = Penalties::new(Settings::default());
    let mut tried = 0;
    for tick in 0..20 * 3_600 {
        let now = Duration::from_millis(50 * tick);
        if penalties
            .refuses_password(ip("192.0.2.1"), b"root", now)
            .is_none()
        {
            penalties.wrong_password(ip("192.0.2.1"), b"root", now);
            tried += 1;
        }
    }
    // Three, and then fifteen seconds of nothing.
    assert!((700..=730).contains(&tried), "{tried}");
}

#[test]
fn exempt_addresses_never_pay_and_prefixes_make_a_source() {
    let settings = Settings {
        exempt: vec![Network::parse("10.0.0.0/8").unwrap()],
        prefixes: Prefixes { v4: 24, v6: 56 },
        ..Settings::default()
    };
    let mut penalties = Penalties::new(settings);
    for source in ["10.1.2.3", "::ffff:192.0.2.1", "2001:db8:0:ff::1"] {
        for _ in 0..3 {
            penalties.wrong_password(ip(source), b"root", at(0));
        }
    }
    for (source, left) in [
        ("10.1.2.3", None),
        ("192.0.2.77", Some(15)),
        ("192.0.3.1", None),
        ("2001:db8:0:1::1", Some(15)),
        ("2001:db8:0:100::1", None),
    ] {
        assert_eq!(refused(&penalties, source, at(0)), left, "{source}");
    }
    // The rules change; what was done stays.
    penalties.set(Settings {
        penalties: false,
        ..penalties.settings().clone()
    });
    assert_eq!(refused(&penalties, "192.0.2.77", at(0)), None);
}

#[test]
fn one_fool_behind_an_address_shuts_nobody_out_who_logged_in_from_there() {
    let office = "192.0.2.1";
    let mut penalties = Penalties::new(Settings::default());
    penalties.logged_in(ip(office), b"ann", true, at(0));
    penalties.logged_in(ip(office), b"kim", false, at(0));
    for _ in 0..100 {
        penalties.wrong_password(ip(office), b"bob", at(1));
        penalties.offend(ip(office), Offence::TooLate, at(1));
    }
    // Connections come in, so keys do; of passwords only those of who had a right one.
    assert_eq!(refused(&penalties, office, at(1)), None);
    let wait = |penalties: &mut Penalties, account: &[u8], now| {
        penalties
            .refuses_password(ip(office), account, now)
            .map(|left| left.as_secs())
    };
    assert_eq!(wait(&mut penalties, b"bob", at(1)), Some(600));
    assert_eq!(wait(&mut penalties, b"ann", at(1)), None);
    assert_eq!(
        wait(&mut penalties, b"kim", at(1)),
        Some(600),
        "his key was right, no password"
    );
    // Her own slips are hers, and guesses for her name are as slow as anybody's.
    for _ in 0..3 {
        penalties.wrong_password(ip(office), b"ann", at(700));
    }
    assert_eq!(wait(&mut penalties, b"ann", at(700)), Some(15));
    assert_eq!(wait(&mut penalties, b"bob", at(700)), None);
    penalties.logged_in(ip(office), b"ann", true, at(701));
    assert_eq!(wait(&mut penalties, b"ann", at(701)), None, "paid by a right one");
    // A login by somebody does not pay for others: an account of one's own resets nothing.
    for _ in 0..3 {
        penalties.wrong_password(ip(office), b"bob", at(702));
    }
    penalties.logged_in(ip(office), b"ann", true, at(702));
    assert_eq!(wait(&mut penalties, b"bob", at(702)), Some(15));
    // A day later the source is like any other.
    let later = at(702) + Settings::default().known_for;
    for _ in 0..3 {
        penalties.wrong_password(ip(office), b"ann", later);
    }
    assert_eq!(refused(&penalties, office, later), Some(15));
}

#[test]
fn tables_of_penalties_do_not_grow_and_forget_those_first_that_end_first() {
    let mut penalties = Penalties::new(Settings {
        prefixes: Prefixes { v4: 32, v6: 128 },
        ..Settings::default()
    });
    let worst = ip("192.0.2.1");
    for _ in 0..10 {
        penalties.offend(worst, Offence::TooLate, at(0));
    }
    penalties.logged_in(ip("192.0.2.9"), b"ann", true, at(0));
    for n in 0..4 * MAX_SOURCES as u128 {
        penalties.offend(IpAddr::V6(n.into()), Offence::NoLogin, at(0));
        assert!(penalties.sources.0.len() <= MAX_SOURCES);
    }
    assert_eq!(refused(&penalties, "192.0.2.1", at(0)), Some(100));
    assert!(
        penalties.is_known(&Network::around(ip("192.0.2.9"), 32), at(0)),
        "strangers cannot push it out"
    );
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let wrong = |change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    };
    assert!(Settings::default().check().is_ok());
    assert!(wrong(&|s| s.prefixes.v4 = 0).contains("ipv4_prefix"));
    assert!(wrong(&|s| s.prefixes.v6 = 129).contains("ipv6_prefix"));
    assert!(wrong(&|s| s.most = Duration::from_secs(14)).contains("penalty_max"));
    assert!(wrong(&|s| s.most = Duration::from_secs(86_401)).contains("a day"));
    assert!(wrong(&|s| s.least = Duration::ZERO).contains("penalty_min"));
}

#[test]
fn no_time_is_so_long_that_the_clock_runs_over() {
    let year = Duration::from_secs(365 * 86_400);
    type Field = fn(&mut Settings) -> &mut Duration;
    let fields: [(&str, Field); 8] = [
        ("wrong_password", |s| &mut s.costs.wrong_password),
        ("wrong_key", |s| &mut s.costs.wrong_key),
        ("no_login", |s| &mut s.costs.no_login),
        ("too_late", |s| &mut s.costs.too_late),
        ("garbage", |s| &mut s.costs.garbage),
        ("known_for", |s| &mut s.known_for),
        // A day is the most.
        ("penalty_max", |s| &mut s.most),
        ("penalty_max", |s| &mut s.least),
    ];
    for (name, field) in fields {
        for long in [year + Duration::from_secs(1), Duration::from_secs(u64::MAX)] {
            let mut settings = Settings::default();
            *field(&mut settings) = long;
            let why = settings.check().unwrap_err().to_string();
            assert!(why.contains(name), "{name}: {why}");
        }
    }
    let settings = Settings {
        costs: Costs {
            wrong_password: year,
            wrong_key: year,
            no_login: year,
            too_late: year,
            garbage: year,
        },
        known_for: year,
        ..Settings::default()
    };
    assert_eq!(settings.check(), Ok(()));
    let mut penalties = Penalties::new(settings);
    penalties.offend(ip("192.0.2.1"), Offence::Garbage, at(0));
    assert_eq!(refused(&penalties, "192.0.2.1", at(0)), Some(600));
    penalties.logged_in(ip("192.0.2.2"), b"ada", true, at(0));
    assert!(penalties.is_known(&source("192.0.2.2"), at(86_400)));
}

fn source(text: &str) -> Network {
    Prefixes::default().source(ip(text))
}

const BOUNDS: Bounds = Bounds {
    all: 512,
    of_source: 256,
};

/// Adds one if it comes in, in place of another if it must be.
fn comes(waiting: &mut WaitingConnections<u64>, from: &str, number: u64, random: u32) -> Admission<u64> {
    let admission = waiting.admit(
        &source(from),
        BOUNDS,
        |known| *known == source("10.0.0.9"),
        || random,
    );
    if let Admission::InPlaceOf(victim) = admission {
        let of: HashMap<u64, Network> = waiting
            .of
            .iter()
            .flat_map(|(s, v)| v.ones.iter().map(|n| (*n, *s)))
            .collect();
        waiting.remove(&of[&victim], victim);
    }
    if !matches!(admission, Admission::Refused(_)) {
        waiting.add(source(from), number);
    }
    assert!(waiting.len() <= BOUNDS.all);
    admission
}

#[test]
fn two_greedy_sources_shut_out_no_third() {
    let mut waiting = WaitingConnections::default();
    for n in 0..2_000 {
        // The highest number there is never hits by chance: nobody is refused early.
        comes(
            &mut waiting,
            ["192.0.2.1", "192.0.2.2"][n % 2],
            n as u64,
            u32::MAX,
        );
    }
    assert_eq!(waiting.len(), 512);
    for n in 0..20 {
        let third = comes(&mut waiting, "192.0.2.3", 10_000 + n, 7);
        assert!(
            matches!(third, Admission::InPlaceOf(victim) if victim < 10_000),
            "{third:?}"
        );
    }
    // Their own next ones are refused.
    assert_eq!(
        comes(&mut waiting, "192.0.2.1", 20_000, 0),
        Admission::Refused(Full::All)
    );
}

#[test]
fn many_sources_with_little_each_give_way_at_random() {
    let mut waiting = WaitingConnections::default();
    for n in 0..512 {
        let from = format!("10.1.{}.{}", n / 256, n % 256);
        assert_eq!(comes(&mut waiting, &from, n, 0), Admission::Free);
    }
    let one = comes(&mut waiting, "192.0.2.3", 1_000, 0);
    assert!(matches!(one, Admission::InPlaceOf(_)), "{one:?}");
    // Somebody who has one already waits for it.
    assert_eq!(
        comes(&mut waiting, "192.0.2.3", 1_001, 0),
        Admission::Refused(Full::All)
    );
}

#[test]
fn a_source_with_more_than_its_share_is_refused_early_and_more_and_more() {
    let mut waiting = WaitingConnections::default();
    for n in 0..200 {
        comes(&mut waiting, "192.0.2.1", n, 0);
    }
    for n in 0..200 {
        comes(&mut waiting, &format!("10.0.1.{n}"), 1_000 + n, 0);
    }
    // 400 of 512 wait: 144 of 256 times the greedy one is refused; the others never.
    let chance = |waiting: &WaitingConnections<u64>, from: &str| {
        (0..256)
            .filter(|n| {
                waiting.admit(&source(from), BOUNDS, |_| false, || *n) == Admission::Refused(Full::Share)
            })
            .count()
    };
    assert_eq!(chance(&waiting, "192.0.2.1"), 144);
    assert_eq!(chance(&waiting, "10.0.1.7"), 0);
    assert_eq!(chance(&waiting, "192.0.2.2"), 0);
    // Half as many again, and it is more often.
    for n in 0..50 {
        comes(&mut waiting, &format!("10.0.2.{n}"), 2_000 + n, 0);
    }
    assert_eq!(chance(&waiting, "192.0.2.1"), 194);
}

#[test]
fn a_known_source_counts_for_a_quarter_and_has_its_bound_none_the_less() {
    let mut waiting = WaitingConnections::default();
    for n in 0..300 {
        comes(&mut waiting, "10.0.0.9", n, u32::MAX);
    }
    assert_eq!(waiting.len(), 256, "its bound");
    for n in 0..300 {
        comes(&mut waiting, "192.0.2.1", 1_000 + n, u32::MAX);
    }
    assert_eq!(waiting.len(), 512);
    // The stranger's go, not those of the office.
    let third = comes(&mut waiting, "192.0.2.3", 5_000, 3);
    assert!(
        matches!(third, Admission::InPlaceOf(victim) if (1_000..2_000).contains(&victim)),
        "{third:?}"
    );
}

#[test]
fn a_flood_from_everywhere_costs_no_look_at_every_source() {
    let mut waiting = WaitingConnections::default();
    let address = |n: u64| source(&format!("10.{}.{}.1", n / 256, n % 256));
    for n in 0..512 {
        waiting.add(address(n), n);
    }
    let looks = Cell::new(0);
    let is_known = |_: &Network| {
        looks.set(looks.get() + 1);
        false
    };
    let mut victims = std::collections::HashSet::new();
    for n in 0..1_000_u32 {
        match waiting.admit(&source("192.0.2.1"), BOUNDS, is_known, || {
            n.wrapping_mul(2_654_435_761)
        }) {
            Admission::InPlaceOf(victim) => victims.insert(victim),
            refused => panic!("{refused:?}"),
        };
    }
    assert!(looks.get() <= 2_000, "{}", looks.get());
    // It goes by chance, and not by who has the highest address.
    assert!(victims.len() > 256, "{}", victims.len());
}

#[test]
fn the_greediest_is_found_whatever_came_and_went() {
    let mut waiting: WaitingConnections<u64> = WaitingConnections::default();
    let mut model: HashMap<Network, Vec<u64>> = HashMap::new();
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut roll = |n: u64| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % n
    };
    let bounds = Bounds {
        all: 0,
        of_source: 1_000,
    };
    // Every third is known, and counts for a quarter.
    let is_known = |network: &Network| {
        (0..60)
            .step_by(3)
            .any(|n| *network == source(&format!("10.0.0.{n}")))
    };
    let weight = |network: &Network, has: usize| if is_known(network) { has / 4 } else { has };
    for number in 0..5_000 {
        let few = 1 + roll(60);
        let from = source(&format!("10.0.0.{}", roll(few)));
        match roll(5) {
            0 | 1 => {
                let held = model.entry(from).or_default();
                if !held.is_empty() {
                    let gone = held.swap_remove(roll(held.len() as u64) as usize);
                    waiting.remove(&from, gone);
                }
            }
            _ => {
                model.entry(from).or_default().push(number);
                waiting.add(from, number);
            }
        }
        model.retain(|_, held| !held.is_empty());
        let newcomer = source(&format!("10.0.0.{}", roll(60)));
        let own = weight(&newcomer, model.get(&newcomer).map_or(0, Vec::len));
        let most = model
            .iter()
            .map(|(s, held)| weight(s, held.len()))
            .max()
            .unwrap_or(0);
        let random = roll(1 << 31) as u32;
        match waiting.admit(&newcomer, bounds, is_known, || random) {
            Admission::InPlaceOf(victim) => {
                let (source, held) = model
                    .iter()
                    .find(|(_, held)| held.contains(&victim))
                    .expect("it is there");
                assert_eq!(weight(source, held.len()), most, "{number}");
                assert!(most > own, "{number}");
            }
            Admission::Refused(Full::All) => assert!(most <= own, "{number}: {most} {own}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(waiting.len(), model.values().map(Vec::len).sum::<usize>());
    }
}

#[test]
fn removing_what_is_not_there_changes_nothing() {
    let mut waiting = WaitingConnections::default();
    waiting.add(source("192.0.2.1"), 1);
    waiting.remove(&source("192.0.2.1"), 2);
    waiting.remove(&source("192.0.2.2"), 1);
    assert_eq!(waiting.len(), 1);
    waiting.remove(&source("192.0.2.1"), 1);
    assert!(waiting.is_empty() && waiting.of.is_empty());
}

#[test]
fn the_first_of_a_source_have_lines_and_the_rest_is_summed() {
    let mut sums = Sums::new(3);
    let one = source("192.0.2.1");
    for n in 0..10u64 {
        let has = sums.has_line(one, "login_refused", n, at(n));
        assert_eq!(has, n < 3, "{n}");
    }
    for n in 11..15 {
        assert_eq!(sums.has_line(one, "connection_ended", n, at(11)), n < 14);
    }
    assert!(sums.has_line(source("192.0.2.2"), "login_refused", 12, at(12)));
    assert_eq!(sums.ends(), Some(at(0) + WINDOW));
    let sum = |what, count, first, last| Sum {
        source: Some(one),
        what,
        count,
        first,
        last,
    };
    assert_eq!(
        sums.take(),
        [sum("connection_ended", 1, 14, 14), sum("login_refused", 7, 3, 9)]
    );
    // Anew.
    assert_eq!((sums.ends(), sums.take()), (None, Vec::new()));
    assert!(sums.has_line(one, "login_refused", 70, at(70)));
}

#[test]
fn a_flood_from_everywhere_is_a_bounded_number_of_lines() {
    let mut sums = Sums::new(10);
    let lines = (0..100_000u128)
        .filter(|n| {
            let source = Network::around(IpAddr::V6((n << 64).into()), 64);
            ["login_refused", "connection_ended", "connection_refused"]
                .iter()
                .filter(|what| sums.has_line(source, what, *n, at(0)))
                .count()
                > 0
        })
        .count();
    let summed = sums.take();
    assert!(lines <= 100, "{lines}");
    assert!(summed.len() <= 3 * (MAX_SUMMED + 1), "{}", summed.len());
    let others: u64 = summed
        .iter()
        .filter(|sum| sum.source.is_none())
        .map(|sum| sum.count)
        .sum();
    let own: u64 = summed
        .iter()
        .filter(|sum| sum.source.is_some())
        .map(|sum| sum.count)
        .sum();
    assert_eq!(others + own, 300_000 - 100, "nothing is missing");
}

#[cfg(feature = "documents")]
#[test]
fn settings_are_read_and_those_that_would_do_nothing_are_refused() {
    use Offence::*;
    let read = |text: &str| {
        let form: Form = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        form.settings(&[WrongPassword, NoLogin])
    };
    assert_eq!(read(""), Ok(Settings::default()));
    let settings = read(
        "wrong_password = \"1m\"\nno_login = 0\npenalty_max = \"1h\"\nexempt = [\"10.0.0.0/8\", \"::1\"]\nlines = 3",
    )
    .unwrap();
    assert_eq!(settings.costs.wrong_password, Duration::from_secs(60));
    assert!(settings.costs.no_login.is_zero() && settings.is_exempt(ip("::1")) && settings.lines == 3);
    for (text, words) in [
        ("garbage = \"1s\"", "garbage"),
        ("exempt = [\"10.0.0.1/8\"]", "beyond its prefix"),
        ("ipv6_prefix = 0", "ipv6_prefix"),
        ("penalty_max = \"1s\"", "penalty_max"),
        ("penalties = false\nwrong_password = \"9s\"", "penalties = false"),
        ("penalty = 1", "unknown field"),
        ("lines = 1000001", "lines"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let many = format!("exempt = [{}]", "\"10.0.0.0/8\",".repeat(1_025));
    assert!(read(&many).unwrap_err().to_string().contains("exempt"));
}
