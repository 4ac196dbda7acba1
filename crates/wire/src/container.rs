//! The order to a helper that enters a container: the container, and what is to be done in it.

use crate::common::{Ids, Variable};
use crate::exec::Limit;
use crate::order::Order;
use crate::{Decode, Encode, Error, Reader, Writer, choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

/// The subcommand that takes such an order.
pub const SUBCOMMAND: &core::ffi::CStr = c"enter";

/// What is to be done where. Descriptors beside those of the work: [`crate::Role::Container`], [`crate::Role::Root`], and
/// [`crate::Role::Console`] for a work that has a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerOrder {
    /// Where.
    pub container: Container,
    /// What, and the roles of all descriptors.
    pub order: Order,
}

impl Encode for ContainerOrder {
    fn encode(&self, w: &mut Writer) {
        self.container.encode(w);
        self.order.encode(w);
    }
}
impl Decode for ContainerOrder {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(ContainerOrder {
            container: Container::decode(r)?,
            order: Order::decode(r)?,
        })
    }
}

record! {
    /// A running container, and what its processes are given and limited to.
    pub struct Container {
        /// The kinds of its namespaces that are not the launching side's (CLONE_NEW…), all in one number.
        pub namespaces: i32,
        /// The `tasks` files of its cgroups in hierarchies of version 1.
        pub cgroups: Vec<CString>,
        /// Whom to be inside.
        pub user: InsideUser,
        /// How a terminal begins, for a work that has one.
        pub window: Window,
        /// The container's own variables.
        pub environment: Vec<Variable>,
        /// The working directory; none: the user's home directory.
        pub directory: Option<CString>,
        /// Capabilities.
        pub capabilities: Capabilities,
        /// No program inside gains privileges.
        pub no_new_privileges: bool,
        /// Its seccomp profile, instructions as the kernel has them; empty: none.
        pub filter: Vec<u8>,
        /// SECCOMP_FILTER_FLAG_… for it.
        pub filter_flags: u32,
        /// What a security module calls its programs.
        pub label: Option<Label>,
        /// Resource limits.
        pub limits: Vec<Limit>,
        /// The score of the out-of-memory killer.
        pub oom_score_adj: Option<i32>,
        /// The umask.
        pub umask: Option<u32>,
    }
}

record! {
    /// A terminal's size and modes.
    #[derive(Default)]
    pub struct Window {
        /// In characters.
        pub columns: u16,
        /// In characters.
        pub rows: u16,
        /// In pixels.
        pub width: u16,
        /// In pixels.
        pub height: u16,
        /// Encoded modes (RFC 4254 §8); what they do not say stays as the kernel has it.
        pub modes: Vec<u8>,
    }
}

choice! {
    /// An account of the container.
    pub enum InsideUser("user inside") {
        /// By numbers, as its configuration has it. Home and shell are those of the account with that number, if there is one.
        0 => Numbers { ids: Ids },
        /// By what a person typed: `NAME`, `UID`, either with `:GROUP`.
        1 => Named { name: CString },
    }
}

record! {
    /// Sets of capabilities, bit N for capability N.
    pub struct Capabilities {
        /// The most that any program inside can have.
        pub bounding: u64,
        /// In force.
        pub effective: u64,
        /// Could be raised.
        pub permitted: u64,
        /// May pass an exec, with a file's.
        pub inheritable: u64,
        /// Pass an exec.
        pub ambient: u64,
    }
}

record! {
    /// A label of a security module.
    pub struct Label {
        /// The file of /proc/self/attr that takes it.
        pub file: CString,
        /// What is written to it.
        pub text: CString,
    }
}
