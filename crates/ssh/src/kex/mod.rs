//! Key exchange: what is offered and agreed on, the methods themselves, and the exchange hash.

pub mod exchange;
mod ext_info;
mod host;
pub(crate) mod kexinit;
pub(crate) mod share;
pub(crate) mod state;

pub use crate::method::Method;
pub(crate) use ext_info::read_extensions;
