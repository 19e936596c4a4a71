//! The graph of a plan's tasks: every dependency exists, and none leads back to itself.

use super::name::{Named, fully, meant};
use std::collections::{BTreeMap, BTreeSet};

/// How many tasks a plan has at the most, those that are done included.
pub const TASKS_MAX: usize = 200;

/// A task by the name that its plan gives it, and those it waits for.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub key: &'a str,
    pub deps: &'a [String],
}

/// Every problem of a draft, in words that whoever made it can act on. `known`: tasks that stay, which new
/// ones may wait for. What stays never waits for what is new, so that a circle lies in the draft alone. An id means the
/// task of the draft, if it has one of that id: those of an earlier iteration may have the same.
pub fn check(draft: &[Node<'_>], iteration: i64, known: &[Named<'_>]) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    if draft.is_empty() {
        problems.push("there is no task: a plan needs at least one".to_owned());
    }
    if draft.len() + known.len() > TASKS_MAX {
        let (new, old) = (draft.len(), known.len());
        problems.push(format!("{new} tasks beside {old} that stay are too many: a plan has {TASKS_MAX} at the most"));
    }
    let of_now = known.iter().filter(|task| task.iteration == iteration);
    let mut seen: BTreeSet<&str> = of_now.map(|task| task.key).collect();
    for node in draft {
        if !seen.insert(node.key) {
            problems.push(format!("two tasks have the id {:?}: give each one of its own", node.key));
        } else if fully(node.key, known).is_some() {
            problems
                .push(format!("task {:?} is done and stays: leave it out, or give what is new another id", node.key));
        }
    }
    for node in draft {
        for dep in node.deps {
            if dep == node.key {
                let earlier = meant(dep, known).and_then(|at| known.get(at)).map(|task| task.full());
                let hint = earlier.map(|name| format!(": call the earlier one {name:?}")).unwrap_or_default();
                problems.push(format!("task {:?} waits for itself{hint}", node.key));
            } else if !seen.contains(dep.as_str()) && meant(dep, known).is_none() {
                problems.push(format!("task {:?} waits for {dep:?}, which is no task of the plan", node.key));
            }
        }
    }
    if problems.is_empty()
        && let Some(circle) = circle(draft)
    {
        problems.push(format!("tasks wait for each other in a circle: {}", circle.join(" -> ")));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Tasks that wait for each other, the first one named again at the end.
fn circle<'a>(draft: &[Node<'a>]) -> Option<Vec<&'a str>> {
    let mut left: BTreeMap<&str, &[String]> = draft.iter().map(|node| (node.key, node.deps)).collect();
    loop {
        let free: Vec<&str> = left
            .iter()
            .filter(|(_, deps)| !deps.iter().any(|d| left.contains_key(d.as_str())))
            .map(|(k, _)| *k)
            .collect();
        if free.is_empty() {
            break;
        }
        for key in free {
            left.remove(key);
        }
    }
    // Whatever is left waits for something that is left: follow it until something comes twice.
    let mut path = vec![*left.keys().next()?];
    loop {
        let deps = left.get(path.last()?)?;
        let next = deps.iter().find_map(|dep| left.get_key_value(dep.as_str()))?.0;
        if let Some(at) = path.iter().position(|key| key == next) {
            let mut circle = path.split_off(at);
            circle.push(next);
            return Some(circle);
        }
        path.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A draft of the second iteration.
    fn judged(tasks: &[(&str, &[&str])], known: &[(&str, i64)]) -> Vec<String> {
        let deps: Vec<Vec<String>> =
            tasks.iter().map(|(_, deps)| deps.iter().map(|d| d.to_string()).collect()).collect();
        let nodes: Vec<Node<'_>> = tasks.iter().zip(&deps).map(|((key, _), deps)| Node { key, deps }).collect();
        let known: Vec<Named<'_>> = known.iter().map(|&(key, iteration)| Named { key, iteration }).collect();
        check(&nodes, 2, &known).err().unwrap_or_default()
    }

    #[test]
    fn a_graph_without_a_circle_is_a_plan() {
        assert_eq!(judged(&[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])], &[]), [""; 0]);
        assert_eq!(judged(&[("b", &["a"])], &[("a", 1)]), [""; 0]);
    }

    #[test]
    fn a_later_iteration_may_use_the_ids_of_an_earlier_one() {
        let known = [("t1", 1), ("t2", 1)];
        assert_eq!(judged(&[("t1", &["1/t1", "t2"]), ("t3", &["t1"])], &known), [""; 0]);
        let itself = judged(&[("t1", &["t1"])], &known);
        assert!(
            itself.len() == 1 && itself[0].contains("waits for itself: call the earlier one \"1/t1\""),
            "{itself:?}"
        );
        let again = judged(&[("1/t2", &[])], &known);
        assert!(again.len() == 1 && again[0].contains("leave it out"), "{again:?}");
    }

    #[test]
    fn every_problem_is_told() {
        let none = judged(&[], &[]);
        assert!(none[0].contains("at least one"), "{none:?}");
        let problems = judged(&[("a", &["a"]), ("a", &[]), ("b", &["x"]), ("old", &[])], &[("old", 2)]);
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(problems[0].contains("two tasks") && problems[2].contains("itself") && problems[3].contains("\"x\""));
        let circle = judged(&[("a", &[]), ("b", &["a", "d"]), ("c", &["b"]), ("d", &["c"])], &[]);
        assert_eq!(circle, ["tasks wait for each other in a circle: b -> d -> c -> b"]);
        let names: Vec<String> = (0..=TASKS_MAX).map(|n| n.to_string()).collect();
        let many: Vec<Node<'_>> = names.iter().map(|key| Node { key, deps: &[] }).collect();
        assert!(check(&many, 1, &[]).is_err_and(|why| why[0].contains("too many")));
    }
}
