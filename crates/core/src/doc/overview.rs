//! The list of machines, and which of their states may meet.

use super::{codes, head, header, line};
use crate::coordination::{HOPS, PAIRS, STEPS, STOP_GRACE_MS, pair_transient};
use crate::machine::ALL;

pub fn overview() -> String {
    let mut text = header("Machines", "crates/core/src/machine/ and crates/core/src/coordination/");
    text += "Every status in Instar changes only by a row of one of these tables.\n\n";
    text += &head(&["machine", "rows", "states", "events", "about"]);
    for table in ALL {
        let name = format!("[{0}]({0}.md)", table.name);
        let (states, events) = (table.states.len().to_string(), table.events.len().to_string());
        text += &line(&[&name, &format!("{}…", table.prefix), &states, &events, table.doc]);
    }
    text + &agents() + &hops() + &steps()
}

fn agents() -> String {
    let mut text = String::from("\n## Lifecycle and drive\n\nThe pairs that an agent may be in.\n\n");
    text += &head(&["lifecycle", "drives"]);
    for (lifecycle, drives) in PAIRS {
        let drives = drives.iter().map(|d| {
            let brief = pair_transient(lifecycle.token(), d.token());
            let note =
                if brief { format!(" (while a stop is carried out, {STOP_GRACE_MS} ms)") } else { String::new() };
            format!("`{}`{note}", d.token())
        });
        text += &line(&[&codes([lifecycle.token()]), &drives.collect::<Vec<_>>().join(", ")]);
    }
    text
}

fn hops() -> String {
    let mut text = String::from("\n## Mission and current hop\n\n");
    text += &head(&["mission", "no hop", "hops", "only inside a transaction"]);
    for row in HOPS {
        let none = if row.none { "yes" } else { "no" };
        let hops = codes(row.hops.iter().map(|h| h.token()));
        let transient = codes(row.transient.iter().map(|h| h.token()));
        text += &line(&[&codes([row.mission.token()]), none, &hops, &transient]);
    }
    text
}

fn steps() -> String {
    let mut text = String::from(
        "\n## Hop and its steps\n\nIn sequence order, `CANCELLED` ones passed over: first any number of `COMPLETED` ones, \
         then at most one of the third column, then any number of the fourth.\n\n",
    );
    text += &head(&["hop", "failed phase", "at most one", "then"]);
    for row in STEPS {
        let one = codes(row.one.iter().map(|s| s.token()));
        let rest = codes(row.rest.iter().map(|s| s.token()));
        text += &line(&[&codes([row.hop.token()]), row.phase.unwrap_or(""), &one, &rest]);
    }
    text
}
