//! The command line of `fleetgate ssh`, word by word.

use super::names::Rule;
use super::*;

fn read(line: &str) -> Result<Options, String> {
    let words: Vec<OsString> = line
        .split(' ')
        .filter(|w| !w.is_empty())
        .map(OsString::from)
        .collect();
    match Options::parse(&words)? {
        Invocation::Run(options) => Ok(*options),
        Invocation::Help => Err("help".into()),
        Invocation::Version => Err("version".into()),
    }
}

#[test]
fn the_command_line_is_read_as_ssh_reads_its_own() {
    type Check = fn(&Options) -> bool;
    let table: [(&str, Check); 30] = [
        ("web1", |o| {
            o.host == "web1" && o.user.is_none() && o.work == Work::Shell
        }),
        ("root@web1 uname -a", |o| {
            o.user.as_deref() == Some("root") && o.work == Work::Exec(b"uname -a".to_vec())
        }),
        ("web1 ls -t -L x", |o| {
            o.work == Work::Exec(b"ls -t -L x".to_vec()) && o.locals.is_empty()
        }),
        ("web1 -t top", |o| {
            o.tty == Tty::Yes && o.work == Work::Exec(b"top".to_vec())
        }),
        ("-tt -- web1 top", |o| {
            o.tty == Tty::Force && o.work == Work::Exec(b"top".to_vec())
        }),
        ("-L8080:x:80 web1", |o| o.locals.len() == 1),
        ("-L 8080:x:80 -R 1:y:2 -D1080 web1", |o| {
            o.locals.len() == 2 && o.remotes.len() == 1
        }),
        ("-NTL 8080:x:80 web1", |o| {
            o.work == Work::None && o.tty == Tty::No && o.locals.len() == 1
        }),
        ("-lroot -nq web1", |o| {
            o.user.as_deref() == Some("root") && !o.input && o.level == LogLevel::Quiet
        }),
        ("-l root ann@web1", |o| o.user.as_deref() == Some("root")),
        ("ann@web1 -l root", |o| o.user.as_deref() == Some("ann")),
        ("-l root -o User=ann -l eve web1", |o| {
            o.user.as_deref() == Some("root")
        }),
        ("ssh://ann@web1", |o| {
            o.user.as_deref() == Some("ann") && o.host == "web1" && o.port.is_none()
        }),
        ("--direct ssh://a%40b;x=y@[::1]:3022/", |o| {
            o.user.as_deref() == Some("a@b") && o.host == "::1" && o.port == Some(3022)
        }),
        ("--direct ssh://web1:3022 -p 22", |o| o.port == Some(3022)),
        ("--direct -p 22 -l root ssh://ann@web1:3022", |o| {
            o.port == Some(22) && o.user.as_deref() == Some("root")
        }),
        ("-W db:5432 web1", |o| {
            matches!(&o.work, Work::To(Target::Tcp { port: 5432, .. }))
        }),
        ("-s web1 sftp", |o| o.work == Work::Subsystem(b"sftp".to_vec())),
        ("-p 2222 web1", |o| o.notes.len() == 1),
        ("--direct -p 2222 web1", |o| {
            o.port == Some(2222) && o.notes.is_empty()
        }),
        ("--direct me@web1:3022 true", |o| {
            o.port == Some(3022) && o.host == "web1"
        }),
        ("--direct [::1]:3022", |o| o.port == Some(3022) && o.host == "::1"),
        ("--explain=json -e none web1", |o| {
            o.explain == Some(Explain::Json) && o.escape.is_none()
        }),
        ("-e ^b -A -a web1", |o| o.escape == Some(2) && !o.agent),
        (
            "-oServerAliveInterval=5 -o setenv=A=b -o StrictHostKeyChecking=no -oConnectTimeout=3 web1",
            |o| {
                o.alive_interval == Duration::from_secs(5)
                    && o.set_env == [("A".to_owned(), "b".to_owned())]
                    && o.strict == Strict::No
                    && o.connect_time == Some(Duration::from_secs(3))
            },
        ),
        ("env=prod,role=db", |o| o.host == "env=prod,role=db"),
        ("web1", |o| o.keep == Keep::For(PERSIST)),
        ("-o ControlPersist=no web1", |o| o.keep == Keep::No),
        ("-o ControlPersist=1h30 web1", |o| {
            o.keep == Keep::For(Duration::from_secs(3630))
        }),
        ("-o ControlPersist=yes web1", |o| {
            o.keep == Keep::For(Duration::from_secs(86_400))
        }),
    ];
    for (line, check) in table {
        let options = read(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(check(&options), "{line}: {options:?}");
    }
}

#[test]
fn a_container_is_named_in_three_ways() {
    let login = |line: &str| read(line).map(|o| (o.host.clone(), o.login(|_| "me".to_owned())));
    for (line, host, name) in [
        ("web1 --container shop", "web1", "me+shop"),
        ("--container=shop ann@web1 ls", "web1", "ann+shop"),
        ("ann@web1+shop", "web1", "ann+shop"),
        ("ann+shop@web1", "web1", "ann+shop"),
        ("web1+a+b", "web1", "me+a+b"),
        ("--direct odd+name", "odd+name", "me"),
        ("--direct --container shop web1", "web1", "me+shop"),
        ("env=a+b", "env=a+b", "me"),
        // The file's name for the node is one, and none of the container.
        ("-o HostName=%h.prod web1+shop", "web1.prod", "me+shop"),
        ("-o HostName=10.0.0.1 web1+shop", "10.0.0.1", "me+shop"),
    ] {
        assert_eq!(login(line), Ok((host.to_owned(), name.to_owned())), "{line}");
    }
    for wrong in [
        "--container shop web1+shop",
        "--container shop ann+x@web1",
        "ann+x@web1+shop",
        "+shop@web1",
        "web1+",
        "+shop",
        "--container= web1",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn what_is_not_served_is_said() {
    for (line, words) in [
        ("", "NODE is missing"),
        ("-t", "NODE is missing"),
        ("-f web1", "no command to run in the background"),
        ("-f -W db:1 web1", "the background has none"),
        ("-O forward web1", "`check`, `exit` or `stop`"),
        (
            "-w 0 web1",
            "is not served by `fleetgate ssh`: a tunnel of packets",
        ),
        ("-Q cipher web1", "`ssh -Q`"),
        ("-L", "wants a value"),
        ("-L 80 web1", "`-L`: \"80\" is no forward"),
        (
            "-p 70000 web1",
            "`-p`: `70000`: Port takes a number from 1 to 65535",
        ),
        (
            "-o Port=ssh web1",
            "-o Port=ssh: Port takes a number from 1 to 65535",
        ),
        ("-o Port=0 web1", "a number from 1 to 65535"),
        ("-R 1080 web1", "SOCKS proxy on the far side"),
        (
            "-o Ciphers=none web1",
            "none of these is known here; known are aes128-gcm",
        ),
        ("-o NoSuchThing=1 web1", "knows an option `NoSuchThing`"),
        (
            "-o NoSuchThing=1 -o IgnoreUnknown=NoSuch* web1",
            "knows an option `NoSuchThing`",
        ),
        ("-o ProxyCommand=nc web1", "unsafe to ignore"),
        ("-o KnownHostsCommand=/bin/true web1", "unsafe to ignore"),
        ("-o RevokedHostKeys=/x web1", "unsafe to ignore"),
        ("-o IdentityAgent=/x web1", "SSH_AUTH_SOCK"),
        ("-o RequiredRSASize=4096 web1", "2048 bits"),
        (
            "-o PreferredAuthentications=gssapi-with-mic web1",
            "none of these ways",
        ),
        ("-o HostKeyAlias=x web1", "known by its own name"),
        (
            "-o RemoteCommand=id web1 uptime",
            "a command stands on the line too",
        ),
        ("-o ConnectTimeout web1", "NAME=VALUE"),
        ("-o ForwardAgent=maybe web1", "yes or no"),
        ("-o ControlPersist=soon web1", "a time as 90, 10m or 1h30m"),
        ("-z web1", "no flag"),
        ("--explain=xml web1", "json, not `xml`"),
        ("--what web1", "no flag"),
        ("-F /nowhere/at/all web1", "/nowhere/at/all: No such file"),
        ("-N web1 true", "there is one"),
        ("-W db:1 web1 true", "takes no command"),
        ("-s web1", "which subsystem"),
        ("@web1", "a name is missing"),
        ("ssh://", "ssh://[USER@]HOST[:PORT]"),
        ("ssh://@web1", "ssh://[USER@]HOST[:PORT]"),
        ("ssh://web1:0", "ssh://[USER@]HOST[:PORT]"),
        ("ssh://web1/etc", "ssh://[USER@]HOST[:PORT]"),
        ("ssh://a%0@web1", "ssh://[USER@]HOST[:PORT]"),
        ("--direct -J p web1", "no proxy"),
    ] {
        let error = read(line).expect_err(line);
        assert!(error.contains(words), "{line}: {error}");
    }
    let most = "-L 1:x:1 ".repeat(MAX_FORWARDS);
    assert!(read(&format!("{most} web1")).is_ok());
    assert!(
        read(&format!("{most} -D 1 web1"))
            .unwrap_err()
            .contains("more than")
    );
}

/// What ssh_config(5) of OpenSSH 9.2 has.
const SSH_CONFIG: &str = "AddKeysToAgent AddressFamily BatchMode BindAddress BindInterface CanonicalDomains \
    CanonicalizeFallbackLocal CanonicalizeHostname CanonicalizeMaxDots CanonicalizePermittedCNAMEs CASignatureAlgorithms \
    CertificateFile CheckHostIP Ciphers ClearAllForwardings Compression ConnectionAttempts ConnectTimeout ControlMaster \
    ControlPath ControlPersist DynamicForward EnableEscapeCommandline EnableSSHKeysign EscapeChar ExitOnForwardFailure \
    FingerprintHash ForkAfterAuthentication ForwardAgent ForwardX11 ForwardX11Timeout ForwardX11Trusted GatewayPorts \
    GlobalKnownHostsFile GSSAPIAuthentication GSSAPIClientIdentity GSSAPIDelegateCredentials GSSAPIKeyExchange \
    GSSAPIRenewalForcesRekey GSSAPIServerIdentity GSSAPITrustDns GSSAPIKexAlgorithms HashKnownHosts \
    HostbasedAcceptedAlgorithms HostbasedAuthentication HostKeyAlgorithms HostKeyAlias Hostname IdentitiesOnly IdentityAgent \
    IdentityFile IgnoreUnknown Include IPQoS KbdInteractiveAuthentication KbdInteractiveDevices KexAlgorithms \
    KnownHostsCommand LocalCommand LocalForward LogLevel LogVerbose MACs NoHostAuthenticationForLocalhost \
    NumberOfPasswordPrompts PasswordAuthentication PermitLocalCommand PermitRemoteOpen PKCS11Provider Port \
    PreferredAuthentications ProxyCommand ProxyJump ProxyUseFdpass PubkeyAcceptedAlgorithms PubkeyAuthentication RekeyLimit \
    RemoteCommand RemoteForward RequestTTY RequiredRSASize RevokedHostKeys SecurityKeyProvider SendEnv ServerAliveCountMax \
    ServerAliveInterval SessionType SetEnv StdinNull StreamLocalBindMask StreamLocalBindUnlink StrictHostKeyChecking \
    SyslogFacility TCPKeepAlive Tunnel TunnelDevice UpdateHostKeys User UserKnownHostsFile VerifyHostKeyDNS VisualHostKey \
    XAuthLocation";

/// The options that decide whom to trust, with what, and by which way: none may be ignored.
const TRUST: &str = "CASignatureAlgorithms Ciphers HostKeyAlgorithms HostKeyAlias IdentityAgent Include KexAlgorithms \
    KnownHostsCommand MACs ProxyCommand PubkeyAcceptedAlgorithms PubkeyAuthentication PasswordAuthentication RekeyLimit \
    RequiredRSASize RevokedHostKeys StrictHostKeyChecking UserKnownHostsFile GlobalKnownHostsFile";

#[test]
fn no_option_of_sshs_is_unknown_and_none_about_trust_is_left_aside() {
    for name in SSH_CONFIG.split_whitespace() {
        assert!(names::find(name).is_some(), "{name}");
        let error = read(&format!("-o {name}=\u{1} web1")).err();
        assert!(
            !error.is_some_and(|e| e.contains("knows no such option")),
            "{name}"
        );
    }
    for name in TRUST.split_whitespace() {
        let (_, rule) = names::find(name).expect(name);
        assert!(!matches!(rule, Rule::Ignored(_)), "{name}");
    }
    for (name, rule) in names::NAMES.iter().filter(|(_, rule)| *rule == Rule::Used) {
        let options = read(&format!("-o {name}=yes web1"));
        let aside = options.is_ok_and(|o| o.notes.iter().any(|n| n.starts_with(&format!("-o {name} has"))));
        assert!(!aside, "{name} is {rule:?} and nothing uses it");
    }
    let options = read("-o IgnoreUnknown=NoSuch*,x -o NoSuchThing=1 -o X=2 web1").expect("ignored");
    assert_eq!(options.notes, Vec::<String>::new());
    for (line, notes) in [
        (
            "-o Compression=no -o AddressFamily=any -o TCPKeepAlive=yes -o Tunnel=no web1",
            0,
        ),
        ("-o StrictHostKeyChecking=yes -o Protocol=2 web1", 0),
        ("-o Compression=yes -C web1", 2),
        ("-4 -o GSSAPIAuthentication=yes -o VisualHostKey=yes web1", 3),
        ("-o StrictHostKeyChecking=no web1", 1),
        ("--direct -o StrictHostKeyChecking=no web1", 0),
    ] {
        assert_eq!(read(line).expect(line).notes.len(), notes, "{line}");
    }
}

#[test]
fn options_are_used_as_ssh_uses_them() {
    type Check = fn(&Options) -> bool;
    let table: [(&str, Check); 22] = [
        ("-f web1 sleep 9", |o| o.background && !o.input),
        ("-fN -L 1:x:1 web1", |o| o.background && o.work == Work::None),
        ("-G web1", |o| o.print),
        ("-O check", |o| o.control == Some(Control::Check)),
        ("-O exit web1", |o| o.control == Some(Control::Exit)),
        ("-X web1", |o| o.x11 == Some(X11::Untrusted)),
        ("-Y web1", |o| o.x11 == Some(X11::Trusted)),
        ("-X -x web1", |o| o.x11.is_none()),
        ("-o ForwardX11=yes -o ForwardX11Trusted=yes web1", |o| {
            o.x11 == Some(X11::Trusted)
        }),
        ("-p 22 -o Port=33 --direct web1", |o| o.port == Some(22)),
        ("-o ServerAliveInterval=5 -o ServerAliveInterval=9 web1", |o| {
            o.alive_interval == Duration::from_secs(5)
        }),
        ("-o ConnectTimeout=1m30 web1", |o| {
            o.connect_time == Some(Duration::from_secs(90))
        }),
        (
            "-o PasswordAuthentication=no -o NumberOfPasswordPrompts=1 web1",
            |o| !o.ways.password && o.ways.keyboard && o.ways.prompts == 1,
        ),
        ("-o PreferredAuthentications=publickey web1", |o| {
            o.ways.keys && !o.ways.password && !o.ways.keyboard
        }),
        ("-c aes256-ctr -m hmac-sha2-512-etm@openssh.com web1", |o| {
            let a = &o.algorithms;
            let ciphers: Vec<_> = a.ciphers.iter().flatten().map(|c| c.name()).collect();
            ciphers == ["aes256-ctr"] && a.macs.as_ref().is_some_and(|m| m.len() == 1)
        }),
        ("-o Ciphers=-aes*ctr web1", |o| {
            o.algorithms.ciphers.as_ref().is_some_and(|c| c.len() == 3)
        }),
        ("-o KexAlgorithms=^curve25519-sha256 web1", |o| {
            let kex = o.algorithms.kex.as_ref();
            kex.is_some_and(|k| k.len() == 5 && k[0].name() == "curve25519-sha256")
        }),
        ("-o HostName=%h.db web1", |o| o.host == "web1.db"),
        ("-o ClearAllForwardings=yes -L 1:x:1 -R 1:x:1 web1", |o| {
            o.locals.is_empty() && o.remotes.is_empty()
        }),
        ("-o RemoteCommand=id -o SessionType=default web1", |o| {
            o.work == Work::Exec(b"id".to_vec())
        }),
        ("-S none web1", |o| o.keep == Keep::No),
        ("-o UserKnownHostsFile=none --direct web1", |o| {
            o.known_hosts == [PathBuf::from("/dev/null")]
        }),
    ];
    for (line, check) in table {
        let options = read(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(check(&options), "{line}: {options:?}");
    }
}

/// The parser's letters and the table's are the same.
#[test]
fn every_flag_of_the_table_is_read_and_no_other() {
    for flag in flags::FLAGS.iter().filter(|f| f.long != "help") {
        let name = match flag.letter {
            Some(letter) => format!("-{letter}"),
            None => format!("--{}", flag.long),
        };
        let value = match (flag.letter, flag.value) {
            (_, "") => "",
            (Some('L' | 'R'), _) => "1:x:1",
            (Some('D' | 'p'), _) => "1",
            (Some('O'), _) => "check",
            (Some('W'), _) => "db:1",
            (Some('c'), _) => "aes256-ctr",
            (Some('m'), _) => "hmac-sha2-256-etm@openssh.com",
            (Some('e' | 'F' | 'S'), _) => "none",
            (Some('o'), _) => "BatchMode=yes",
            _ => "x",
        };
        let command = if flag.letter == Some('W') || flag.letter == Some('N') {
            ""
        } else {
            "id"
        };
        let line = format!("{name} {value} web1 {command}");
        match read(&line) {
            Err(e) => assert!(e == "version", "{line}: {e}"),
            Ok(options) => assert_eq!(options.host, "web1", "{line}"),
        }
    }
    for letter in (b'!'..=b'~').filter(|b| b.is_ascii_alphanumeric()) {
        let letter = char::from(letter);
        let known = flags::FLAGS.iter().any(|f| f.letter == Some(letter));
        let hidden = "2P".contains(letter) || letter == 'h';
        let other = flags::NOT_SERVED.iter().any(|(l, _)| *l == letter);
        if !known && !hidden && !other {
            let error = read(&format!("-{letter} web1")).expect_err("no flag");
            assert!(error.contains("there is no flag"), "{letter}: {error}");
        }
    }
}

#[test]
fn a_file_of_options_is_read_behind_the_command_line() {
    let file = std::env::temp_dir().join(format!("fleetgate-options-{}", std::process::id()));
    let text = "Host web*\n  ServerAliveInterval 7\n  User ann\nHost *\n  ServerAliveInterval 9\n  BatchMode = yes\n";
    std::fs::write(&file, text).expect("written");
    let of = |words: &str| read(&format!("-F {} {words}", file.display()));
    let options = of("web1").expect("read");
    assert_eq!(
        (
            options.user.as_deref(),
            options.alive_interval.as_secs(),
            options.batch
        ),
        (Some("ann"), 7, true)
    );
    let options = of("-l root -o ServerAliveInterval=3 web1").expect("read");
    assert_eq!(
        (options.user.as_deref(), options.alive_interval.as_secs()),
        (Some("root"), 3)
    );
    assert_eq!(of("db").expect("read").alive_interval.as_secs(), 9);
    // A container is in the node, and what the file says is the node's.
    let options = of("web1+shop").expect("read");
    assert_eq!(
        (options.host.as_str(), options.login(|_| String::new()).as_str()),
        ("web1", "ann+shop")
    );
    std::fs::write(&file, "BatchMode yes\nProxyCommand nc\n").expect("written");
    let error = of("web1").expect_err("refused");
    assert!(
        error.contains(&format!("{}:2: -o ProxyCommand=nc", file.display())),
        "{error}"
    );
    std::fs::remove_file(&file).expect("removed");
}

/// Each flag against a file that says the opposite.
#[test]
fn what_the_command_line_says_counts_before_the_file() {
    type Check = fn(&Options) -> bool;
    let file = std::env::temp_dir().join(format!("fleetgate-opposite-{}", std::process::id()));
    let table: [(&str, &str, Check); 23] = [
        ("bob@web1", "User alice", |o| o.user.as_deref() == Some("bob")),
        ("-l bob web1", "User alice", |o| o.user.as_deref() == Some("bob")),
        ("ssh://bob@web1", "Host web1\nUser alice", |o| {
            o.user.as_deref() == Some("bob")
        }),
        ("ssh://web1", "Host web1\nUser alice", |o| {
            o.user.as_deref() == Some("alice")
        }),
        ("--direct ssh://web1:22", "Port 33", |o| o.port == Some(22)),
        ("-a web1", "ForwardAgent yes", |o| !o.agent),
        ("-A web1", "ForwardAgent no", |o| o.agent),
        ("-x web1", "ForwardX11 yes", |o| o.x11.is_none()),
        ("-X web1", "ForwardX11 no", |o| o.x11.is_some()),
        ("-Y web1", "ForwardX11 no\nForwardX11Trusted no", |o| {
            o.x11 == Some(X11::Trusted)
        }),
        ("-T web1", "RequestTTY force", |o| o.tty == Tty::No),
        ("-t web1", "RequestTTY no", |o| o.tty == Tty::Yes),
        ("-q web1", "LogLevel INFO", |o| o.level == LogLevel::Quiet),
        ("-v web1", "LogLevel QUIET", |o| {
            o.level == LogLevel::Info && o.verbose == 1
        }),
        ("-n web1", "StdinNull no", |o| !o.input),
        ("-f web1 id", "ForkAfterAuthentication no\nStdinNull no", |o| {
            o.background && !o.input
        }),
        ("-e none web1", "EscapeChar ~", |o| o.escape.is_none()),
        ("-N web1", "SessionType default", |o| o.work == Work::None),
        ("-s web1 sftp", "SessionType none", |o| {
            matches!(o.work, Work::Subsystem(_))
        }),
        ("-J p:3 web1", "ProxyJump a,b", |o| {
            o.proxy.as_deref() == Some("p:3")
        }),
        ("-o SetEnv=A=1 web1", "SetEnv A=2 B=3", |o| {
            o.set_env == [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "3".to_owned())]
        }),
        ("-S none web1", "ControlPath /x", |o| o.keep == Keep::No),
        ("-c aes256-ctr web1", "Ciphers aes128-ctr", |o| {
            let named = o.algorithms.ciphers.iter().flatten().map(|c| c.name());
            named.eq(["aes256-ctr"])
        }),
    ];
    for (line, text, check) in table {
        std::fs::write(&file, text).expect("written");
        let line = format!("-F {} {line}", file.display());
        let options = read(&line).unwrap_or_else(|e| panic!("{line}: {text}: {e}"));
        assert!(check(&options), "{line}: {text}: {options:?}");
    }
    std::fs::remove_file(&file).expect("removed");
    // Of a flag and `-o` on one line the flag counts, wherever it stands.
    let options = read("-o ForwardAgent=yes -a -o ForwardAgent=yes web1").expect("read");
    assert!(!options.agent);
}

#[test]
fn what_holds_is_printed_as_ssh_prints_it() {
    let options = read("-G -p 2222 -o ServerAliveInterval=5 -L 8080:x:80 -c aes256-ctr --direct ann@web1")
        .expect("read");
    let printed = printed::lines(&options);
    for line in [
        "hostname web1",
        "user ann",
        "port 2222",
        "serveraliveinterval 5",
        "ciphers aes256-ctr",
        "batchmode no",
    ] {
        assert!(printed.lines().any(|l| l == line), "{line}: {printed}");
    }
    assert!(printed.contains("localforward "), "{printed}");
}
