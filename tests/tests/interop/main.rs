//! Other people's clients against the node, directly and through the proxy.
#![forbid(unsafe_code)]

mod algorithms;
mod direct;
mod fido;
mod forwarding;
mod libraries;
mod openssh;
mod through;
mod tools;
