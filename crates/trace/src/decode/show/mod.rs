//! Values that a table cannot describe: each a function that shows one, by area.

pub(super) mod devices;
pub(super) mod files;
pub(super) mod memory;
pub(super) mod network;
pub(super) mod options;
pub(super) mod polls;
pub(super) mod processes;
pub(super) mod signals;
pub(super) mod time;
