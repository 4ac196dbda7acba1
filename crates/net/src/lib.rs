//! Identities on the wire: TLS, X.509, HTTP/2.
#![forbid(unsafe_code)]
