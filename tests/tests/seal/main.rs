//! Sealed images: what each strategy withstands, when it is taken, and `fleetgate seal run`.
#![forbid(unsafe_code)]

mod attack;
mod denied;
mod installed;
mod ladder;
mod mounts;
mod run;
