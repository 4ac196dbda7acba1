//! What somebody meets who has just begun, or made a mistake.
#![forbid(unsafe_code)]

use fleetgate_tests::cluster::Cluster;
use fleetgate_tests::{is_root, skip};

/// `damaged FILE HOW` makes the home `hurt` from ada's, with this file damaged; `said WORDS` runs the program, and prints its
/// exit code and what it said.
const TOOLS: &str = r#"
damaged() {
    rm -rf hurt; mkdir -m 700 hurt
    for file in home/*; do if [ -f "$file" ]; then cp -p "$file" hurt; fi; done
    case $2 in
        cut) truncate -s 30 "hurt/$1" ;;
        garbled) head -c 300 /dev/urandom > "hurt/$1" ;;
        gone) rm "hurt/$1" ;;
    esac
}
said() { local code=0; "$F" "$@" > out 2>&1 < /dev/null || code=$?; echo "$code $(cat out)"; }
LOGIN="--password-file password --authenticator totp --no-agent"
"#;

/// A file of a login, and the commands that need it. Nothing of ours reads `id.pub`.
const FILES: &[(&str, &[&str])] = &[
    ("id", &["ssh"]),
    ("id-cert.pub", &["ssh"]),
    ("tls.key", &["ssh", "ls"]),
    ("tls.crt", &["ssh", "ls"]),
    ("state.json", &["ssh", "ls"]),
    ("known_hosts", &["ssh"]),
    ("profile.json", &["ssh", "ls", "logout"]),
];

#[test]
fn a_damaged_file_of_a_login_is_named_with_what_mends_it() {
    if !is_root() {
        return skip("a node needs root");
    }
    let cluster = Cluster::with_node();
    let say = |text: &str| cluster.script(&format!("{TOOLS}{text}"));
    for how in ["cut", "garbled", "gone"] {
        for (file, commands) in FILES {
            // Without it nobody is logged in, which is said in other words.
            if (*file, how) == ("profile.json", "gone") {
                continue;
            }
            for command in *commands {
                let words = match *command {
                    "ssh" => "ssh --home hurt ada@gate true",
                    "ls" => "ls --home hurt",
                    _ => "logout --home hurt",
                };
                let told = say(&format!("damaged {file} {how}; said {words}"));
                assert!(!told.starts_with("0 "), "{file} {how}: {command}: {told}");
                for wanted in [format!("hurt/{file}"), "`fleetgate login".to_owned()] {
                    assert!(told.contains(&wanted), "{file} {how}: {command}: {told}");
                }
            }
        }
    }
    // What is said is so: a login writes all of them anew. Whom to believe it has to be told, where it knows no more.
    let all: Vec<&str> = FILES.iter().map(|(file, _)| *file).collect();
    for (damage, more) in [
        (all.join(" ").replace("state.json ", ""), ""),
        ("state.json".to_owned(), "--ca $HASH"),
    ] {
        let told = say(&format!(
            r#"HASH=$("$F" ca status --state cluster | sed -n 's/^tls *active *\(sha256:.*\)/\1/p')
            damaged id none; for file in {damage}; do truncate -s 30 hurt/$file; done
            again "$F" login --home hurt $LOGIN --user ada --proxy 127.0.0.1:3080 {more}
            said ssh --home hurt ada@gate echo in; said ls --home hurt"#
        ));
        assert!(told.starts_with("0 in\n0 "), "{damage}: {told}");
    }
    // A login without a word on whom to believe goes on with what it has, and says what is missing.
    for (prepare, wanted) in [
        ("damaged state.json cut", "hurt/state.json"),
        ("damaged state.json cut", "login --ca sha256:HASH"),
        ("damaged profile.json cut", "hurt/profile.json"),
        ("damaged profile.json cut", "`--proxy` is missing"),
        (
            "damaged id cut; \"$F\" logout --home hurt; echo x > hurt/last.json",
            "hurt/last.json",
        ),
    ] {
        let told = say(&format!("{prepare}; said login --home hurt $LOGIN"));
        assert!(
            !told.contains("0 user") && told.contains(wanted),
            "{prepare}: {told}"
        );
    }
    // The keys of a login that cannot be read are removed like others.
    let left = say("damaged profile.json cut; said logout --home hurt > /dev/null; ls hurt");
    assert_eq!(left, "state.json\n");
}
