//! The list of crash points and the sources agree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use instar_crashpoint::{POINTS, crash_point};

const MARK: &str = "crash_point!(\"";

fn names_in(text: &str) -> Vec<String> {
    // A point may be broken over lines by the formatter only if its name is very long: none is.
    text.split(MARK).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "crashpoint" && !name.starts_with('.') {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_listed_point_stands_in_the_sources_exactly_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 10, "only {} source files found under {}", files.len(), root.display());

    let mut placed: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files {
        for name in names_in(&std::fs::read_to_string(&file).unwrap()) {
            placed.entry(name).or_default().push(file.clone());
        }
    }
    let twice: Vec<_> = placed.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(twice.is_empty(), "one name, several places: {twice:#?}");
    let placed: Vec<&str> = placed.keys().map(String::as_str).collect();
    let mut listed = POINTS.to_vec();
    listed.sort_unstable();
    assert_eq!(placed, listed, "left: in the sources; right: in points.rs");
}

#[test]
fn names_are_found_in_a_text() {
    let text = format!("a(); {MARK}x.y.before\"); b(); {MARK}x.y.after\");");
    assert_eq!(names_in(&text), ["x.y.before", "x.y.after"]);
}

#[test]
fn an_unchosen_point_does_nothing() {
    crash_point!("test.unchosen");
}
