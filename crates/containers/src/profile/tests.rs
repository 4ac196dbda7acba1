//! What a profile's program answers, by the interpreter that the tracer's filters are held to. It never installs one.

use super::*;
use fleetgate_calls::filter::{Data, run};

/// What becomes of a call, by the program that `text` makes.
fn answer(text: &str, abi: Abi, name: &str, args: [u64; 6]) -> u32 {
    let call = Call::named(abi, name).expect("a call");
    ask(text, abi.audit(), call.register(), args)
}

fn ask(text: &str, arch: u32, nr: u32, args: [u64; 6]) -> u32 {
    let (program, _) = compile(&serde_json::from_str(text).expect("JSON")).expect("a profile");
    let data = Data {
        nr,
        arch,
        args,
        ..Data::default()
    };
    run(&program, &data).expect("it ends")
}

#[test]
fn what_no_rule_names_has_the_default() {
    let text = r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read","write","no_such_call","openat2"],
        "action":"SCMP_ACT_ALLOW"},{"names":["clone3"],"action":"SCMP_ACT_ERRNO","errnoRet":38}]}"#;
    let of = |name| answer(text, Abi::NATIVE, name, [0; 6]);
    assert_eq!((of("read"), of("mount")), (ALLOW, ERRNO | 1));
    assert_eq!(of("clone3"), ERRNO | 38);
    // Newer than all that it names: a library goes on with an older call.
    assert_eq!(of("mseal"), ERRNO | ENOSYS);
    let open = r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mount"],"action":"SCMP_ACT_KILL_PROCESS"}]}"#;
    assert_eq!(answer(open, Abi::NATIVE, "mseal", [0; 6]), ALLOW);
    assert_eq!(answer(open, Abi::NATIVE, "mount", [0; 6]), KILL_PROCESS);
}

#[test]
fn conditions_are_of_64_bits() {
    let high = 7u64 << 32;
    for (op, value, second, yes, no) in [
        ("EQ", high | 5, 0, vec![high | 5], vec![5, high, high | 6]),
        ("NE", high | 5, 0, vec![5, high | 4], vec![high | 5]),
        (
            "GT",
            high | 5,
            0,
            vec![high | 6, 8 << 32, u64::MAX],
            vec![high | 5, 6, high],
        ),
        (
            "GE",
            high | 5,
            0,
            vec![high | 5, high | 6, 8 << 32],
            vec![high | 4, 6 << 32 | 9],
        ),
        (
            "LT",
            high | 5,
            0,
            vec![high | 4, 9, 6 << 32 | 9],
            vec![high | 5, high | 6, 8 << 32],
        ),
        (
            "LE",
            high | 5,
            0,
            vec![high | 5, high | 4, 0],
            vec![high | 6, 8 << 32],
        ),
        // Docker's rule for clone: none of these flags.
        (
            "MASKED_EQ",
            0x7e02_0000,
            0,
            vec![0, 17, high],
            vec![0x1000_0000, 0x2_0000],
        ),
        (
            "MASKED_EQ",
            high | 1,
            high,
            vec![high, high | 2],
            vec![high | 1, 0],
        ),
    ] {
        let text = format!(
            r#"{{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{{"names":["clone"],"action":"SCMP_ACT_ALLOW","args":
            [{{"index":2,"op":"SCMP_CMP_{op}","value":{value},"valueTwo":{second}}}]}}]}}"#
        );
        for (values, wanted) in [(yes, ALLOW), (no, ERRNO | 1)] {
            for third in values {
                let args = [u64::MAX, 0, third, 0, 0, 0];
                assert_eq!(
                    answer(&text, Abi::NATIVE, "clone", args),
                    wanted,
                    "{op} {third:#x}"
                );
            }
        }
    }
}

/// What Debian's runc answers to the same rules, tried.
#[test]
fn the_order_of_rules_is_runc_s() {
    let rule = |name: &str, action: &str, args: &str| {
        format!(r#"{{"names":["{name}"],"action":"SCMP_ACT_{action}","errnoRet":77,"args":[{args}]}}"#)
    };
    let of = |rules: &[String], args: [u64; 6]| {
        let text = format!(
            r#"{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{}]}}"#,
            rules.join(",")
        );
        answer(&text, Abi::NATIVE, "personality", args)
    };
    let equals = r#"{"index":0,"op":"SCMP_CMP_EQ","value":3}"#;
    let rule = |action, args| rule("personality", action, args);
    let refused = ERRNO | 77;
    assert_eq!(of(&[rule("ERRNO", ""), rule("ALLOW", "")], [0; 6]), refused);
    assert_eq!(
        of(&[rule("ALLOW", equals), rule("ERRNO", "")], [3, 0, 0, 0, 0, 0]),
        refused
    );
    assert_eq!(
        of(&[rule("LOG", equals), rule("ERRNO", "")], [3, 0, 0, 0, 0, 0]),
        refused
    );
    assert_eq!(of(&[rule("ERRNO", ""), rule("LOG", "")], [0; 6]), refused);
    assert_eq!(
        of(&[rule("ERRNO", ""), rule("LOG", equals)], [3, 0, 0, 0, 0, 0]),
        refused
    );
    assert_eq!(
        of(&[rule("ERRNO", equals), rule("LOG", equals)], [3, 0, 0, 0, 0, 0]),
        refused
    );
    // The bits beyond the mask mean nothing.
    let masked = r#"{"index":0,"op":"SCMP_CMP_MASKED_EQ","value":255,"valueTwo":257}"#;
    assert_eq!(of(&[rule("ERRNO", masked)], [1, 0, 0, 0, 0, 0]), refused);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn i386_has_a_door_for_many_calls() {
    let text = |rules: &str, default: &str| {
        format!(
            r#"{{"defaultAction":"SCMP_ACT_{default}","architectures":["SCMP_ARCH_X86"],"syscalls":[{rules}]}}"#
        )
    };
    let deny = text(
        r#"{"names":["connect","shmget"],"action":"SCMP_ACT_ERRNO"}"#,
        "ALLOW",
    );
    let by = |text: &str, door: &str, number| answer(text, Abi::I386, door, [number, 0, 0, 0, 0, 0]);
    assert_eq!(answer(&deny, Abi::I386, "connect", [0; 6]), ERRNO | 1);
    assert_eq!(
        (by(&deny, "socketcall", 3), by(&deny, "socketcall", 2)),
        (ERRNO | 1, ALLOW)
    );
    assert_eq!((by(&deny, "ipc", 23), by(&deny, "ipc", 24)), (ERRNO | 1, ALLOW));
    // Docker's: all of them, by its own name.
    let allow = text(
        r#"{"names":["socketcall","connect"],"action":"SCMP_ACT_ALLOW"}"#,
        "ERRNO",
    );
    assert_eq!(
        (by(&allow, "socketcall", 3), by(&allow, "socketcall", 2)),
        (ALLOW, ALLOW)
    );
}

#[test]
fn a_profile_without_end_is_refused_before_it_is_made() {
    let names = vec!["\"read\""; 100_000].join(",");
    let args = vec![r#"{"index":0,"op":"SCMP_CMP_EQ","value":1}"#; 3000].join(",");
    let text = format!(
        r#"{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{{"names":[{names}],"action":"SCMP_ACT_ERRNO","args":[{args}]}}]}}"#
    );
    let refused = compile(&serde_json::from_str(&text).expect("JSON")).expect_err("refused");
    assert!(matches!(refused, ProfileError::TooLong(_)), "{refused}");
}

#[test]
fn several_conditions_are_together_or_alternatives() {
    let rule = |args: &str| {
        format!(
            r#"{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{{"names":["socket"],"action":"SCMP_ACT_ERRNO","args":[{args}]}}]}}"#
        )
    };
    let one = |index, value| format!(r#"{{"index":{index},"op":"SCMP_CMP_EQ","value":{value}}}"#);
    let of = |text: &str, args: [u64; 2]| answer(text, Abi::NATIVE, "socket", [args[0], args[1], 0, 0, 0, 0]);
    let both = rule(&[one(0, 16), one(1, 3)].join(","));
    assert_eq!(of(&both, [16, 3]), ERRNO | 1);
    assert_eq!((of(&both, [16, 4]), of(&both, [2, 3])), (ALLOW, ALLOW));
    let either = rule(&[one(0, 16), one(0, 17)].join(","));
    assert_eq!(
        (of(&either, [16, 0]), of(&either, [17, 0])),
        (ERRNO | 1, ERRNO | 1)
    );
    assert_eq!(of(&either, [18, 0]), ALLOW);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_numbering_that_is_not_named_ends_the_thread() {
    let own = r#"{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86_64"]}"#;
    let all = r#"{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86_64","SCMP_ARCH_X86","SCMP_ARCH_X32",
        "SCMP_ARCH_AARCH64"],"syscalls":[{"names":["mount"],"action":"SCMP_ACT_ERRNO"}]}"#;
    for (abi, with_own) in [
        (Abi::X86_64, ALLOW),
        (Abi::I386, KILL_THREAD),
        (Abi::X32, KILL_THREAD),
    ] {
        assert_eq!(answer(own, abi, "read", [0; 6]), with_own);
        assert_eq!(answer(all, abi, "read", [0; 6]), ALLOW);
        assert_eq!(answer(all, abi, "mount", [0; 6]), ERRNO | 1);
    }
    assert_eq!(ask(all, 0xc000_00b7, 63, [0; 6]), KILL_THREAD);
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let of = |text: &str| compile(&serde_json::from_str(text).expect("JSON")).expect_err("refused");
    let rule = |rule: &str| format!(r#"{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{rule}]}}"#);
    assert_eq!(of("{}"), ProfileError::Field("action"));
    assert_eq!(
        of(r#"{"defaultAction":"SCMP_ACT_NOTIFY"}"#),
        ProfileError::Notifies
    );
    assert_eq!(
        of(r#"{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/run/l.sock"}"#),
        ProfileError::Notifies
    );
    assert_eq!(
        of(r#"{"defaultAction":"SCMP_ACT_ALLOW","flags":["SECCOMP_FILTER_FLAG_NEW"]}"#),
        ProfileError::Unknown("flag", "SECCOMP_FILTER_FLAG_NEW".to_owned())
    );
    let text = rule(r#"{"names":["read"],"action":"SCMP_ACT_ERRNO","errnoRet":70000}"#);
    assert_eq!(of(&text), ProfileError::Field("errnoRet"));
    let text = rule(
        r#"{"names":["read"],"action":"SCMP_ACT_ERRNO","args":[{"index":6,"op":"SCMP_CMP_EQ","value":1}]}"#,
    );
    assert_eq!(of(&text), ProfileError::Field("index"));
}
