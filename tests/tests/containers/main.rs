//! Entering containers that real runtimes started: what a program gets there, what is refused, what root inside can do to
//! whoever enters.
#![forbid(unsafe_code)]

mod attack;
mod by_ssh;
mod cri;
mod engines;
mod entering;
mod hostile;
mod profile;
mod runtimes;
mod small_program;
mod wave;
