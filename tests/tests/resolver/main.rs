//! The resolver: names, and PAM sessions, good and bad.
#![forbid(unsafe_code)]

mod names;
mod pam_failures;
mod pam_sessions;
