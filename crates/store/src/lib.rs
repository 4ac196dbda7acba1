//! The cluster state store.
