//! What a front's request becomes, held against its connection's grant and the configuration: what a helper is told, a list of
//! commands, or the words of a refusal.
//!
//! For sessions read `choose` (what runs), `facts` (what an order is made of), `order` and `environment` (what the helper is
//! given). [`sockets`] is the same for what a networking helper opens. All of it is pure, but for [`Inherited::now`]: the grant,
//! the configuration and the account are given, nothing is opened and nobody is asked.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

mod choose;
mod environment;
mod facts;
mod order;
mod refusal;
pub mod sockets;

pub use choose::{MAX_LIST, choose_program, command_list, front_permits, shorten};
pub use environment::address;
pub use facts::{ClusterUser, Inherited, OrderFacts, ProgramChoice};
pub use order::{exec, sftp, xauth_script};
pub use refusal::SessionRefusal;
