//! Programs that benchmarks start or that measure in a process of their own; `xtask/src/bench` runs them. They
//! print samples and never judge. Nothing here is shared yet: each stands in `src/bin`.
#![no_std]
#![forbid(unsafe_code)]
