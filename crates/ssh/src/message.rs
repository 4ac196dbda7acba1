//! The numbers of SSH's messages (RFC 4250 §4.1.2, OpenSSH's PROTOCOL).

pub(crate) const DISCONNECT: u8 = 1;
pub(crate) const IGNORE: u8 = 2;
pub(crate) const UNIMPLEMENTED: u8 = 3;
pub(crate) const DEBUG: u8 = 4;
pub(crate) const SERVICE_REQUEST: u8 = 5;
pub(crate) const SERVICE_ACCEPT: u8 = 6;
pub(crate) const EXT_INFO: u8 = 7;
pub(crate) const KEXINIT: u8 = 20;
pub(crate) const NEWKEYS: u8 = 21;
pub(crate) const KEX_INIT: u8 = 30;
pub(crate) const KEX_REPLY: u8 = 31;
pub(crate) const USERAUTH_REQUEST: u8 = 50;
pub(crate) const USERAUTH_FAILURE: u8 = 51;
pub(crate) const USERAUTH_SUCCESS: u8 = 52;
pub(crate) const USERAUTH_BANNER: u8 = 53;
/// USERAUTH_PK_OK or USERAUTH_INFO_REQUEST, by the method that is under way.
pub(crate) const USERAUTH_60: u8 = 60;
pub(crate) const USERAUTH_INFO_RESPONSE: u8 = 61;
pub(crate) const GLOBAL_REQUEST: u8 = 80;
pub(crate) const REQUEST_SUCCESS: u8 = 81;
pub(crate) const REQUEST_FAILURE: u8 = 82;
pub(crate) const CHANNEL_OPEN: u8 = 90;
pub(crate) const CHANNEL_OPEN_CONFIRMATION: u8 = 91;
pub(crate) const CHANNEL_OPEN_FAILURE: u8 = 92;
pub(crate) const CHANNEL_WINDOW_ADJUST: u8 = 93;
pub(crate) const CHANNEL_DATA: u8 = 94;
pub(crate) const CHANNEL_EXTENDED_DATA: u8 = 95;
pub(crate) const CHANNEL_EOF: u8 = 96;
pub(crate) const CHANNEL_CLOSE: u8 = 97;
pub(crate) const CHANNEL_REQUEST: u8 = 98;
pub(crate) const CHANNEL_SUCCESS: u8 = 99;
pub(crate) const CHANNEL_FAILURE: u8 = 100;
/// ping@openssh.com.
pub(crate) const PING: u8 = 192;
pub(crate) const PONG: u8 = 193;
