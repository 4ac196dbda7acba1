//! The service as a whole: by its unix socket and by TLS, with a clock that is turned by hand.

mod machines;
mod path;
mod place;
mod users;
mod who;
