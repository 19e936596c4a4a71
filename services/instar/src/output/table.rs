//! Aligned columns, without colour: what is read by eye is also cut by `awk`.

use serde_json::Value;

const GAP: &str = "  ";

pub(super) fn render(titles: &[String], rows: Vec<Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.iter().map(|cell| shown(cell)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).chain(titles.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let mut text = String::new();
    for row in std::iter::once(titles).chain(rows.iter().map(Vec::as_slice)) {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join(GAP).trim_end());
        text.push('\n');
    }
    text
}

/// A field per line.
pub(super) fn fields(value: &Value) -> String {
    let Value::Object(object) = value else { return format!("{}\n", plain(value)) };
    let width = object.keys().map(|key| key.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    let mut fields: Vec<_> = object.iter().filter(|(_, value)| !value.is_null()).collect();
    // What one looks for first.
    fields.sort_by_key(|(key, _)| ["id", "name", "status"].iter().position(|first| first == key).unwrap_or(3));
    for (key, value) in fields {
        text.push_str(format!("{key:<width$}{GAP}{}", plain(value)).trim_end());
        text.push('\n');
    }
    text
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => clean(text),
        other => clean(&other.to_string()),
    }
}

/// An empty cell would shift those behind it.
fn shown(cell: &str) -> String {
    let cell = clean(&cell.split_whitespace().collect::<Vec<_>>().join(" "));
    if cell.is_empty() { "-".to_owned() } else { cell }
}

/// Without what would steer the terminal: names and answers are other people's text.
pub(crate) fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let titles = ["ID", "NAME"].map(String::from);
        let rows = vec![vec!["ses_1".into(), "ü".into()], vec!["s".into(), String::new()]];
        assert_eq!(render(&titles, rows), "ID     NAME\nses_1  ü\ns      -\n");
        assert_eq!(render(&titles, vec![]), "ID  NAME\n");
    }

    #[test]
    fn a_thing_is_shown_a_field_per_line_without_those_it_has_not() {
        let thing = json!({"id": "x", "name": null, "usage": {"tokens": 1}});
        assert_eq!(fields(&thing), "id     x\nusage  {\"tokens\":1}\n");
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(clean("a\x1b[31mb\u{9b}c"), "a[31mbc");
    }
}
