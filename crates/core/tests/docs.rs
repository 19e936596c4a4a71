//! The committed pages are what the tables say. Their matrices are the snapshot of every cell.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn the_committed_pages_are_what_the_tables_say() {
    let mut stale = Vec::new();
    for (path, expected) in instar_core::doc::files() {
        let found = std::fs::read_to_string(docs().join(&path)).unwrap_or_default();
        if found != expected {
            let difference = expected.lines().zip(found.lines().chain(std::iter::repeat(""))).find(|(e, f)| e != f);
            stale.push(format!("docs/{path}: {difference:?}"));
        }
    }
    assert!(stale.is_empty(), "run `cargo xtask docs` and review the difference:\n{}", stale.join("\n"));
}

#[test]
fn no_page_of_a_machine_that_is_gone_is_left_behind() {
    let expected: BTreeSet<String> = instar_core::doc::files().into_iter().map(|(path, _)| path).collect();
    let found = std::fs::read_dir(docs().join("machines")).expect("docs/machines: run `cargo xtask docs`");
    for entry in found {
        let name = entry.expect("a readable entry").file_name().into_string().expect("a plain name");
        assert!(expected.contains(&format!("machines/{name}")), "docs/machines/{name} is not generated: remove it");
    }
}
