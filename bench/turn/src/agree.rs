//! Whether runs agree: their ratios side by side.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Each file is the results of one run.
pub(crate) fn show(files: &[PathBuf]) -> Result<()> {
    let mut found: BTreeMap<(u64, String), Vec<f64>> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            if line["what"] == "ratio" {
                let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
                let name = format!("{} | {} | {}", word("candidate"), word("over"), word("of"));
                let of = (line["agents"].as_u64().unwrap_or_default(), name);
                found.entry(of).or_default().extend(line["median"].as_f64());
            }
        }
    }
    ensure!(!found.is_empty(), "no ratios in there: each file is what --out of one run wrote");
    println!("agents | candidate | over | of | each run | apart, percent");
    println!("---:|---|---|---|---|---:");
    for ((agents, name), ratios) in found {
        let most = ratios.iter().copied().fold(f64::MIN, f64::max);
        let least = ratios.iter().copied().fold(f64::MAX, f64::min);
        let each: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
        println!("{agents} | {name} | {} | {:.1}", each.join(" "), (most / least - 1.0) * 100.0);
    }
    Ok(())
}
