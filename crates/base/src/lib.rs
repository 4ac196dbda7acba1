//! Configuration, logging, exit codes.
#![forbid(unsafe_code)]
