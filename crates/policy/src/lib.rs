//! Identities, grants, command lists: who may do what, as pure functions.
#![forbid(unsafe_code)]
