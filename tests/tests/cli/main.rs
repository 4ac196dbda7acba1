//! What a user meets first: the command line, the packages, the quickstart.
#![forbid(unsafe_code)]

mod checks;
mod commands;
mod packages;
mod quickstart;
