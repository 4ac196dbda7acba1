//! What went wrong with a connection or a request, and its words.

use crate::tls;
use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

/// Why a connection, or a request on it, came to nothing.
#[derive(Debug)]
pub enum CallError {
    /// What carries it failed.
    Io(io::Error),
    /// One of both sides ended it, by the words of HTTP/2.
    Http2(h2::Error),
    /// A ping was not answered for so long.
    Silent(Duration),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Io(error) => write!(f, "the connection broke: {error}"),
            CallError::Http2(error) => write!(f, "HTTP/2: {error}"),
            CallError::Silent(span) => write!(
                f,
                "a ping was not answered within {} s: the network between is cut, or the other side hangs",
                span.as_secs()
            ),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CallError::Io(error) => Some(error),
            CallError::Http2(error) => Some(error),
            CallError::Silent(_) => None,
        }
    }
}

impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> CallError {
        if !error.is_io() {
            return CallError::Http2(error);
        }
        let text = error.to_string();
        CallError::Io(error.into_io().unwrap_or_else(|| io::Error::other(text)))
    }
}

/// What an answer that is an error says, with what TLS said beneath it: a server's refusal of our certificate is told
/// only when the first answer is read.
#[must_use]
pub fn words(status: &tonic::Status) -> String {
    match tls_below(status) {
        Some(error) => error.to_string(),
        None if status.message().is_empty() => format!("{}", status.code()),
        None => status.message().to_owned(),
    }
}

/// Why a connection ended, with what lies beneath.
#[must_use]
pub fn reason(error: &(dyn Error + 'static)) -> String {
    if let Some(error) = tls_below(error) {
        return error.to_string();
    }
    let mut words = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let more = error.to_string();
        if !words.contains(&more) {
            words.push_str(": ");
            words.push_str(&more);
        }
        below = error.source();
    }
    words
}

fn tls_below(error: &(dyn Error + 'static)) -> Option<tls::Error> {
    let mut below = Some(error);
    while let Some(error) = below {
        if let Some(told) = error.downcast_ref::<std::io::Error>().and_then(tls::Error::told) {
            return Some(told);
        }
        below = error.source();
    }
    None
}
