//! The flags of `fleetgate ssh` as data: the parser asks here which of them take a value, and help, man pages and
//! completions are made of the same table.

/// A flag.
#[derive(Clone, Copy, Debug)]
pub struct SshFlag {
    /// The letter behind one dash.
    pub letter: Option<char>,
    /// The name behind two dashes; empty: it has none.
    pub long: &'static str,
    /// What it takes; empty: nothing.
    pub value: &'static str,
    /// Whether it may be given more than once.
    pub repeats: bool,
    /// One sentence.
    pub help: &'static str,
}

const fn short(letter: char, value: &'static str, help: &'static str) -> SshFlag {
    SshFlag {
        letter: Some(letter),
        long: "",
        value,
        repeats: false,
        help,
    }
}

const fn long(long: &'static str, value: &'static str, help: &'static str) -> SshFlag {
    SshFlag {
        letter: None,
        long,
        value,
        repeats: false,
        help,
    }
}

const fn repeated(mut flag: SshFlag) -> SshFlag {
    flag.repeats = true;
    flag
}

/// The options that a flag is another way to say. They have their value then: neither `-o` behind it nor a file changes it.
pub(super) fn stands_for(letter: u8) -> impl Iterator<Item = &'static str> {
    let names: &[&str] = match letter {
        b'A' | b'a' => &["ForwardAgent"],
        b'e' => &["EscapeChar"],
        b'f' => &["ForkAfterAuthentication", "StdinNull"],
        b'J' => &["ProxyJump"],
        b'N' | b's' => &["SessionType"],
        b'n' => &["StdinNull"],
        b'q' | b'v' => &["LogLevel"],
        b'T' | b't' => &["RequestTTY"],
        b'W' => &["SessionType", "RequestTTY"],
        b'X' | b'x' => &["ForwardX11"],
        b'Y' => &["ForwardX11", "ForwardX11Trusted"],
        _ => &[],
    };
    names.iter().copied()
}

/// All of them.
pub const FLAGS: &[SshFlag] = &[
    short('4', "", "IPv4 alone; ignored, with a warning."),
    short('6', "", "IPv6 alone; ignored, with a warning."),
    short('A', "", "Let the node use this machine's ssh-agent."),
    short('a', "", "Do not (the default)."),
    short(
        'b',
        "ADDRESS",
        "Connect from this address; ignored, with a warning.",
    ),
    short(
        'B',
        "INTERFACE",
        "Connect from this interface; ignored, with a warning.",
    ),
    short('C', "", "Compress; ignored, with a warning."),
    short(
        'c',
        "CIPHERS",
        "The ciphers to offer, best first, with commas between them.",
    ),
    repeated(short(
        'D',
        "[BIND:]PORT",
        "A SOCKS proxy here, whose connections begin on the node.",
    )),
    short(
        'e',
        "CHAR",
        "What begins an escape at the start of a line; `none` for none (default: ~).",
    ),
    short(
        'F',
        "FILE",
        "Read options from this ssh_config too: its Host blocks. None is read by default.",
    ),
    short(
        'f',
        "",
        "Go to the background when the login is done and the forwards stand.",
    ),
    short(
        'g',
        "",
        "Let others connect to forwarded ports; ignored, with a warning: BIND says so with -L.",
    ),
    short('G', "", "Print the options that hold, and do nothing else."),
    repeated(short('i', "FILE", "A private key, for --direct.")),
    short(
        'J',
        "HOST[:PORT]",
        "Go through this proxy instead of the login's own.",
    ),
    short('K', "", "GSSAPI; ignored, with a warning."),
    short('k', "", "No GSSAPI (the default)."),
    repeated(short(
        'L',
        "[BIND:]PORT:HOST:PORT",
        "Listen here, connect there; sockets by their absolute paths.",
    )),
    short('l', "USER", "The account."),
    short(
        'M',
        "",
        "Be ssh's master; ignored, with a warning: connections are kept anyway (`fleetgate master status`).",
    ),
    short(
        'm',
        "MACS",
        "The MACs to offer, best first, with commas between them.",
    ),
    short('N', "", "No command: forwards alone."),
    short('n', "", "Read nothing from standard input."),
    short(
        'O',
        "COMMAND",
        "About the process that keeps connections: check, exit, or stop (begin nothing more on them).",
    ),
    repeated(short(
        'o',
        "NAME=VALUE",
        "An option, as ssh_config(5) has it. What ssh knows and fleetgate does not use is ignored with a warning; what \
         would be unsafe to ignore is refused. ControlPersist is how long the connection to \
         the proxy is kept for the next command (default: 10m; `no`: it ends with this one).",
    )),
    short(
        'p',
        "PORT",
        "With --direct; a node has no port, and it is ignored.",
    ),
    short('q', "", "Say less."),
    repeated(short('R', "[BIND:]PORT:HOST:PORT", "Listen there, connect here.")),
    short(
        'S',
        "PATH",
        "Where ssh keeps its shared connection; `none`: keep no connection to the proxy.",
    ),
    short('s', "", "The command is the name of a subsystem."),
    short('T', "", "Ask for no terminal."),
    repeated(short(
        't',
        "",
        "Ask for a terminal; twice: even without one here.",
    )),
    short('V', "", "Print the version."),
    repeated(short('v', "", "Say more: up to three times.")),
    short(
        'W',
        "HOST:PORT",
        "Standard input and output are a connection from the node to there.",
    ),
    short(
        'X',
        "",
        "Forward X11, with a cookie that the display distrusts, where it knows such.",
    ),
    short('x', "", "Do not forward X11 (the default)."),
    short('Y', "", "Forward X11, with the display's own trust."),
    short('y', "", "Log to syslog; ignored, with a warning."),
    long(
        "address",
        "HOST[:PORT]",
        "Connect to the node's own port there (default 22), with the login's certificate, and not through the proxy.",
    ),
    long(
        "container",
        "NAME",
        "Into this container of the node; the same as NODE+NAME, and as NAME behind the account: USER+NAME@NODE.",
    ),
    long(
        "direct",
        "",
        "Connect to an SSH server without a proxy, with keys of files and of the ssh-agent.",
    ),
    long(
        "explain",
        "",
        "Say where the time went; --explain=json for a program.",
    ),
    long(
        "home",
        "DIR",
        "The login's directory, instead of FLEETGATE_HOME or ~/.fleetgate.",
    ),
    long(
        "no-master",
        "",
        "Make a connection of its own; the same as -o ControlPersist=no.",
    ),
    long("proxy", "HOST[:PORT]", "The same as -J."),
    long("help", "", "Print this help."),
];

/// Flags of ssh that take a value and are not served; each with what to do instead.
pub const NOT_SERVED: [(char, &str); 4] = [
    ('E', "put `2> FILE` behind the command"),
    ('I', "load the token into the ssh-agent: `ssh-add -s PROVIDER`"),
    (
        'Q',
        "`ssh -Q` lists OpenSSH's algorithms; `fleetgate ssh -vv` says which are taken",
    ),
    (
        'w',
        "a tunnel of packets is no connection that a node opens; forward ports with -L or -D",
    ),
];

/// Whether a letter takes a value.
pub fn takes_value(letter: u8) -> bool {
    let letter = char::from(letter);
    FLAGS
        .iter()
        .any(|f| f.letter == Some(letter) && !f.value.is_empty())
        || NOT_SERVED.iter().any(|(l, _)| *l == letter)
}
