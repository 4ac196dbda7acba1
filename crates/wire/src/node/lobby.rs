//! Between the monitor and the lobby: everything before a login.
//!
//! ```text
//! Begin → Arrived(+ socket) → Sign → Signed → (Auth | AuthInfo → Verdict)* → Verdict::Accepted → HandOver
//! ```
//!
//! The monitor keeps a duplicate of every socket: the lobby ends a connection by shutting it down, and a connection
//! that was handed over is closed in the lobby without shutting it down.

use super::{ConnectionAddresses, ConnectionNumber, FrozenConnection, Settings, Verdict};
use crate::choice;
use alloc::ffi::CString;
use alloc::vec::Vec;

choice! {
    /// Messages to the lobby.
    pub enum ToLobby("message to the lobby") {
        /// First, and after a reload.
        0 => Begin { settings: Settings },
        /// A connection; one descriptor, its socket. From `monitor::lobby::admit_connection` to `LobbyConnection::new`. `cookie` is for its first KEXINIT and good for one signature.
        /// Whoever is not in after `grace_ms` is out.
        1 => Arrived { connection: ConnectionNumber, addresses: ConnectionAddresses, cookie: [u8; 16], grace_ms: u32 },
        /// The signature (an SSH signature blob) of the exchange asked for, and the next key exchange's cookie. From
        /// `connections::exchanges` to `LobbyConnection::signed`.
        2 => Signed { connection: ConnectionNumber, signature: Vec<u8>, cookie: [u8; 16] },
        /// The answer to [`FromLobby::Auth`] or [`FromLobby::AuthInfo`]. From `lobby::logins::{login_step, let_in}` to
        /// `LobbyConnection::decided`.
        3 => Verdict { connection: ConnectionNumber, verdict: Verdict },
        /// End this connection with a DISCONNECT.
        4 => End { connection: ConnectionNumber, reason: u32, text: CString },
        /// Take what is under way to its end, and then end: no more will arrive.
        5 => Drain,
    }
}

choice! {
    /// Messages of the lobby.
    pub enum FromLobby("message of the lobby") {
        /// The sandbox stands and connections may come.
        0 => Ready,
        /// Sign this exchange: the transcript of `ssh::kex::exchange`. From `LobbyConnection::deal` to `connections::exchanges`.
        1 => Sign { connection: ConnectionNumber, exchange: Vec<u8> },
        /// A USERAUTH_REQUEST as received. From `LobbyConnection::deal` to `LoginAttempt::on_request`.
        2 => Auth { connection: ConnectionNumber, request: Vec<u8> },
        /// A USERAUTH_INFO_RESPONSE as received, to `LoginAttempt::on_answers`.
        3 => AuthInfo { connection: ConnectionNumber, response: Vec<u8> },
        /// After Accepted: the frozen connection, USERAUTH_SUCCESS sent or in its output. From `LobbyConnection::hand_over` to
        /// `monitor::lobby::handed_over`.
        4 => HandOver { connection: ConnectionNumber, frozen: FrozenConnection },
        /// It ended, with a text for the log.
        5 => Closed { connection: ConnectionNumber, why: CString },
    }
}
