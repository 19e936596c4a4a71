//! Writes the generated pages below `docs/`; `cargo xtask docs` runs it.

use anyhow::Context;
use std::path::Path;

fn main() -> anyhow::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    for (path, text) in instar_core::doc::files() {
        let file = docs.join(&path);
        if std::fs::read_to_string(&file).is_ok_and(|found| found == text) {
            continue;
        }
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        println!("docs/{path}");
    }
    Ok(())
}
