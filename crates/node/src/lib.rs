//! The node: monitor, lobby, fronts.
#![forbid(unsafe_code)]
