//! From what a version of an asset was made, and what was made from it, as a graph.

use crate::id::{AssetId, CallId, HopId, StepId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Versions that one graph shows at the most.
pub const VERSIONS_MAX: usize = 500;

/// One version of one asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    pub asset_id: AssetId,
    pub version: i64,
}

/// How a version came to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    #[serde(flatten)]
    pub what: Version,
    /// Who gave it, where no step made it.
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop_id: Option<HopId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// What the step read.
    pub from: Vec<Version>,
}

/// Which way to go from the version that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To what it was made from.
    Up,
    /// To what was made from it.
    Down,
}

/// Versions in the order in which they were reached, the one that was asked for first; edges are their `from`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Graph {
    pub versions: Vec<Made>,
    /// There is more than a graph shows, or a version whose origin is no longer known.
    pub cut: bool,
}

/// Walks from a version through everything known of how versions were made. A circle, which no honest
/// history has, ends where it meets itself.
pub fn lineage(root: Version, known: &[Made], way: Way) -> Graph {
    let made: BTreeMap<Version, &Made> = known.iter().map(|made| (made.what, made)).collect();
    let mut used: BTreeMap<Version, Vec<Version>> = BTreeMap::new();
    for made in known {
        for from in &made.from {
            used.entry(*from).or_default().push(made.what);
        }
    }
    let (mut versions, mut cut) = (Vec::new(), false);
    let (mut seen, mut queue) = (BTreeSet::from([root]), VecDeque::from([root]));
    while let Some(next) = queue.pop_front() {
        let Some(found) = made.get(&next) else {
            cut = true;
            continue;
        };
        if versions.len() == VERSIONS_MAX {
            return Graph { versions, cut: true };
        }
        versions.push((*found).clone());
        let reached = match way {
            Way::Up => found.from.as_slice(),
            Way::Down => used.get(&next).map_or(&[][..], Vec::as_slice),
        };
        queue.extend(reached.iter().filter(|version| seen.insert(**version)));
    }
    Graph { versions, cut }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn version(asset: u128, version: i64) -> Version {
        Version { asset_id: AssetId::from(Uuid::from_u128(asset)), version }
    }

    fn made(what: Version, from: &[Version]) -> Made {
        Made { what, by: "key".into(), hop_id: None, step_id: None, call_id: None, from: from.to_vec() }
    }

    fn shown(graph: &Graph) -> Vec<Version> {
        graph.versions.iter().map(|made| made.what).collect()
    }

    #[test]
    fn a_version_shows_what_it_was_made_from_and_what_was_made_from_it() {
        let (raw, clean, report, other) = (version(1, 1), version(2, 1), version(3, 2), version(4, 1));
        let known = [made(raw, &[]), made(clean, &[raw]), made(report, &[clean, raw]), made(other, &[])];
        let up = lineage(report, &known, Way::Up);
        assert_eq!((shown(&up), up.cut), (vec![report, clean, raw], false));
        let down = lineage(raw, &known, Way::Down);
        assert_eq!((shown(&down), down.cut), (vec![raw, clean, report], false));
        assert_eq!(shown(&lineage(other, &known, Way::Up)), [other]);
        let older = lineage(version(3, 1), &known, Way::Up);
        assert_eq!((shown(&older), older.cut), (vec![], true), "nothing is known of it");
    }

    #[test]
    fn a_long_history_is_cut_and_says_so() {
        let chain: Vec<Made> = (0..=VERSIONS_MAX as i64)
            .map(|n| made(version(1, n + 1), &if n > 0 { vec![version(1, n)] } else { vec![] }))
            .collect();
        let graph = lineage(version(1, VERSIONS_MAX as i64 + 1), &chain, Way::Up);
        assert_eq!((graph.versions.len(), graph.cut), (VERSIONS_MAX, true));
    }

    proptest! {
        #[test]
        fn any_history_ends_and_shows_each_version_once(edges in prop::collection::vec((0u128..8, 0u128..8), 0..40)) {
            let froms = |to: u128| -> Vec<Version> {
                edges.iter().filter(|(_, b)| *b == to).map(|(a, _)| version(*a, 1)).collect()
            };
            let known: Vec<Made> = (0..8).map(|n| made(version(n, 1), &froms(n))).collect();
            for way in [Way::Up, Way::Down] {
                let graph = lineage(version(0, 1), &known, way);
                let mut once = shown(&graph);
                let all = once.len();
                once.sort();
                once.dedup();
                prop_assert_eq!((once.len(), graph.cut), (all, false));
            }
            // What is reached one way reaches back the other.
            for up in shown(&lineage(version(0, 1), &known, Way::Up)) {
                prop_assert!(shown(&lineage(up, &known, Way::Down)).contains(&version(0, 1)));
            }
        }
    }
}
