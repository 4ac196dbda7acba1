//! The static program is laid out as the session helper, for the same reasons.
#![forbid(unsafe_code)]

#[path = "../session/layout.rs"]
mod layout;

fn main() {
    layout::lay_out("../session");
}
