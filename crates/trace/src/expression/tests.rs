//! What expressions mean, and where wrong ones are wrong, as tables. They are those of x86, where names differ most.
#![cfg(target_arch = "x86_64")]

use super::calls::{MAX_PATTERN, MAX_PATTERNS};
use super::classes::CLASSES;
use super::*;
use fleetgate_calls::abi::{Abi, Call, X32_BIT};
use fleetgate_calls::select::{Is, When};
use fleetgate_calls::tables;

/// `name`, `name@32`, with `?` behind those that are chosen for some arguments only.
fn chosen(calls: &Selection) -> Vec<String> {
    let mut all = Vec::new();
    for abi in Abi::SERVED {
        let mark = match abi {
            Abi::I386 => "@32",
            Abi::X32 => "@x32",
            _ => "",
        };
        if calls.is_all(*abi) {
            all.push(format!("all{mark}"));
        }
        for (number, when) in calls.of(*abi) {
            let call = Call { abi: *abi, number };
            let name = call.name().map_or(number.to_string(), str::to_owned);
            let some = match when {
                When::Always => "",
                When::Any(groups) if groups.is_empty() => "!",
                When::Any(_) => "?",
            };
            all.push(format!("{name}{mark}{some}"));
        }
    }
    all
}

fn trace(text: &str) -> Selection {
    match expression(text) {
        Ok(Expression::Trace(calls)) => calls,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn calls_are_chosen() {
    for (text, calls) in [
        ("openat", "openat openat@32 openat@x32"),
        ("trace=openat", "openat openat@32 openat@x32"),
        (
            "t= openat , close ",
            "close openat close@32 openat@32 close@x32 openat@x32",
        ),
        ("openat,", "openat openat@32 openat@x32"),
        (",openat", "openat openat@32 openat@x32"),
        ("openat@64", "openat"),
        ("openat@32,close@x32", "openat@32 close@x32"),
        ("257", "openat"),
        ("257@32", "remap_file_pages@32"),
        ("999", "999"),
        ("mmap2", "mmap2@32"),
        ("execve", "execve execve@32 execve@x32"),
        ("none", ""),
        ("!all", ""),
        ("?bogus", ""),
        ("?bogus,read@64", "read"),
        ("?%bogus", ""),
        ("all", "all all@32 all@x32"),
        ("all,read", "all all@32 all@x32"),
        ("!none", "all all@32 all@x32"),
        ("all@32", "all@32"),
        ("!openat", "all openat! all@32 openat@32! all@x32 openat@x32!"),
        ("!openat@32,257@64", "all openat! all@32 openat@32! all@x32"),
        ("/^openat@64", "openat openat2"),
        ("/^open(at)?$@64", "open openat"),
        ("/^lstat$,/^rea[d]$@64", "read lstat lstat@32 lstat@x32"),
        ("?/OPEN", ""),
        (
            "%clock@64",
            "gettimeofday adjtimex settimeofday time clock_settime clock_gettime clock_getres clock_adjtime",
        ),
        ("%%stat@64", "stat fstat lstat newfstatat statx"),
        ("%%statfs@x32", "ustat@x32 statfs@x32 fstatfs@x32"),
        ("%stat", "stat oldstat@32 stat@32 stat64@32 stat@x32"),
        // What a 32-bit program reaches by another call.
        ("connect", "connect socketcall@32? connect@32 connect@x32"),
        ("accept@32", "socketcall@32?"),
        ("semop@32", "ipc@32?"),
        ("!semop@32", "all all@32 ipc@32? all@x32"),
        ("!accept@32", "all all@32 socketcall@32? all@x32"),
        (
            "connect,socketcall@32",
            "connect socketcall@32 connect@32 connect@x32",
        ),
        // Tests of arguments.
        ("kill(1!=0)", "kill? kill@32? kill@x32?"),
        (
            "kill(sig=SIGKILL), kill( pid >= 100 )",
            "kill? kill@32? kill@x32?",
        ),
        ("mmap(prot&PROT_EXEC)", "mmap? mmap@32 mmap@x32?"),
        ("!mmap(prot&PROT_EXEC)", "all mmap? all@32 all@x32 mmap@x32?"),
        ("connect@64(fd=3)", "connect?"),
        ("connect@32(fd=3)", "socketcall@32? connect@32?"),
        ("!connect@32(fd=3)", "all all@32 connect@32? all@x32"),
        ("kill(1!=0),kill", "kill kill@32 kill@x32"),
        ("?bogus(0=1)", ""),
        ("257(flags&O_CREAT)", "openat?"),
        ("999(3=1)", "999?"),
        ("!kill(1=0)", "all kill? all@32 kill@32? all@x32 kill@x32?"),
    ] {
        assert_eq!(chosen(&trace(text)).join(" "), calls, "{text}");
    }
}

#[test]
fn arguments_are_tested() {
    let create = 0o100;
    for (text, call, arguments, wanted) in [
        ("kill(1!=0)", "kill", [7, 0, 0, 0, 0, 0], false),
        ("kill(1!=0)", "kill", [7, 15, 0, 0, 0, 0], true),
        // The kernel looks at 32 bits of a signal's number.
        ("kill(1!=0)", "kill", [7, 1 << 40, 0, 0, 0, 0], false),
        (
            "kill(sig=SIGTERM,pid=-1)",
            "kill",
            [u64::MAX, 15, 0, 0, 0, 0],
            true,
        ),
        (
            "kill(sig=SIGTERM,pid=-1)",
            "kill",
            [u64::from(u32::MAX), 15, 0, 0, 0, 0],
            true,
        ),
        ("kill(sig=SIGTERM,pid=-1)", "kill", [1, 15, 0, 0, 0, 0], false),
        ("kill(sig=9),kill(sig=15)", "kill", [1, 15, 0, 0, 0, 0], true),
        (
            "openat(flags&O_WRONLY|O_CREAT)",
            "openat",
            [0, 0, create, 0, 0, 0],
            true,
        ),
        (
            "openat(flags&O_WRONLY|O_CREAT)",
            "openat",
            [0, 0, 2, 0, 0, 0],
            false,
        ),
        (
            "openat(flags & O_ACCMODE = O_RDONLY)",
            "openat",
            [0, 0, create, 0, 0, 0],
            true,
        ),
        (
            "openat(flags & O_ACCMODE == O_RDONLY)",
            "openat",
            [0, 0, 1, 0, 0, 0],
            false,
        ),
        ("!openat(flags&O_CREAT)", "openat", [0, 0, 2, 0, 0, 0], true),
        ("!openat(flags&O_CREAT)", "openat", [0, 0, create, 0, 0, 0], false),
        (
            "!openat(flags&O_CREAT|O_TRUNC,mode=0)",
            "openat",
            [0, 0, create, 1, 0, 0],
            true,
        ),
        (
            "!openat(flags&O_CREAT|O_TRUNC,mode=0)",
            "openat",
            [0, 0, create, 0, 0, 0],
            false,
        ),
        ("!kill(1=0),kill(1=9)", "kill", [0, 9, 0, 0, 0, 0], false),
        ("!kill(1=0),kill(1=9)", "kill", [0, 8, 0, 0, 0, 0], true),
        ("mmap(addr>=0x100000000)", "mmap", [1 << 32, 0, 0, 0, 0, 0], true),
        ("mmap(addr>=0x100000000)", "mmap", [1 << 31, 0, 0, 0, 0, 0], false),
        ("mmap(0=0)", "mmap", [1 << 40, 0, 0, 0, 0, 0], false),
        ("socket(domain=AF_INET)", "socket", [2, 1, 0, 0, 0, 0], true),
        (
            "socket(type&0xf=SOCK_DGRAM)",
            "socket",
            [2, 0x80002, 0, 0, 0, 0],
            true,
        ),
        ("%write", "openat", [0, 0, 0, 0, 0, 0], false),
        ("%write", "openat", [0, 0, 1, 0, 0, 0], true),
        ("%write", "open", [0, create, 0, 0, 0, 0], true),
        ("%write", "openat2", [0, 0, 0, 0, 0, 0], true),
        ("%write", "unlink", [0, 0, 0, 0, 0, 0], true),
        ("!%write", "openat", [0, 0, 0, 0, 0, 0], true),
        ("!%write", "openat", [0, 0, 2, 0, 0, 0], false),
        ("!%write", "read", [0, 0, 2, 0, 0, 0], true),
    ] {
        let calls = trace(text);
        let call = Call::named(Abi::X86_64, call).expect("a call");
        assert_eq!(calls.wants(call, &arguments), wanted, "{text} {arguments:?}");
    }
}

#[test]
fn other_sets_are_read() {
    let is = |text: &str, check: fn(Expression) -> bool| {
        assert!(check(expression(text).expect(text)), "{text}");
    };
    is("status=failed,unfinished", |e| {
        e == Expression::Status(Set::none().with(Status::Failed).with(Status::Unfinished))
    });
    is("status=!failed", |e| match e {
        Expression::Status(set) => !set.has(Status::Failed) && set.has(Status::Detached),
        _ => false,
    });
    is("status=all", |e| e == Expression::Status(Set::all()));
    is("status=none", |e| e == Expression::Status(Set::none()));
    is("signal=!io,SIGSEGV,33", |e| match e {
        Expression::Signals(set) => !set.has(29) && !set.has(11) && !set.has(33) && set.has(1) && set.has(64),
        _ => false,
    });
    is("s=none", |e| e == Expression::Signals(Signals::none()));
    is("signals=all", |e| e == Expression::Signals(Signals::all()));
    is("decode-fds=path,socket", |e| {
        e == Expression::Decode(Set::none().with(Decoded::Path).with(Decoded::Socket))
    });
    is("q=exits,attach", |e| {
        e == Expression::Quiet(Set::none().with(Quiet::Exit).with(Quiet::Attach))
    });
    is(
        "raw=%file@64",
        |e| matches!(e, Expression::Raw(calls) if !calls.is_none()),
    );
    is("abbrev=none", |e| e == Expression::Abbreviated(Selection::none()));
    is(
        "verbose=!stat",
        |e| matches!(e, Expression::Verbose(calls) if calls.is_all(Abi::I386)),
    );
}

#[test]
fn what_is_wrong_is_marked() {
    for (text, marked, reason) in [
        ("", "", "the name of a system call is missing"),
        ("trace=", "", "the name of a system call is missing"),
        ("!", "", "the name of a system call is missing"),
        (
            "openat,opneat",
            "opneat",
            "there is no system call of this name\n",
        ),
        ("trace=opneat", "opneat", "did you mean openat or openat2?"),
        (
            "umount@64",
            "umount",
            "only i386 has this system call; ?umount is no error",
        ),
        ("%fiel", "%fiel", "did you mean %file?"),
        ("stta=all", "stta", "there is nothing called \"stta\" to set"),
        ("statsu=all", "statsu", "did you mean status?"),
        ("openat,!close", "!close", "! stands before the whole set"),
        ("none,read", "none", "`none` stands alone"),
        ("?", "", "missing behind ?"),
        ("/open(", "/open(", "the pattern is wrong"),
        ("/OPEN", "/OPEN", "no system call has a name that matches"),
        ("open@foo", "foo", "a numbering is 64, 32 or x32"),
        (
            "1073741824",
            "1073741824",
            "a number of a system call is less than",
        ),
        ("inject=read", "inject", "only watches"),
        ("write=1", "write", "dumps"),
        ("kvm=vcpu", "kvm", "virtual machine"),
        ("status=faild", "faild", "there is no status of this name"),
        ("status=faild", "faild", "did you mean failed?"),
        ("status=", "", "the name of a status is missing"),
        ("status=none,failed", "none", "`none` stands alone"),
        ("signal=SIGTREM", "SIGTREM", "did you mean SIGTERM or SIGTRAP?"),
        ("signal=0", "0", "there is no signal"),
        ("signal=65", "65", "there is no signal"),
        ("quiet=attached", "attached", "did you mean attach?"),
        ("%file(0=1)", "0=1", "only a single call"),
        ("raw=kill(0=1)", "0=1", "in trace= alone"),
        ("kill(", "", "a ) is missing"),
        ("kill(0=1", "", "a ) is missing"),
        ("kill(0=1)@64", "@64", "the numbering stands behind the name"),
        ("kill(0=1)x", "x", "a comma is expected"),
        ("kill()", "", "a test is missing"),
        ("kill(=1)", "", "the name or position of an argument is missing"),
        ("kill(6=1)", "6", "from 0 to 5"),
        ("kill(sig)", "", "=, !=, >= or & is expected"),
        ("kill(sig~1)", "~", "=, !=, >= or & is expected"),
        ("kill(sig=)", "", "a value is missing"),
        ("kill(sig=1|)", "", "a value is missing"),
        ("kill(sig=SIGTREM)", "SIGTREM", "did you mean SIGTERM or SIGTRAP?"),
        ("kill(sig=+1)", "+1", "has no number"),
        ("kill(sig=0x)", "0x", "no number of 64 bits"),
        ("kill(sig=--1)", "--1", "no number of 64 bits"),
        (
            "kill(sig=99999999999999999999)",
            "99999999999999999999",
            "no number of 64 bits",
        ),
        ("kill(sig=0x100000000)", "0x100000000", "the argument has 32 bits"),
        (
            "kill(signl=9)",
            "signl",
            "kill has no argument of this name; it has pid, sig",
        ),
        ("getpid(x=9)", "x", "have no names here"),
        ("openat(flags&O_RDONLY)", "O_RDONLY", "has no bits"),
        (
            "openat(flags&O_ACCMODE=O_CREAT)",
            "O_CREAT",
            "bits that are not asked for",
        ),
        ("openat(flgas&O_CREAT)", "flgas", "did you mean flags?"),
        ("!kill(pid>=1)", "kill(pid>=1)", "the opposite"),
        (
            "!kill(0=1,1=2),kill(0=3,1=4)",
            "kill(0=1,1=2),kill(0=3,1=4)",
            "the opposite",
        ),
    ] {
        let wrong = expression(text).expect_err(text);
        assert_eq!(
            &text[wrong.at..wrong.at + wrong.length],
            marked,
            "{text}: {wrong}"
        );
        assert!(
            !reason.is_empty() && wrong.to_string().contains(reason),
            "{text}: {wrong}"
        );
    }
}

#[test]
fn an_expression_has_bounds() {
    let long = "x".repeat(MAX_EXPRESSION + 1);
    assert!(expression(&long).is_err_and(|wrong| wrong.to_string().len() < 200));
    let many = |count: usize| vec!["/^open$"; count].join(",");
    assert!(expression(&many(MAX_PATTERNS)).is_ok());
    assert!(expression(&many(MAX_PATTERNS + 1)).is_err());
    let pattern = |length: usize| format!("?/{}", "x".repeat(length));
    assert!(expression(&pattern(MAX_PATTERN)).is_ok());
    assert!(expression(&pattern(MAX_PATTERN + 1)).is_err());
    assert!(expression("?/((x{99}){99}){99}").is_err());
    assert!(expression(&format!("{}", X32_BIT - 1)).is_ok());
}

#[test]
fn the_last_of_a_kind_counts() {
    let mut all = Expressions::default();
    assert_eq!(all.trace, Selection::everything());
    for text in [
        "openat",
        "status=failed",
        "close@64",
        "signal=none",
        "status=none",
    ] {
        all.take(expression(text).expect(text));
    }
    assert_eq!(chosen(&all.trace), ["close"]);
    assert_eq!((all.status, all.signals), (Set::none(), Signals::none()));
    assert_eq!(all.raw, Selection::none());
    assert_eq!(calls("close@64").as_ref(), Ok(&all.trace));
}

#[test]
fn every_class_means_its_members_in_every_numbering() {
    for class in CLASSES {
        for text in [class.name, class.second]
            .into_iter()
            .filter(|name| !name.is_empty())
        {
            let calls = trace(text);
            assert!(!calls.is_none(), "{text}");
            for member in class.members() {
                for call in Abi::SERVED.iter().filter_map(|abi| Call::named(*abi, member)) {
                    assert_eq!(calls.when(call), &When::Always, "{text} {call:?}");
                }
            }
            let more = class.asked.matches('(').count();
            assert_eq!(more > 0, chosen(&calls).iter().any(|c| c == "openat?"), "{text}");
            let opposite = trace(&format!("!{text}"));
            for (call, name) in Abi::SERVED.iter().flat_map(|abi| tables::calls(*abi)) {
                let arguments = [0, 1, 1, 0, 0, 0];
                let (is, is_not) = (calls.wants(call, &arguments), opposite.wants(call, &arguments));
                assert_ne!(is, is_not, "{text} {name}");
            }
        }
    }
}

#[test]
fn every_known_call_is_chosen_by_its_name_alone() {
    for (call, name) in Abi::SERVED.iter().flat_map(|abi| tables::calls(*abi)) {
        assert_eq!(trace(name).when(call), &When::Always, "{name}");
    }
}

#[test]
fn selections_are_joined() {
    let arguments = |signal| [1, signal, 0, 0, 0, 0];
    let texts = [
        "none",
        "all",
        "kill(1=9)",
        "!kill(1=9)",
        "kill,read",
        "!kill",
        "all@32",
        "!all@32",
        "kill(1=8)",
    ];
    for one in texts {
        for other in texts {
            let (one, other) = (trace(one), trace(other));
            let mut both = one.clone();
            both.join(&other);
            for abi in Abi::SERVED {
                for (name, signal) in [("kill", 8), ("kill", 9), ("read", 8), ("write", 9)] {
                    let call = Call::named(*abi, name).expect("a call");
                    let either = one.wants(call, &arguments(signal)) || other.wants(call, &arguments(signal));
                    assert_eq!(
                        both.wants(call, &arguments(signal)),
                        either,
                        "{one:?} {other:?} {call:?}"
                    );
                }
            }
        }
    }
}

/// Pieces of the language put together at random never panic, and what is wrong with them can be shown.
#[test]
fn nothing_that_can_be_typed_panics() {
    const PIECES: [&str; 36] = [
        "trace=", "status=", "signal=", "quiet=", "raw=", "all", "none", "!", "?", ",", " ", "(", ")", "/",
        "@", "64", "x32", "=", "!=", ">=", "&", "|", "kill", "openat", "flags", "O_CREAT", "0", "-1", "0x",
        "%file", "%write", "failed", "[", "*", "é", "\u{1b}",
    ];
    // A generator of no quality, the same in every run.
    let mut state = 7_u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap_or(0) % below
    };
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..2_000 {
        let text: String = (0..=next(9)).map(|_| PIECES[next(PIECES.len())]).collect();
        match expression(&text) {
            Ok(found) => {
                right += 1;
                assert_eq!(expression(&text).as_ref(), Ok(&found), "{text}");
            }
            Err(place) => {
                wrong += 1;
                assert!(
                    text.get(place.at..place.at + place.length).is_some(),
                    "{text:?}: {place:?}"
                );
                assert!(place.to_string().lines().count() >= 3, "{text:?}");
            }
        }
    }
    assert!(right > 50 && wrong > 50, "{right} {wrong}");
}

#[test]
fn a_test_on_i386_has_32_bits() {
    let calls = trace("mprotect(addr=-1)");
    let when = |abi| calls.when(Call::named(abi, "mprotect").expect("a call")).clone();
    for (abi, wide) in [(Abi::X86_64, true), (Abi::I386, false)] {
        let When::Any(groups) = when(abi) else {
            panic!("{abi:?}");
        };
        assert_eq!(groups[0][0].wide, wide, "{abi:?}");
        let value = u64::MAX;
        assert_eq!(groups[0][0].is, Is::Masked { mask: value, value });
    }
}
