//! Writes the Rust code of the `.proto` files into the folder given. `cargo xtask proto` runs it and compares; the build
//! of the product never does.

use std::path::Path;

const FILES: [&str; 4] = [
    "fleetgate/v1/transport.proto",
    "fleetgate/v1/auth.proto",
    "kubernetes/cri.proto",
    "opentelemetry/trace.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = std::env::args_os().nth(1).ok_or("usage: fleetgate-proto-generate FOLDER")?;
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no parent folder")?;
    let files = protox::compile(FILES, [protos])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::codec::Codec")
        .bytes(".")
        .out_dir(out)
        .compile_fds(files)?;
    Ok(())
}
