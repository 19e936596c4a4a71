//! Older names that clients and imported data still use.

/// The canonical token of a state for an older one; anything else is given back as it is.
pub fn canonical_state<'a>(machine: &str, token: &'a str) -> &'a str {
    match (machine, token) {
        ("tool_step", "PROPOSED") => "AWAITING_CONFIGURATION",
        ("asset", "PROPOSED") => "AWAITING_APPROVAL",
        ("asset", "PENDING") => "READY_FOR_PROCESSING",
        ("asset", "IN_PROGRESS") => "PROCESSING",
        ("agent_lifecycle", "running") => "running_turn",
        _ => token,
    }
}

/// The same for the `type` of a parameter or result mapping.
pub fn canonical_mapping(token: &str) -> &str {
    if token == "state_asset" { "asset_field" } else { token }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::ALL;

    #[test]
    fn an_older_name_stands_for_a_state_and_is_none_itself() {
        let older = [
            ("tool_step", "PROPOSED", "AWAITING_CONFIGURATION"),
            ("asset", "PROPOSED", "AWAITING_APPROVAL"),
            ("asset", "PENDING", "READY_FOR_PROCESSING"),
            ("asset", "IN_PROGRESS", "PROCESSING"),
            ("agent_lifecycle", "running", "running_turn"),
        ];
        for (machine, old, new) in older {
            let table = crate::machine::by_name(machine).expect(machine);
            assert_eq!(canonical_state(machine, old), new);
            assert!(table.state(new).is_some() && table.state(old).is_none(), "{machine} {old}");
        }
        assert_eq!(canonical_mapping("state_asset"), "asset_field");
        assert_eq!(canonical_mapping("literal"), "literal");
    }

    #[test]
    fn every_canonical_name_stays_itself() {
        for table in ALL {
            for state in table.states {
                assert_eq!(canonical_state(table.name, state.token), state.token);
            }
        }
    }
}
