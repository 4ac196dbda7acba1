//! The static program's layout (layout.rs).
#![forbid(unsafe_code)]

mod layout;

fn main() {
    layout::lay_out("");
}
