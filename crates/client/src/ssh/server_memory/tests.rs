//! The memory of servers: what is read back, what is damaged, what is bounded, and what is sent ahead by it.

use super::file::{MAX_DAYS, MAX_SERVERS, find, replace};
use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A day on which everything happens.
const TODAY: u64 = 20_000;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("fleetgate-servers-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap_or_default()
    }

    /// The names, in the order of the file.
    fn names(&self) -> Vec<String> {
        let text = self.text();
        let names = text.lines().skip(1).filter_map(|line| line.split('\t').next());
        names.map(str::to_owned).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn facts(version: &str) -> Facts {
    Facts {
        version: version.to_owned(),
        offer: ServerOffer {
            kex: vec![Method::Curve25519, Method::EcdhP256],
            best_kex: None,
            best_host_key: Algorithm::parse("rsa-sha2-512"),
        },
        first_channel: Some(0),
        reads_on: Some(true),
    }
}

#[test]
fn a_line_is_read_as_it_was_written() {
    let folder = Folder::new("line");
    let stock = facts("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u10");
    let nothing = Facts {
        version: "SSH-2.0-x".to_owned(),
        ..Facts::default()
    };
    let best = Facts {
        offer: ServerOffer {
            best_kex: Some(Method::Curve25519),
            best_host_key: None,
            ..stock.offer.clone()
        },
        first_channel: Some(u32::MAX),
        reads_on: Some(false),
        ..stock.clone()
    };
    for facts in [&stock, &nothing, &best] {
        replace(&folder.file(), "[web1]:22", Some(facts), TODAY);
        assert_eq!(
            find(&folder.file(), "[web1]:22", TODAY),
            Some((TODAY, facts.clone()))
        );
        assert_eq!(find(&folder.file(), "[web1]:2", TODAY), None);
    }
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(folder.file()), mode(folder.0.clone())), (0o600, 0o700));
    assert_eq!(
        fs::read_dir(&folder.0).unwrap().count(),
        1,
        "nothing is left beside it"
    );
    replace(&folder.file(), "[web1]:22", None, TODAY);
    assert_eq!(folder.text(), "fleetgate servers 1\n");
}

#[test]
fn the_file_is_made_for_something_to_remember_alone() {
    let folder = Folder::new("none");
    replace(&folder.file(), "web1", None, TODAY);
    assert!(!folder.0.exists());
}

#[test]
fn a_damaged_file_is_ignored_and_replaced() {
    let folder = Folder::new("damaged");
    let line = |name: &str| {
        replace(&folder.file(), name, Some(&facts("SSH-2.0-x")), TODAY);
        folder.text().lines().last().unwrap().to_owned()
    };
    let good = line("good");
    let head = "fleetgate servers 1";
    let damaged: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"\0\xff\xfe".to_vec(),
        b"fleetgate servers 2\nweb1\tx\n".to_vec(),
        good.clone().into_bytes(),
        vec![b'x'; 5 << 20],
    ];
    for bytes in damaged {
        fs::write(folder.file(), &bytes).unwrap();
        assert_eq!(find(&folder.file(), "good", TODAY), None);
        line("web1");
        assert_eq!(folder.names(), ["web1"]);
    }
    // What is wrong in one line is one line's.
    let wrong = [
        good.replace("good", "bad name"),
        good.replace("good", "bad\u{202e}"),
        good.replace("SSH-2.0-x", "telnet"),
        good.replace("SSH-2.0-x", &format!("SSH-2.0-{}", "x".repeat(300))),
        good.replace("curve25519-sha256", "diffie-hellman-group1-sha1"),
        good.replace("curve25519-sha256", "ecdh-sha2-nistp256"),
        good.replace("rsa-sha2-512", "ssh-dss"),
        good.replace("0,reads-on", "-1,reads-on"),
        good.replace("0,reads-on", "0,sometimes"),
        good.replace("0,reads-on", "0"),
        good.clone() + "\tmore",
        good.rsplit_once('\t').unwrap().0.to_owned(),
        good.replace(&TODAY.to_string(), "soon"),
        String::new(),
    ];
    for line in &wrong {
        assert_ne!(line, &good);
        let name = line.split('\t').next().unwrap();
        fs::write(folder.file(), format!("{head}\n{line}\n")).unwrap();
        assert_eq!(find(&folder.file(), name, TODAY), None, "{line}");
    }
    fs::write(folder.file(), format!("{head}\n{}\n{good}\n", wrong.join("\n"))).unwrap();
    assert!(find(&folder.file(), "good", TODAY).is_some());
    line("web1");
    assert_eq!(folder.names(), ["good", "web1"]);
    // A line that was cut by a full disk.
    fs::write(
        folder.file(),
        &folder.text().as_bytes()[..folder.text().len() - 5],
    )
    .unwrap();
    assert_eq!(find(&folder.file(), "web1", TODAY), None);
    assert!(find(&folder.file(), "good", TODAY).is_some());
}

#[test]
fn what_was_of_no_use_for_the_longest_time_goes_first() {
    let folder = Folder::new("bound");
    let text: String = (0..MAX_SERVERS)
        .map(|n| format!("web{n}\t{TODAY}\tSSH-2.0-x\tcurve25519-sha256\t-\t-,-\n"))
        .collect();
    fs::create_dir_all(&folder.0).unwrap();
    fs::write(folder.file(), format!("fleetgate servers 1\n{text}")).unwrap();
    // One that is used goes to the end, and one that is new drops the first.
    replace(&folder.file(), "web0", Some(&facts("SSH-2.0-x")), TODAY);
    replace(&folder.file(), "new", Some(&facts("SSH-2.0-x")), TODAY);
    let names = folder.names();
    assert_eq!(names.len(), MAX_SERVERS);
    assert_eq!(
        (names[0].as_str(), names[MAX_SERVERS - 1].as_str()),
        ("web2", "new")
    );
    assert_eq!(names[MAX_SERVERS - 2], "web0");
    // What is old goes too, and what a clock of the future wrote.
    for (day, is_there) in [
        (TODAY - MAX_DAYS, true),
        (TODAY - MAX_DAYS - 1, false),
        (TODAY + 1, false),
    ] {
        replace(&folder.file(), "web1", Some(&facts("SSH-2.0-x")), day);
        assert_eq!(find(&folder.file(), "web1", TODAY).is_some(), is_there);
        replace(&folder.file(), "other", Some(&facts("SSH-2.0-x")), TODAY);
        assert_eq!(folder.names().contains(&"web1".to_owned()), is_there);
    }
}

#[test]
fn a_line_is_written_when_it_is_news_or_old() {
    let folder = Folder::new("news");
    let home = Home::find(folder.0.to_str()).unwrap();
    let info = ConnectionInfo {
        peer_version: b"SSH-2.0-OpenSSH_9.2p1".to_vec(),
        offered: Some(facts("").offer),
        ..ConnectionInfo::default()
    };
    let host_keys = ["ssh-ed25519".to_owned()];
    let lists = (&Method::ALL[..], &host_keys[..]);
    let note = || {
        let mut memory = ServerMemory::of_host(&home, "WEB1", 22);
        memory.note(&info, lists, None, true);
    };
    note();
    assert_eq!(folder.names(), ["[web1]:22"]);
    let marked = folder.text() + "a line that the next writer drops\n";
    let is_written = |text: &str| {
        fs::write(folder.file(), text).unwrap();
        note();
        folder.text() != text
    };
    assert!(!is_written(&marked));
    let ago = |days: u64| marked.replace(&today().to_string(), &(today() - days).to_string());
    assert!(!is_written(&ago(REFRESH_DAYS - 1)));
    assert!(is_written(&ago(REFRESH_DAYS)));
    assert!(is_written(&marked.replace("rsa-sha2-512", "ssh-ed25519")));
    // A home that others may write says nothing.
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let memory = ServerMemory::of_host(&home, "web1", 22);
    assert!(memory.facts.is_none() && memory.file.is_none());
}

#[test]
fn what_a_server_takes_decides_when_the_first_share_goes_and_never_which_lists() {
    let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let offer = |kex: &[Method], best: Option<Method>, host_key: &str| Facts {
        offer: ServerOffer {
            kex: kex.to_vec(),
            best_kex: best,
            best_host_key: Algorithm::parse(host_key),
        },
        ..facts("SSH-2.0-x")
    };
    use Method::{Curve25519, EcdhP256, MlKem768X25519};
    for (facts, host_keys, wanted) in [
        // RFC 4253 §7: both like the same best, and so is the host key algorithm.
        (
            offer(&[MlKem768X25519], Some(MlKem768X25519), "ssh-ed25519"),
            &["ssh-ed25519", "rsa-sha2-512"][..],
            FirstShare::Guessed,
        ),
        (
            offer(&[MlKem768X25519], Some(MlKem768X25519), "rsa-sha2-512"),
            &["ssh-ed25519", "rsa-sha2-512"],
            FirstShare::Known(MlKem768X25519),
        ),
        // Our order decides: a server that likes a weaker one better is given no say.
        (
            offer(&[EcdhP256, MlKem768X25519], Some(EcdhP256), "ssh-ed25519"),
            &["ssh-ed25519"],
            FirstShare::Known(MlKem768X25519),
        ),
        (
            offer(&[EcdhP256, Curve25519], None, "ssh-ed25519"),
            &["ssh-ed25519"],
            FirstShare::Known(Curve25519),
        ),
        (
            offer(&[], None, "ssh-ed25519"),
            &["ssh-ed25519"],
            FirstShare::Waits,
        ),
    ] {
        let share = facts.first_share(&Method::ALL, &names(host_keys));
        assert_eq!(share, wanted, "{facts:?}");
    }
    // What the user asks for counts: a list of one is a list of one.
    let weak = offer(&[EcdhP256], Some(EcdhP256), "ssh-ed25519");
    assert_eq!(
        weak.first_share(&[Curve25519], &names(&["ssh-ed25519"])),
        FirstShare::Waits
    );
}
