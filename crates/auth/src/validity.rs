//! How long the certificates of machines are valid, and how far clocks may differ.

/// By how much the machines' clocks may differ.
pub const SKEW: u64 = 60;
/// How long a node's or proxy's certificates hold. They are renewed long before.
pub const MEMBER_LIFETIME: u64 = 7 * 86_400;
/// How long before its making a machine's certificate is valid already: auth's clock may be ahead of all others by as much, and
/// what it issues meanwhile is good there. Nothing is judged by when such a certificate began; locks look at its serial.
pub const MEMBER_BEFORE: u64 = 86_400;
