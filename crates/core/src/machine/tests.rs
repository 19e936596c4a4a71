//! What must hold for all tables together.

use super::*;
use crate::rune::KINDS;
use std::collections::BTreeSet;

/// The rows of the specification, by machine.
fn specified(prefix: &str, last: u32) -> BTreeSet<String> {
    (1..=last).map(|n| format!("{prefix}{n}")).collect()
}

#[test]
fn every_row_of_the_specification_is_present_by_its_id() {
    let last = [
        ("S", 20),
        ("L", 19),
        ("D", 27),
        ("T", 26),
        ("C", 21),
        ("M", 19),
        ("H", 37),
        ("ST", 19),
        ("AS", 20),
        ("P", 24),
        ("K", 13),
    ];
    let added: BTreeSet<String> = ["T27", "T28", "C22", "C23", "ST20", "M20"].map(String::from).into();
    for (prefix, last) in last {
        let table = ALL.iter().find(|t| t.prefix == prefix).expect(prefix);
        let mut present: BTreeSet<String> = table.rows.iter().map(|r| r.id.to_owned()).collect();
        present.extend(table.ignores.iter().map(|i| i.id.to_owned()));
        present.extend(table.refuses.iter().map(|r| r.id.to_owned()));
        present.extend(table.rules.iter().map(|r| r.id.to_owned()));
        let present: BTreeSet<String> = present.difference(&added).cloned().collect();
        assert_eq!(present, specified(prefix, last), "{}", table.name);
    }
}

#[test]
fn every_kind_a_row_names_is_registered_and_the_reverse() {
    let mut named = BTreeSet::new();
    for table in ALL {
        for row in table.rows {
            match row.emit {
                Emit::Runes(kinds) => named.extend(kinds.iter().copied()),
                Emit::Via(kind) => drop(named.insert(kind)),
                Emit::Silent => {}
            }
        }
    }
    let in_rows: BTreeSet<&str> = KINDS.iter().filter(|k| !k.standalone).map(|k| k.token).collect();
    assert_eq!(named, in_rows);
    let all: BTreeSet<&str> = KINDS.iter().map(|k| k.token).collect();
    assert_eq!(all.len(), KINDS.len(), "a kind is registered twice");
}

#[test]
fn a_refusal_names_what_is_allowed_for_this_caller() {
    let Answer::Refused(no) = apply(&turn::TABLE, Some("completed"), "interrupt", By::User) else { panic!() };
    assert!(no.allowed.is_empty());
    let Answer::Refused(no) = apply(&agent_drive::TABLE, Some("stopped"), "message_received", By::User) else {
        panic!()
    };
    assert_eq!(no.allowed, ["start", "delete"]);
    assert!(no.to_string().contains("relaunch it with start"), "{no}");
    let Answer::Refused(no) = apply(&tool_call::TABLE, Some("awaiting_approval"), "approved", By::Agent) else {
        panic!("an agent must not approve")
    };
    assert!(no.to_string().contains("not for the agent"), "{no}");
    assert!(matches!(apply(&turn::TABLE, Some("no such state"), "interrupt", By::User), Answer::Refused(_)));
    assert!(matches!(apply(&turn::TABLE, None, "no such event", By::User), Answer::Refused(_)));
}

#[test]
fn a_row_may_be_for_fewer_than_its_event() {
    for from in ["idle", "errored"] {
        assert!(matches!(apply(&agent_drive::TABLE, Some(from), "start", By::System), Answer::Moves(_)), "{from}");
    }
    for (table, from, event, by) in [
        (&agent_drive::TABLE, "stopped", "start", By::System),
        (&agent_lifecycle::TABLE, "spawning", "kill", By::Agent),
        (&agent_lifecycle::TABLE, "running_turn", "kill", By::Agent),
    ] {
        let Answer::Refused(no) = apply(table, Some(from), event, by) else { panic!("{from} {event} {by:?}") };
        assert!(no.advice.contains(&format!("not for the {}", by.token())), "{no}");
        assert!(!no.allowed.contains(&event), "{no}");
        assert!(matches!(apply(table, Some(from), event, By::User), Answer::Moves(_)), "{from} {event}");
    }
    assert!(matches!(apply(&agent_lifecycle::TABLE, Some("idle"), "kill", By::Agent), Answer::Moves(_)));
    assert!(matches!(apply(&task::TABLE, Some("running"), "complete", By::System), Answer::Refused(_)));
}

#[test]
fn a_recorded_move_is_restored_only_if_the_table_has_it() {
    assert_eq!(restore("T1", Some("queued"), "streaming").map(|m| m.event()), Some("start_turn"));
    assert_eq!(restore("C18", Some("denied"), "denied").map(|m| m.row()), Some("C18"));
    assert!(restore("T1", Some("streaming"), "streaming").is_none());
    assert!(restore("T99", Some("queued"), "streaming").is_none());
    assert!(restore("S1", None, "created").is_some());
}

#[test]
fn every_payload_check_knows_its_required_fields() {
    for kind in KINDS {
        assert!((kind.check)("7").is_err(), "{} takes a number", kind.token);
        let required = kind.fields.iter().any(|f| !f.ends_with('?'));
        assert_eq!((kind.check)("{}").is_err(), required, "{}", kind.token);
    }
}
