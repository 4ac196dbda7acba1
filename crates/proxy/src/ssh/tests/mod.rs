//! The proxy's SSH against clients of our own, in one thread: what a jump reaches, what it refuses, what a stalled leg
//! holds; what a plain sshd's users get through.

mod jump;
mod terminate;
mod world;
