//! What people read of a trace: lines as strace has them, JSON, sums, a picture, and what differs between two runs. Nothing
//! here touches a traced task, and everything that a traced program chose (paths, names, data) is escaped before it gets out.

pub mod lines;
pub mod output;
pub mod picture;
pub mod signals;
pub mod stamp;
pub mod sums;
pub mod words;
