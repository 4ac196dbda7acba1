//! Identities on the wire: TLS 1.3 with a post-quantum group, X.509, gRPC over one HTTP/2 connection in either
//! direction, and how a connection is made and made again. What an identity may do is decided elsewhere.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

pub mod backoff;
pub mod dial;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod h2;
pub mod http1;
pub mod otlp;
pub mod pin;
pub mod post;
pub mod relay;
pub mod scrape;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
pub mod x509;

pub use pin::{Admits, Pin, Ticket};
pub use tls::{Credentials, Peer, Trust};
