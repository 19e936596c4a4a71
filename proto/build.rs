//! Generates the message types. protox is a protobuf compiler in Rust, so that no machine needs a
//! system `protoc`.

use std::path::Path;

const FILES: [&str; 4] = ["rune", "work", "live", "dead"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = FILES.map(|name| format!("instar/v1/{name}.proto"));
    for file in &files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptor = protox::compile(files.each_ref().map(Path::new), ["."])?;
    let mut config = prost_build::Config::new();
    // Runes are fanned out to many readers in one process: a payload is shared, never copied.
    config.bytes([".instar.v1.Rune.payload", ".instar.v1.DeadLetter.payload"]);
    config.compile_fds(descriptor)?;
    Ok(())
}
