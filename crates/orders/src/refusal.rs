//! Why what a client asks for on an open connection is not done, and whether asking again would help. It refuses nothing itself.

/// Why a session is not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRefusal {
    /// A sentence that the user may be shown.
    pub words: String,
    /// The same request would be refused on any other connection too.
    pub is_final: bool,
}

impl SessionRefusal {
    /// One that another connection may change.
    pub fn new(words: impl Into<String>) -> SessionRefusal {
        SessionRefusal {
            words: words.into(),
            is_final: false,
        }
    }

    /// The same, where no other connection changes it.
    pub fn finally(self) -> SessionRefusal {
        SessionRefusal {
            is_final: true,
            ..self
        }
    }
}
