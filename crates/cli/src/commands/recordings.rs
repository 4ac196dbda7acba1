//! The commands about recordings of sessions, on the node that made them or in the cluster that keeps them.

use super::machine::CONFIG;
use super::{HOME, JSON, STATE};
use crate::flags::{Command, Flag, Operands, Value};
use crate::recordings;

/// Where recordings are.
pub(super) const DIRECTORY: Flag = Flag::new(
    "directory",
    Value::Path("DIR"),
    "Where the recordings are, instead of the node's own directory (/var/lib/fleetgate/recordings).",
);
/// That the cluster's recordings are meant.
pub(super) const CLUSTER: Flag = Flag::new(
    "cluster",
    Value::None,
    "Those that the cluster keeps, also on a machine that has some of its own.",
);
const LAST: Flag = Flag::new("last", Value::None, "The one that began last.");
const FROM: Flag = Flag::new(
    "from",
    Value::Lifetime,
    "Begin so long after the start, as 90s or 10m.",
);
const IDENTITY: Flag = Flag::new(
    "identity",
    Value::Path("FILE"),
    "A file with private keys, as age-keygen writes it, for what is encrypted (default: ~/.config/fleetgate/age.txt, if it is there).",
)
.repeated();
const USER: Flag = Flag::new("user", Value::Text("USER"), "Of this user.");
const LOGIN: Flag = Flag::new("login", Value::Text("LOGIN"), "As this account.");
const NODE: Flag = Flag::new("node", Value::Text("NODE"), "On this node.");
const OF_NODE: Flag = Flag::new(
    "node",
    Value::Text("NODE"),
    "The recording of this node, or that this machine made: of several with the same id that the cluster keeps.",
);
const SINCE: Flag = Flag::new("since", Value::Moment, "Begun then or later.");
const UNTIL: Flag = Flag::new("until", Value::Moment, "Begun before then.");

const ON_NODE: Flag = Flag::new(
    "node",
    Value::Text("NODE"),
    "The session runs on this node. Without it auth is asked: it says where a session is recorded to those who may list its \
     recording, and to administrators where any session runs.",
);
const AS_LOGIN: Flag = Flag::new(
    "login",
    Value::Text("LOGIN"),
    "Connect to the node as this account.",
);

const fn one() -> Operands {
    Operands::words("SESSION", Value::Session, 0, 1)
}

/// These commands.
pub const TABLE: &[Command] = &[
    Command::new(
        &["sessions", "play"],
        "play the recording of a session",
        "On a terminal: space pauses, the arrows jump ten seconds and change the speed, as + and - do, g goes to the start, q \
         ends. What is shown is drawn anew from the screen of the session, so nothing that was recorded acts on your terminal. \
         Without a terminal the whole text is printed, and `--speed`, `--from` and `--max-idle` are refused. Of a session that still \
         runs it plays what is there. SESSION is its id, or the first 8 digits; `fleetgate sessions ls --recorded` lists them. It reads the directory of this machine where you may, \
         else what the cluster keeps and your roles let you play; that is an audit event.",
        recordings::play,
    )
    .flags(&[
        LAST,
        OF_NODE,
        Flag::new("speed", Value::Text("FACTOR"), "How fast: 2, or 0.5 (default: 1)."),
        FROM,
        Flag::new("max-idle", Value::Lifetime, "Cut times in which nothing happens to this, as 2s."),
        CLUSTER,
        IDENTITY,
        DIRECTORY,
        CONFIG,
        STATE,
        HOME,
    ])
    .operands(one())
    .examples(&[
        ("the last one, without long pauses", "fleetgate sessions play --last --max-idle 2s"),
        ("from a moment", "fleetgate sessions play 7eb5cf00 --from 90s"),
    ]),
    Command::new(
        &["sessions", "watch"],
        "see what a session shows that still runs",
        "Of any node, where your roles say so: by an SSH connection to it. The session's user and all who see it read that you do. \
         Nothing that you type reaches the session; q leaves. Without a terminal what the session showed at its end is printed. \
         On the node itself, as root, sessions that are recorded are read from there, a second later at most, and the keys of `play` \
         work. Of an encrypted recording, --identity opens what was shown before you came.",
        recordings::watch,
    )
    .flags(&[ON_NODE, AS_LOGIN, LAST, IDENTITY, DIRECTORY, CONFIG, HOME])
    .operands(one())
    .examples(&[
        ("one that `sessions ls` lists", "fleetgate sessions watch 7eb5cf00"),
        ("one that is not recorded", "fleetgate sessions watch 7eb5cf00 --node web1"),
    ]),
    Command::new(
        &["sessions", "join"],
        "see a session that still runs, and type in it",
        "As `sessions watch`, where your roles say so; what you type is typed in the session, as if its user had. All who are there \
         read that you joined. Ctrl-] and then q leaves; Ctrl-] twice types one.",
        recordings::join,
    )
    .flags(&[ON_NODE, AS_LOGIN, IDENTITY, HOME])
    .operands(one())
    .examples(&[
        ("help somebody", "fleetgate sessions join 7eb5cf00"),
        ("in a session that is not recorded", "fleetgate sessions join 7eb5cf00 --node web1"),
    ]),
    Command::new(
        &["sessions", "export"],
        "write the recording of a session in another format",
        "To standard output: as text (the default), as asciicast v2, which asciinema plays, as JSON with all that is in the \
         recording, or as a picture of the screen. Text, asciicast and picture are made from what the screen showed; the JSON \
         has the bytes as the session wrote them.",
        recordings::export,
    )
    .flags(&[
        LAST,
        OF_NODE,
        Flag::new("text", Value::None, "The text, a line a line."),
        Flag::new("times", Value::None, "With the time before each line of the text."),
        Flag::new("asciicast", Value::None, "For asciinema."),
        Flag::new("json", Value::None, "Every frame: a JSON document a line."),
        Flag::new("svg", Value::None, "The screen as a picture."),
        Flag::new("at", Value::Lifetime, "When the picture is taken, after the start (default: at the end)."),
        CLUSTER,
        IDENTITY,
        DIRECTORY,
        CONFIG,
        STATE,
        HOME,
    ])
    .operands(one())
    .examples(&[
        ("for asciinema", "fleetgate sessions export 7eb5cf00 --asciicast > session.cast"),
        ("what the screen showed after ten minutes", "fleetgate sessions export --last --svg --at 10m > screen.svg"),
    ]),
    Command::new(
        &["sessions", "grep"],
        "search the recordings of sessions",
        "For a fixed text, in the lines as they stood on the screen. Each match has its time, user, account and node, and the \
         command that plays the recording from there. A recording that was searched once has an index beside it, or for the \
         cluster's in your cache directory, and is passed over afterwards where it cannot match. The exit code is 1 where nothing matches, and 2 where something could not be \
         read.",
        recordings::grep,
    )
    .flags(&[
        Flag::new("ignore-case", Value::None, "Upper and lower case are the same.").letter('i'),
        Flag::new("extended-regexp", Value::None, "PATTERN is a regular expression.").letter('E'),
        USER,
        LOGIN,
        NODE,
        SINCE,
        UNTIL,
        Flag::new("no-index", Value::None, "Read every recording, and write no index."),
        CLUSTER,
        IDENTITY,
        DIRECTORY,
        CONFIG,
        STATE,
        HOME,
        Flag::new("json", Value::None, "Print each match as a JSON document on a line of its own."),
    ])
    .operands(Operands::words("PATTERN", Value::Text("PATTERN"), 1, 1))
    .examples(&[
        ("who stopped the database?", "fleetgate sessions grep postgresql --since 7d"),
        ("a regular expression", "fleetgate sessions grep -E 'rm.*/srv' --user ada"),
    ]),
    Command::new(
        &["sessions", "verify"],
        "say whether recordings are as the node wrote them",
        "Each block has a hash over itself and all before it, and the node signs the hash with its host keys: a changed byte, a \
         block that is missing or moved, an end that was cut off and the signature of another node are found, and named. For \
         the cluster's recordings auth names the keys. The exit code is 1 with any fault, and 2 where nothing could be verified.",
        recordings::verify,
    )
    .flags(&[
        LAST,
        OF_NODE,
        Flag::new("all", Value::None, "All recordings that there are."),
        Flag::new(
            "key",
            Value::Path("FILE"),
            "A file with the node's public keys, instead of the host keys of this machine or those that auth knows.",
        )
        .repeated(),
        CLUSTER,
        DIRECTORY,
        CONFIG,
        STATE,
        HOME,
        JSON,
    ])
    .operands(one())
    .examples(&[
        ("all of them", "fleetgate sessions verify --all"),
        (
            "those of another node",
            "fleetgate sessions verify --all --directory copied --key web1.pub",
        ),
    ]),
    Command::new(
        &["sessions", "rm"],
        "remove recordings that the cluster keeps",
        "For good. Your roles have to say that you may delete them, or you administer the cluster. Each is an audit event. SESSION is \
         the id, or the first 8 digits where no other one begins so. Recordings of a node go by its `keep_days` and `max_size`.",
        recordings::remove,
    )
    .flags(&[
        OF_NODE,
        Flag::new("yes", Value::None, "Do not ask."),
        CLUSTER,
        STATE,
        HOME,
        JSON,
    ])
    .operands(Operands::words("SESSION", Value::Session, 1, 256))
    .examples(&[
        ("one", "fleetgate sessions rm 7eb5cf00"),
        ("two, without a question", "fleetgate sessions rm 7eb5cf00 a90b12de --yes"),
    ]),
];
