//! The auth service: users, roles, tokens, locks, certificate authorities.
#![forbid(unsafe_code)]
