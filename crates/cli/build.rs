//! Turns what `cargo xtask build` left in FLEETGATE_IMAGES into constants; without it there are no images.
#![forbid(unsafe_code)]

#[path = "../seal/embed.rs"]
mod embed;

fn main() {
    embed::write(&[
        ("SESSION", "fleetgate-session", "The session helper."),
        ("ENTER", "fleetgate-enter", "The same for containers."),
        ("FRONT", "fleetgate-front", "The lobby and the fronts."),
        ("TUNNEL", "fleetgate-tunnel", "The tunnel."),
        ("RECORDER", "fleetgate-recorder", "The recorder."),
        ("RESOLVER", "fleetgate-resolver", "The resolver."),
    ]);
}
