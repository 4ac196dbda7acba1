//! Sealed images: what each strategy withstands, when it is taken, and `fleetgate seal run`.
#![forbid(unsafe_code)]

mod attack;
mod denied;
mod fallback_chain;
mod installed;
mod log;
mod mounts;
mod ordinary;
mod run;
