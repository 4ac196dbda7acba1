//! What somebody's shell shows: a prompt, a command that is typed key by key, and what it prints, with pauses between. The words
//! are made of syllables, so that texts differ as names of files, hosts and branches do. Nothing here knows the time or the machine.

use std::collections::VecDeque;

const SYLLABLES: [&str; 48] = [
    "an", "ba", "cor", "da", "en", "fil", "gre", "hos", "in", "jo", "ka", "lib", "mo", "net", "or", "pro",
    "qua", "re", "sys", "ta", "un", "ver", "web", "xi", "ya", "zo", "back", "con", "data", "ex", "form",
    "gate", "hand", "ind", "log", "main", "node", "out", "port", "queue", "run", "serv", "test", "user",
    "view", "work", "zone", "db",
];
const ENDINGS: [&str; 12] = [
    ".conf", ".log", ".rs", ".py", ".service", ".gz", ".so.1", ".toml", ".json", ".sh", "", "",
];
const USERS: [&str; 8] = ["ada", "bob", "eve", "grace", "linus", "mallory", "ken", "barbara"];
const MONTHS: [&str; 6] = ["Jan", "Mar", "May", "Jul", "Sep", "Nov"];
/// Between two keys, and between two commands, in microseconds.
const KEY: u64 = 140_000;
const THINKS: u64 = 40_000_000;
/// A read of a terminal has so much at most.
const READ: usize = 4096;

/// One person at one shell.
pub struct Shell {
    state: u64,
    user: &'static str,
    node: String,
    directory: String,
    /// What comes: after how long, and what.
    due: VecDeque<(u64, Vec<u8>)>,
}

impl Shell {
    pub fn new(seed: u64) -> Shell {
        let mut shell = Shell {
            state: seed,
            user: "",
            node: String::new(),
            directory: String::new(),
            due: VecDeque::new(),
        };
        shell.user = shell.of(&USERS);
        shell.node = format!("{}{}", shell.word(2), shell.below(40));
        shell.directory = format!("/srv/{}", shell.word(2));
        shell
    }

    pub fn user(&self) -> &'static str {
        self.user
    }

    pub fn node(&self) -> String {
        self.node.clone()
    }

    /// splitmix64.
    pub fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random() % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        let at = self.below(all.len() as u64);
        all[usize::try_from(at).unwrap_or_default()]
    }

    fn word(&mut self, syllables: u64) -> String {
        let count = 1 + self.below(syllables);
        (0..count).map(|_| self.of(&SYLLABLES)).collect()
    }

    fn file(&mut self) -> String {
        let name = match self.below(4) {
            0 => format!("{}-{}", self.word(2), self.word(2)),
            1 => format!("{}_{}", self.word(3), self.below(1000)),
            _ => self.word(3),
        };
        name + self.of(&ENDINGS)
    }

    fn address(&mut self) -> String {
        format!("10.{}.{}.{}", self.below(256), self.below(256), self.below(256))
    }

    /// This is shown next.
    pub fn says(&mut self, text: &str) {
        self.due.push_back((KEY, text.as_bytes().to_vec()));
    }

    /// What is shown next, and how long after what came before.
    pub fn next(&mut self) -> (u64, Vec<u8>) {
        loop {
            if let Some(next) = self.due.pop_front() {
                return next;
            }
            self.command();
        }
    }

    /// A prompt, a command, its output.
    fn command(&mut self) {
        let prompt = format!(
            "\x1b]0;{0}@{1}: {2}\x07\x1b[01;32m{0}@{1}\x1b[00m:\x1b[01;34m{2}\x1b[00m$ ",
            self.user, self.node, self.directory
        );
        self.due.push_back((20_000, prompt.into_bytes()));
        let (line, output) = match self.below(9) {
            0 => self.ls(),
            1 => self.git_log(),
            2 => self.journal(),
            3 => self.make(),
            4 => self.ps(),
            5 => self.grep(),
            6 => self.progress(),
            7 => self.cat(),
            _ => self.cd(),
        };
        let mut pause = 1_000_000 + self.below(THINKS);
        for key in line.chars() {
            self.due.push_back((pause, key.to_string().into_bytes()));
            pause = KEY / 2 + self.below(KEY);
        }
        self.due.push_back((pause, b"\r\n".to_vec()));
        for piece in output.as_bytes().chunks(READ) {
            self.due.push_back((5_000, piece.to_vec()));
        }
    }

    fn ls(&mut self) -> (String, String) {
        let mut out = format!("total {}\r\n", self.below(9000));
        for _ in 0..10 + self.below(60) {
            let (mode, colour) = self.of(&[
                ("-rw-r--r--", "0"),
                ("drwxr-xr-x", "01;34"),
                ("-rwxr-xr-x", "01;32"),
            ]);
            out += &format!(
                "{mode} {:2} {:8} {:8} {:8} {} {:2} {:02}:{:02} \x1b[{colour}m{}\x1b[0m\r\n",
                1 + self.below(9),
                self.user(),
                "root",
                self.below(10_000_000),
                self.of(&MONTHS),
                1 + self.below(28),
                self.below(24),
                self.below(60),
                self.file()
            );
        }
        (format!("ls -l {}", self.directory), out)
    }

    fn git_log(&mut self) -> (String, String) {
        let mut out = String::new();
        for _ in 0..5 + self.below(20) {
            let (one, other) = (self.random(), self.random());
            let author = self.of(&USERS);
            out += &format!(
                "\x1b[33mcommit {one:016x}{other:016x}{:08x}\x1b[m\r\nAuthor: {author} <{author}@example.org>\r\n\r\n    ",
                one >> 32
            );
            for _ in 0..3 + self.below(8) {
                out += &(self.word(3) + " ");
            }
            out += "\r\n\r\n";
        }
        ("git log".to_owned(), out)
    }

    fn journal(&mut self) -> (String, String) {
        let unit = self.word(2);
        let mut out = String::new();
        for _ in 0..20 + self.below(100) {
            out += &format!(
                "{} {:2} {:02}:{:02}:{:02} {} {unit}[{}]: ",
                self.of(&MONTHS),
                1 + self.below(28),
                self.below(24),
                self.below(60),
                self.below(60),
                self.node(),
                self.below(40_000)
            );
            out += &match self.below(4) {
                0 => format!("connection from {} port {}", self.address(), self.below(65_536)),
                1 => format!(
                    "GET /{}/{} 200 {} in {} ms",
                    self.word(2),
                    self.file(),
                    self.below(99_999),
                    self.below(900)
                ),
                2 => format!(
                    "\x1b[31merror: {} of {} timed out\x1b[m",
                    self.word(3),
                    self.word(2)
                ),
                _ => format!("{} {} is {}", self.word(3), self.word(2), self.word(3)),
            };
            out += "\r\n";
        }
        (format!("journalctl -u {unit}"), out)
    }

    fn make(&mut self) -> (String, String) {
        let mut out = String::new();
        for _ in 0..10 + self.below(80) {
            let name = self.word(3);
            out += &format!(
                "cc -O2 -g -Wall -I{}/include -c -o {name}.o {name}.c\r\n",
                self.directory
            );
            if self.below(15) == 0 {
                out += &format!(
                    "\x1b[1m{name}.c:{}:{}:\x1b[m warning: unused variable '{}'\r\n",
                    self.below(900),
                    self.below(80),
                    self.word(2)
                );
            }
        }
        ("make -j8".to_owned(), out)
    }

    fn ps(&mut self) -> (String, String) {
        let mut out =
            "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\r\n".to_owned();
        for _ in 0..30 + self.below(60) {
            out += &format!(
                "{:8} {:7} {:2}.{} {:2}.{} {:6} {:5} ?        Ss   {:02}:{:02}   0:{:02} /usr/bin/{} --{} {}\r\n",
                self.of(&USERS),
                self.below(99_999),
                self.below(9),
                self.below(9),
                self.below(9),
                self.below(9),
                self.below(999_999),
                self.below(99_999),
                self.below(24),
                self.below(60),
                self.below(60),
                self.word(3),
                self.word(2),
                self.file()
            );
        }
        ("ps aux".to_owned(), out)
    }

    fn grep(&mut self) -> (String, String) {
        let word = self.word(2);
        let mut out = String::new();
        for _ in 0..self.below(50) {
            out += &format!(
                "\x1b[35m{}/{}\x1b[m:\x1b[32m{}\x1b[m:    {} = \x1b[01;31m{word}\x1b[m({}, {});\r\n",
                self.word(2),
                self.file(),
                self.below(2000),
                self.word(2),
                self.word(2),
                self.below(100)
            );
        }
        (format!("grep -rn {word} ."), out)
    }

    /// Lines that are written over.
    fn progress(&mut self) -> (String, String) {
        let file = self.file();
        let mut out = String::new();
        for percent in 0..=100 {
            out += &format!(
                "\r{file} {percent:3}% {:5}KB  {}.{}MB/s",
                percent * 37,
                self.below(90),
                self.below(9)
            );
        }
        (format!("scp {file} {}:", self.address()), out + "\r\n")
    }

    fn cat(&mut self) -> (String, String) {
        let mut out = String::new();
        for _ in 0..10 + self.below(80) {
            out += &match self.below(3) {
                0 => format!("# {} {} {}\r\n", self.word(3), self.word(2), self.word(3)),
                1 => format!("[{}]\r\n", self.word(2)),
                _ => format!("{} = \"{}\"\r\n", self.word(2), self.file()),
            };
        }
        let file = self.file();
        (format!("cat {}/{file}", self.directory), out)
    }

    fn cd(&mut self) -> (String, String) {
        self.directory = format!("/srv/{}/{}", self.word(2), self.word(2));
        (format!("cd {}", self.directory), String::new())
    }
}
