//! Slots of a prompt template: `{{NAME}}`, in capital letters and underscores.
//!
//! A name that is no slot stays as it is: instructions may well speak of templates.

use std::borrow::Cow;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// The template with its slots filled in.
pub fn render<'a>(template: &'a str, slots: &[(&str, Cow<'_, str>)]) -> Cow<'a, str> {
    if slots.is_empty() || !template.contains(OPEN) {
        return Cow::Borrowed(template);
    }
    let mut rendered = String::with_capacity(template.len() + 64);
    let mut done = 0;
    for (at, name) in found(template) {
        if let Some((_, value)) = slots.iter().find(|(slot, _)| *slot == name) {
            rendered.push_str(&template[done..at]);
            rendered.push_str(value);
            done = at + OPEN.len() + name.len() + CLOSE.len();
        }
    }
    rendered.push_str(&template[done..]);
    Cow::Owned(rendered)
}

/// The names that stand in slots, known or not.
pub fn slots_in(template: &str) -> impl Iterator<Item = &str> {
    found(template).map(|(_, name)| name)
}

/// Where a slot begins, and its name.
fn found(template: &str) -> impl Iterator<Item = (usize, &str)> {
    // By single braces: of three, the last two may open a slot.
    template.match_indices('{').filter(|(at, _)| template[*at..].starts_with(OPEN)).filter_map(|(at, _)| {
        let rest = &template[at + OPEN.len()..];
        let end = rest.find(|c: char| !(c.is_ascii_uppercase() || c == '_'))?;
        (end > 0 && rest[end..].starts_with(CLOSE)).then(|| (at, &rest[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_slots_are_filled_and_everything_else_stays() {
        let slots = [("AGENT_NAME", Cow::Borrowed("bob {{DATE}}")), ("DATE", Cow::Borrowed("2026-11-16"))];
        let rows = [
            ("I am {{AGENT_NAME}}.", "I am bob {{DATE}}."),
            ("{{DATE}}{{DATE}}", "2026-11-162026-11-16"),
            ("{{{DATE}}}", "{2026-11-16}"),
            ("{{UNKNOWN}} {{date}} {{DATE }} {{}} {{DATE", "{{UNKNOWN}} {{date}} {{DATE }} {{}} {{DATE"),
            ("é{{DATE}}é", "é2026-11-16é"),
            ("nothing", "nothing"),
        ];
        for (template, expected) in rows {
            assert_eq!(render(template, &slots), expected, "{template}");
        }
        assert_eq!(slots_in("{{A_B}} {{c}} {{D}}").collect::<Vec<_>>(), ["A_B", "D"]);
    }
}
