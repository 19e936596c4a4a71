//! Answers on standard output: a table for people, JSON or YAML for programs.

mod table;
mod yaml;

pub(crate) use table::clean;

use serde::Serialize;
use serde_json::Value;
use std::io::{self, IsTerminal, Write};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    #[default]
    Table,
    Json,
    Yaml,
}

/// A column of a list: its title, and what an entry shows there.
pub(crate) type Column<T> = (&'static str, fn(&T) -> String);

pub(crate) fn list<T: Serialize>(format: Format, entries: &[T], columns: &[Column<T>]) -> io::Result<()> {
    match format {
        Format::Table => {
            let titles: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
            let rows = entries.iter().map(|entry| columns.iter().map(|(_, cell)| cell(entry)).collect());
            say(&table::render(&titles, rows.collect()))
        }
        Format::Json | Format::Yaml => value(format, &serde_json::to_value(entries)?),
    }
}

/// One thing with all it has.
pub(crate) fn one<T: Serialize>(format: Format, entry: &T) -> io::Result<()> {
    let entry = serde_json::to_value(entry)?;
    match format {
        Format::Table => say(&table::fields(&entry)),
        Format::Json | Format::Yaml => value(format, &entry),
    }
}

pub(crate) fn value(format: Format, value: &Value) -> io::Result<()> {
    match format {
        Format::Yaml => say(&yaml::render(value)),
        Format::Table | Format::Json => say(&format!("{value:#}\n")),
    }
}

/// One of several that come over time: a line of JSON, or a YAML document.
pub(crate) fn document(format: Format, entry: &impl Serialize) -> io::Result<()> {
    match format {
        Format::Yaml => say(&format!("---\n{}", yaml::render(&serde_json::to_value(entry)?))),
        Format::Table | Format::Json => say(&format!("{}\n", serde_json::to_string(entry)?)),
    }
}

/// Text to standard output, at once.
pub(crate) fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// A remark beside the answer, on standard error.
pub(crate) fn note(text: &str) {
    let plain = clean(text);
    let dim = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let line = if dim { format!("\x1b[2m{plain}\x1b[0m\n") } else { format!("{plain}\n") };
    // Nobody reads it: no reason to end.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// What a cell shows of a long text.
pub(crate) fn short(text: &str, chars_max: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= chars_max {
        return text;
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

pub(crate) fn time(at: &Option<chrono::DateTime<chrono::Utc>>) -> String {
    at.map_or_else(String::new, |at| at.format("%Y-%m-%d %H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_to_one_line() {
        assert_eq!(short("a\n b", 10), "a b");
        assert_eq!(short("übermäßig", 4), "übe…");
    }
}
