//! The gRPC services, as Rust. The code under `generated` is made from the `.proto` files by `cargo xtask proto` and
//! committed, so that no build needs a protobuf compiler. It holds types and stubs; no connection is made here.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

pub mod codec;
pub mod signed;

/// fleetgate's own services.
pub mod v1 {
    #![allow(missing_docs, clippy::all, clippy::pedantic)]
    include!("generated/fleetgate.v1.rs");
}

/// Where spans go, when a collector is configured.
pub mod otlp {
    #![allow(missing_docs, clippy::all, clippy::pedantic)]
    include!("generated/opentelemetry.proto.collector.trace.v1.rs");
}

/// What a container runtime for Kubernetes is asked.
pub mod cri {
    #![allow(missing_docs, clippy::all, clippy::pedantic)]
    include!("generated/runtime.v1.rs");
}
