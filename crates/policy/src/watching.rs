//! How closely the programs of a session are watched, and what follows where that cannot be done. Which calls that means is
//! the tracer's business; here is only what roles and `node.toml` say.

/// What is told of the programs that a session runs, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "documents", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "documents", serde(rename_all = "lowercase"))]
pub enum Audit {
    /// Nothing: no filter is installed, and nothing is slower.
    #[default]
    None,
    /// What is executed and connected to, and what changes privileges, mounts or the kernel.
    Commands,
    /// What is written, removed and renamed, too.
    Files,
    /// What is read, and every socket, too.
    Full,
}

impl Audit {
    /// In files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Audit::None => "none",
            Audit::Commands => "commands",
            Audit::Files => "files",
            Audit::Full => "full",
        }
    }

    /// All of them.
    pub const ALL: [Audit; 4] = [Audit::None, Audit::Commands, Audit::Files, Audit::Full];
}

/// Whether something that may be refused is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "documents", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "documents", serde(rename_all = "lowercase"))]
pub enum Stance {
    /// It may be.
    Allow,
    /// It may not.
    Refuse,
}

/// All that is said about watching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watching {
    /// What is told.
    pub audit: Audit,
    /// io_uring, whose operations no filter sees, in a watched session.
    pub io_uring: Stance,
    /// A session that cannot be watched, though it should be.
    pub unwatched: Stance,
}

impl Default for Watching {
    fn default() -> Watching {
        Watching {
            audit: Audit::None,
            io_uring: Stance::Allow,
            unwatched: Stance::Refuse,
        }
    }
}

impl Watching {
    /// What holds where both are said: the stronger of each. One that watches nothing says nothing about the rest.
    #[must_use]
    pub fn and(self, other: Watching) -> Watching {
        match (self.audit, other.audit) {
            (_, Audit::None) => self,
            (Audit::None, _) => other,
            _ => Watching {
                audit: self.audit.max(other.audit),
                io_uring: self.io_uring.max(other.io_uring),
                unwatched: self.unwatched.max(other.unwatched),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stance::{Allow, Refuse};

    const fn of(audit: Audit, io_uring: Stance, unwatched: Stance) -> Watching {
        Watching {
            audit,
            io_uring,
            unwatched,
        }
    }

    #[test]
    fn the_strongest_of_several_holds() {
        let nothing = Watching::default();
        let lax = of(Audit::Full, Allow, Allow);
        let strict = of(Audit::Commands, Refuse, Refuse);
        for (a, b, both) in [
            (nothing, nothing, nothing),
            (nothing, lax, lax),
            (lax, nothing, lax),
            (lax, strict, of(Audit::Full, Refuse, Refuse)),
            (strict, lax, of(Audit::Full, Refuse, Refuse)),
            (lax, lax, lax),
        ] {
            assert_eq!(a.and(b), both, "{a:?} and {b:?}");
        }
    }
}
