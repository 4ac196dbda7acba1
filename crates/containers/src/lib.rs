//! Containers of this machine: which there are, and what it takes to enter one.
//!
//! `find` reads what the runtimes leave on the disk (`sources`), and asks no daemon: a session must not wait for one. `open`
//! makes of a container that was found what a session helper needs: the descriptors, the cgroup, and the order's part
//! (`settings`, `profile`). Nothing is entered here.
//!
//! What is read counts only where it is root's, links aside: who may write there says which process is entered, and as whom. So
//! containers that users keep without root have no names here; `--pid` enters them. All files have bounds.
#![forbid(unsafe_code)]

mod cgroups;
mod error;
mod find;
mod on_disk;
mod open;
mod process;
mod profile;
mod remembered;
mod settings;
mod sources;

pub use error::{Error, Unusable};
pub use find::{ContainerRecord, KubernetesRuntime, Runtime, find, find_among, list};
pub use on_disk::{is_roots_socket, kept_by_users};
pub use open::{OpenContainer, Overrides, open};
pub use profile::{ProfileError, compile};
pub use remembered::{Remembered, Weighed};
pub use sources::SearchPaths;
