//! The sftp server of the session helper, by packets and by real clients.
#![forbid(unsafe_code)]

mod clients;
mod confined;
mod conversations;
mod packets;
