//! The compile-time audit of a machine's table: a table that breaks a rule does not build.

use super::table::{By, Emit, Phase, Row, Table};

const fn has(list: &[u8], item: u8) -> bool {
    let mut i = 0;
    while i < list.len() {
        if list[i] == item {
            return true;
        }
        i += 1;
    }
    false
}

const fn overlap(a: &[u8], b: &[u8]) -> bool {
    if a.is_empty() && b.is_empty() {
        return true; // two births by the same event
    }
    let mut i = 0;
    while i < a.len() {
        if has(b, a[i]) {
            return true;
        }
        i += 1;
    }
    false
}

/// Panics, at compile time when called in a const context, with the rule that the table breaks.
pub const fn audit(t: &Table) {
    cells_answer_once(t);
    terminals_are_final(t);
    every_state_is_reached(t);
    every_state_can_finish(t);
    every_event_moves(t);
    every_raiser_has_a_row(t);
}

const fn cells_answer_once(t: &Table) {
    let mut i = 0;
    while i < t.rows.len() {
        let row = &t.rows[i];
        if let Emit::Runes(kinds) = row.emit {
            assert!(!kinds.is_empty(), "a row that emits names at least one rune kind");
        }
        assert!(!(row.from.is_empty() && row.to.is_none()), "a birth leads to a state");
        let mut j = i + 1;
        while j < t.rows.len() {
            let other = &t.rows[j];
            assert!(!(row.event == other.event && overlap(row.from, other.from)), "two rows for one cell");
            j += 1;
        }
        let mut j = 0;
        while j < t.ignores.len() {
            let ig = &t.ignores[j];
            assert!(!(row.event == ig.event && overlap(row.from, ig.from)), "a cell both moved and ignored");
            j += 1;
        }
        let mut j = 0;
        while j < t.refuses.len() {
            let no = &t.refuses[j];
            assert!(!(row.event == no.event && overlap(row.from, no.from)), "a cell both moved and refused");
            j += 1;
        }
        i += 1;
    }
    let mut i = 0;
    while i < t.ignores.len() {
        let mut j = 0;
        while j < t.refuses.len() {
            let (ig, no) = (&t.ignores[i], &t.refuses[j]);
            assert!(!(ig.event == no.event && overlap(ig.from, no.from)), "a cell both ignored and refused");
            j += 1;
        }
        i += 1;
    }
}

const fn terminals_are_final(t: &Table) {
    let mut i = 0;
    while i < t.rows.len() {
        let row = &t.rows[i];
        let mut j = 0;
        while j < row.from.len() {
            let terminal = matches!(t.states[row.from[j] as usize].phase, Phase::Terminal);
            let leaves = match row.to {
                Some(to) => to != row.from[j],
                None => false,
            };
            assert!(!(terminal && leaves), "an exit from a terminal state");
            j += 1;
        }
        i += 1;
    }
}

const fn every_state_is_reached(t: &Table) {
    let mut reached = [false; 64];
    let mut changed = true;
    while changed {
        changed = false;
        let mut i = 0;
        while i < t.rows.len() {
            let row = &t.rows[i];
            if let Some(to) = row.to {
                let mut live = row.from.is_empty();
                let mut j = 0;
                while j < row.from.len() {
                    live = live || reached[row.from[j] as usize];
                    j += 1;
                }
                if live && !reached[to as usize] {
                    reached[to as usize] = true;
                    changed = true;
                }
            }
            i += 1;
        }
    }
    let mut s = 0;
    while s < t.states.len() {
        assert!(reached[s], "an unreachable state");
        s += 1;
    }
}

const fn every_state_can_finish(t: &Table) {
    let mut finishes = [false; 64];
    let mut s = 0;
    while s < t.states.len() {
        finishes[s] = matches!(t.states[s].phase, Phase::Terminal);
        s += 1;
    }
    let mut changed = true;
    while changed {
        changed = false;
        let mut i = 0;
        while i < t.rows.len() {
            let row = &t.rows[i];
            if let Some(to) = row.to {
                let mut j = 0;
                while j < row.from.len() {
                    let from = row.from[j] as usize;
                    if finishes[to as usize] && !finishes[from] {
                        finishes[from] = true;
                        changed = true;
                    }
                    j += 1;
                }
            }
            i += 1;
        }
    }
    let mut s = 0;
    while s < t.states.len() {
        assert!(finishes[s], "a state that can never finish");
        s += 1;
    }
}

const fn every_event_moves(t: &Table) {
    let mut e = 0;
    while e < t.events.len() {
        assert!(!t.events[e].by.is_empty(), "an event that nobody may raise");
        let mut moves = false;
        let mut i = 0;
        while i < t.rows.len() {
            moves = moves || t.rows[i].event as usize == e;
            i += 1;
        }
        assert!(moves, "an event that never moves anything");
        e += 1;
    }
}

const fn is_for(list: &[By], by: By) -> bool {
    let mut i = 0;
    while i < list.len() {
        if list[i] as u8 == by as u8 {
            return true;
        }
        i += 1;
    }
    false
}

const fn row_is_for(row: &Row, by: By) -> bool {
    match row.by {
        Some(only) => is_for(only, by),
        None => true,
    }
}

const fn every_raiser_has_a_row(t: &Table) {
    let mut i = 0;
    while i < t.rows.len() {
        let row = &t.rows[i];
        if let Some(only) = row.by {
            assert!(!only.is_empty(), "a row that nobody may raise");
            let mut j = 0;
            while j < only.len() {
                assert!(
                    is_for(t.events[row.event as usize].by, only[j]),
                    "a row for somebody whom its event is not for"
                );
                j += 1;
            }
        }
        i += 1;
    }
    let mut e = 0;
    while e < t.events.len() {
        let mut j = 0;
        while j < t.events[e].by.len() {
            let mut moves = false;
            let mut i = 0;
            while i < t.rows.len() {
                let row = &t.rows[i];
                moves = moves || row.event as usize == e && row_is_for(row, t.events[e].by[j]);
                i += 1;
            }
            assert!(moves, "an event for somebody for whom none of its rows is");
            j += 1;
        }
        e += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::table::*;

    const STATES: &[StateInfo] = &[
        StateInfo { token: "a", phase: Phase::Live, doc: "" },
        StateInfo { token: "z", phase: Phase::Terminal, doc: "" },
    ];
    const EVENTS: &[EventInfo] =
        &[EventInfo { token: "make", by: &[By::User], doc: "" }, EventInfo { token: "end", by: &[By::User], doc: "" }];
    const BIRTH: Row = Row { id: "X1", from: &[], event: 0, by: None, to: Some(0), emit: Emit::Silent, when: "" };
    const END: Row = Row { id: "X2", from: &[0], event: 1, by: None, to: Some(1), emit: Emit::Silent, when: "" };

    fn broken(rows: &'static [Row], ignores: &'static [Ignore], states: &'static [StateInfo]) -> String {
        of_events(EVENTS, rows, ignores, states)
    }

    fn of_events(
        events: &'static [EventInfo],
        rows: &'static [Row],
        ignores: &'static [Ignore],
        states: &'static [StateInfo],
    ) -> String {
        let table = Table { name: "x", prefix: "X", doc: "", states, events, rows, ignores, refuses: &[], rules: &[] };
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let caught = std::panic::catch_unwind(|| audit(&table));
        std::panic::set_hook(hook);
        match caught {
            Ok(()) => "sound".into(),
            Err(e) => e.downcast_ref::<&str>().map(|s| s.to_string()).unwrap_or_default(),
        }
    }

    #[test]
    fn each_broken_rule_is_named() {
        assert_eq!(broken(&[BIRTH, END], &[], STATES), "sound");
        assert_eq!(broken(&[BIRTH, END, END], &[], STATES), "two rows for one cell");
        const LATE: Ignore = Ignore { id: "X9", from: &[0], event: 1 };
        assert_eq!(broken(&[BIRTH, END], &[LATE], STATES), "a cell both moved and ignored");
        const BACK: Row = Row { id: "X3", from: &[1], event: 1, by: None, to: Some(0), emit: Emit::Silent, when: "" };
        assert_eq!(broken(&[BIRTH, END, BACK], &[], STATES), "an exit from a terminal state");
        const TWO: &[StateInfo] = &[
            StateInfo { token: "a", phase: Phase::Live, doc: "" },
            StateInfo { token: "z", phase: Phase::Terminal, doc: "" },
            StateInfo { token: "lost", phase: Phase::Terminal, doc: "" },
        ];
        assert_eq!(broken(&[BIRTH, END], &[], TWO), "an unreachable state");
        const STAY: Row = Row { id: "X2", from: &[0], event: 1, by: None, to: None, emit: Emit::Silent, when: "" };
        assert_eq!(broken(&[BIRTH, STAY], &[], &STATES[..1]), "a state that can never finish");
        assert_eq!(broken(&[BIRTH], &[], &STATES[..1]), "a state that can never finish");
        const ONLY: &[StateInfo] = &[StateInfo { token: "a", phase: Phase::Terminal, doc: "" }];
        assert_eq!(broken(&[BIRTH], &[], ONLY), "an event that never moves anything");
        const STRANGER: Row = Row { by: Some(&[By::User, By::Agent]), ..END };
        assert_eq!(broken(&[BIRTH, STRANGER], &[], STATES), "a row for somebody whom its event is not for");
        const NOBODY: Row = Row { by: Some(&[]), ..END };
        assert_eq!(broken(&[BIRTH, NOBODY], &[], STATES), "a row that nobody may raise");
        const NARROW: Row = Row { by: Some(&[By::User]), ..END };
        assert_eq!(broken(&[BIRTH, NARROW], &[], STATES), "sound");
        const OPEN: &[EventInfo] = &[
            EventInfo { token: "make", by: &[By::User], doc: "" },
            EventInfo { token: "end", by: &[By::User, By::Agent], doc: "" },
        ];
        assert_eq!(
            of_events(OPEN, &[BIRTH, NARROW], &[], STATES),
            "an event for somebody for whom none of its rows is"
        );
    }
}
