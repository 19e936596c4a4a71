//! The text of an answer, put together from pieces that may be lost or said again.

/// What was printed of the answer that streams now.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    said: String,
    /// The index that the next piece has if none is lost.
    next: Option<u64>,
}

impl Answer {
    /// What to print of a piece.
    pub(crate) fn piece(&mut self, index: u64, text: &str) -> String {
        // One that does not follow may be the whole so far once more: a new connection begins so.
        let follows = self.next.is_none_or(|next| next == index);
        let new = match text.strip_prefix(self.said.as_str()) {
            Some(new) if !follows => new,
            _ => text,
        };
        self.said.push_str(new);
        self.next = Some(index + 1);
        new.to_owned()
    }

    /// What to print of the whole once it is known: what is still missing, or all of it on a new
    /// line if pieces were lost.
    pub(crate) fn whole(&mut self, text: &str) -> String {
        let new = match text.strip_prefix(self.said.as_str()) {
            Some(rest) => rest.to_owned(),
            None => format!("\n{text}"),
        };
        self.said = text.to_owned();
        new
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.said.is_empty()
    }

    /// Ends the text; the line break that it lacks comes back.
    pub(crate) fn end(&mut self) -> &'static str {
        let said = std::mem::take(&mut self.said);
        // Indices go on counting within a turn.
        if said.is_empty() || said.ends_with('\n') { "" } else { "\n" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_printed_as_they_are_even_if_they_repeat() {
        let mut answer = Answer::default();
        assert_eq!(answer.piece(0, "ha"), "ha");
        assert_eq!(answer.piece(1, "ha!"), "ha!");
        assert_eq!(answer.whole("haha!"), "");
        assert_eq!(answer.end(), "\n");
        assert_eq!(answer.end(), "");
    }

    #[test]
    fn what_was_said_is_not_printed_again_after_a_new_connection() {
        let mut answer = Answer::default();
        answer.piece(0, "The tool ");
        answer.piece(1, "said");
        assert_eq!(answer.piece(5, "The tool said: hi"), ": hi");
        assert_eq!(answer.piece(6, " there\n"), " there\n");
        assert_eq!(answer.end(), "");
    }

    #[test]
    fn a_lost_piece_is_made_good_by_the_whole() {
        let mut answer = Answer::default();
        assert_eq!(answer.whole("all at once"), "all at once");
        let mut answer = Answer::default();
        answer.piece(0, "one ");
        answer.piece(2, "three");
        assert_eq!(answer.whole("one two three"), "\none two three");
    }
}
