//! Subject patterns with NATS' two wildcards: `*` is one token, `>` is one or more at the end.
//!
//! Must not know: what subjects mean.

/// Whether the subject `text` is one of those `pattern` stands for.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    covers(pattern, text)
}

/// Whether everything the pattern `narrow` stands for is also in `wide`.
pub(crate) fn covers(wide: &str, narrow: &str) -> bool {
    let (mut wide, mut narrow) = (wide.split('.'), narrow.split('.'));
    loop {
        match (wide.next(), narrow.next()) {
            (Some(">"), Some(_)) => return true,
            (Some(_), Some(">")) => return false,
            (Some("*"), Some(_)) => {}
            (Some(a), Some(b)) if a == b => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// Whether some subject is in both patterns.
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some("*"), Some(_)) | (Some(_), Some("*")) => {}
            (Some(a), Some(b)) if a == b => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_token_and_the_arrow_is_at_least_one() {
        assert!(matches("a.*.c", "a.b.c"));
        assert!(!matches("a.*", "a.b.c"));
        assert!(matches("a.>", "a.b.c"));
        assert!(!matches("a.>", "a"));
        assert!(!matches("a.b", "a"));
    }

    #[test]
    fn a_wider_pattern_covers_a_narrower_one_only() {
        assert!(covers("a.>", "a.*.c"));
        assert!(covers("a.*", "a.*"));
        assert!(!covers("a.b", "a.*"));
        assert!(!covers("a.*", "a.>"));
    }

    #[test]
    fn overlap_looks_both_ways() {
        assert!(overlap("a.*", "*.b"));
        assert!(overlap("a.>", "a.b.c"));
        assert!(!overlap("a.b", "a.c"));
        assert!(!overlap("a.*", "a.b.c"));
    }
}
