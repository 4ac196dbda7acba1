//! Which of the tasks that a traced program makes are wanted too. It decides by what a task is alone; how an unwanted one is
//! left in peace is the business of each way to catch calls.

use crate::TraceError;

/// What is followed, beside the program itself (or the tasks that were attached to).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Everything that it makes, and so on.
    All,
    /// Nothing: not even its own new threads.
    None,
    /// Processes up to so many generations below it, each with its threads.
    Levels(u32),
    /// Its own threads.
    Threads,
    /// Every process below it as long as it runs a program whose path fits, with its threads.
    Exec(Vec<u8>),
}

/// What a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kin<'a> {
    /// Generations of processes between it and the first one: 0 for that and its threads.
    pub level: u32,
    /// It is a thread, made while its process was traced.
    pub thread: bool,
    /// The path of the program that it runs, where it is known.
    pub program: Option<&'a [u8]>,
}

/// Whether a task is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It is.
    Yes,
    /// It is not, and nothing that it could make or become is.
    Never,
    /// It is not, until it runs another program.
    NotYet,
}

impl Follow {
    /// Whether such a task is wanted.
    #[must_use]
    pub fn wants(&self, kin: Kin<'_>) -> Wanted {
        let known = |wanted| if wanted { Wanted::Yes } else { Wanted::Never };
        match self {
            Follow::All => Wanted::Yes,
            Follow::None => known(kin.level == 0 && !kin.thread),
            Follow::Levels(levels) => known(kin.level <= *levels),
            Follow::Threads => known(kin.level == 0),
            Follow::Exec(_) if kin.level == 0 => Wanted::Yes,
            Follow::Exec(glob) => match kin.program {
                Some(path) if fits(glob, path) => Wanted::Yes,
                _ => Wanted::NotYet,
            },
        }
    }

    /// Whether a task's program has to be known to decide about it.
    #[must_use]
    pub fn asks_for_program(&self) -> bool {
        matches!(self, Follow::Exec(_))
    }
}

impl std::str::FromStr for Follow {
    type Err = TraceError;

    /// `all`, `none`, `threads`, a number of levels, or `exec=GLOB`.
    fn from_str(text: &str) -> Result<Follow, TraceError> {
        Ok(match text {
            "all" => Follow::All,
            "none" => Follow::None,
            "threads" => Follow::Threads,
            _ => match text.strip_prefix("exec=") {
                Some("") => return Err(TraceError("exec= needs a glob, as in exec='*/cc1'".to_owned())),
                Some(glob) => Follow::Exec(glob.into()),
                None => Follow::Levels(text.parse().map_err(|_| {
                    format!("{text:?} says nothing about following; use all, none, threads, a number of levels, or exec=GLOB")
                })?),
            },
        })
    }
}

/// Whether a text fits a glob: `*` is anything, `?` any byte; slashes are not special. Its time is at most the product of
/// the two lengths.
#[must_use]
pub fn fits(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    // Where to go on when it does not fit: behind the last star, one byte further in the text each time.
    let mut again: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some(b'*') => {
                again = Some((g + 1, t));
                g += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[t] => {
                g += 1;
                t += 1;
            }
            _ => match &mut again {
                None => return false,
                Some((behind, from)) => {
                    *from += 1;
                    (g, t) = (*behind, *from);
                }
            },
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_decided_by_generation_kind_and_program() {
        use Wanted::{Never, NotYet, Yes};
        let kin = |level, thread| Kin {
            level,
            thread,
            program: None,
        };
        let runs = |program| Kin {
            program: Some(program),
            ..kin(2, false)
        };
        // The program, its thread, its child, a grandchild's thread.
        let family = [kin(0, false), kin(0, true), kin(1, false), kin(2, true)];
        for (follow, wanted) in [
            ("all", [Yes, Yes, Yes, Yes]),
            ("none", [Yes, Never, Never, Never]),
            ("threads", [Yes, Yes, Never, Never]),
            ("0", [Yes, Yes, Never, Never]),
            ("1", [Yes, Yes, Yes, Never]),
            ("2", [Yes, Yes, Yes, Yes]),
            ("exec=*/cc1", [Yes, Yes, NotYet, NotYet]),
        ] {
            let follow: Follow = follow.parse().expect(follow);
            assert_eq!(family.map(|kin| follow.wants(kin)), wanted, "{follow:?}");
        }
        let follow = Follow::Exec(b"*/cc1".to_vec());
        assert_eq!(follow.wants(runs(b"/usr/lib/gcc/12/cc1")), Yes);
        assert_eq!(follow.wants(runs(b"/usr/bin/cc")), NotYet);
        for wrong in ["", "-1", "some", "exec=", "4294967296"] {
            assert!(wrong.parse::<Follow>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_glob_is_matched_to_its_end() {
        for (glob, text, fit) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a/b", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*.c", "a.c.c", true),
            ("*.c", "a.c.h", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
            ("**a", "bbba", true),
            ("?*", "", false),
        ] {
            assert_eq!(fits(glob.as_bytes(), text.as_bytes()), fit, "{glob} {text}");
        }
        let long = vec![b'a'; 4096];
        let glob = [b"*a".repeat(100), b"b".to_vec()].concat();
        assert!(
            !fits(&glob, &long),
            "and in no time that grows faster than the two"
        );
    }
}
