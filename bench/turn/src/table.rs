//! Tables of medians, and ratios of what stood side by side in one round.

use crate::row::{Row, median};
use std::collections::BTreeMap;

type Found<'a> = BTreeMap<(usize, &'a str), Vec<&'a Row>>;

/// By agents and candidate; marked rows only where there are no others.
fn grouped<'a>(rows: &'a [Row], what: &str) -> Found<'a> {
    let mut found = Found::new();
    for row in rows.iter().filter(|row| row.what == what) {
        found.entry((row.agents, &row.candidate)).or_default().push(row);
    }
    for rows in found.values_mut() {
        if rows.iter().any(|row| !row.marked) {
            rows.retain(|row| !row.marked);
        }
    }
    found
}

fn middle(rows: &[&Row], name: &str) -> Option<f64> {
    median(rows.iter().filter_map(|row| row.figure(name)).collect()).map(|(middle, ..)| middle)
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or("-".into(), |figure| format!("{figure:.digits$}"))
}

/// Median of each process.
fn processes(rows: &[&Row], digits: usize) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let each = first.cpu.iter().enumerate().map(|(n, (name, _))| {
        let all = rows.iter().filter_map(|row| row.cpu.get(n)).map(|(_, used)| *used);
        let all = all.filter(|used| used.is_finite()).collect();
        format!("{name} {}", shown(median(all).map(|(middle, ..)| middle), digits))
    });
    each.collect::<Vec<_>>().join(", ")
}

fn quality(rows: &[&Row]) -> String {
    let mark = if rows.iter().any(|row| row.marked) { " !" } else { "" };
    format!("{}{mark}", shown(middle(rows, "foreign"), 2))
}

pub(crate) fn turns(rows: &[Row], order: &[String]) {
    println!(
        "\nagents | candidate | turns/s | p50 ms | p99 ms | CPU s per 1,000 turns | each | WAL kB per turn | \
         write commits | reads | NATS in | out | HOT | foreign cores"
    );
    println!("---:|---|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:");
    let found = grouped(rows, "turn");
    for ((agents, name), rows) in in_order(&found, order) {
        let of = |name: &str, digits| shown(middle(rows, name), digits);
        println!(
            "{agents} | {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {}",
            of("turns_per_second", 0),
            of("p50_ms", 2),
            of("p99_ms", 2),
            of("cpu", 3),
            processes(rows, 3),
            shown(middle(rows, "wal_bytes").map(|bytes| bytes / 1e3), 1),
            of("commits", 2),
            of("reads", 2),
            of("nats_in", 1),
            of("nats_out", 1),
            shown(middle(rows, "hot_share").map(|share| share * 100.0), 0),
            quality(rows)
        );
    }
}

fn in_order<'a, 'b>(found: &'b Found<'a>, order: &[String]) -> Vec<(&'b (usize, &'a str), &'b Vec<&'a Row>)> {
    let mut all: Vec<_> = found.iter().collect();
    let place = |name: &str| order.iter().position(|own| name.starts_with(own.as_str()));
    all.sort_by_key(|((agents, name), _)| (*agents, place(name), *name));
    all
}

/// One candidate over another, round by round.
pub(crate) struct Ratio {
    pub(crate) agents: usize,
    pub(crate) candidate: String,
    pub(crate) over: String,
    pub(crate) of: &'static str,
    pub(crate) middle: f64,
    pub(crate) half: (f64, f64),
}

pub(crate) fn ratios(rows: &[Row], products: &[String]) -> Vec<Ratio> {
    let found = grouped(rows, "turn");
    let mut all = Vec::new();
    for ((agents, over), theirs) in &found {
        for ((_, candidate), ours) in found.iter().filter(|((same, name), _)| same == agents && name != over) {
            let forth = products.iter().position(|name| name == candidate);
            let back = products.iter().position(|name| name == over);
            // Of two products, the later over the earlier.
            if forth.is_none() || back >= forth {
                continue;
            }
            for of in ["turns_per_second", "cpu", "p50_ms"] {
                let pairs = ours.iter().filter_map(|our| {
                    let their = theirs.iter().find(|their| their.round == our.round)?;
                    Some(our.figure(of)? / their.figure(of)?)
                });
                let Some((middle, low, high)) = median(pairs.collect()) else { continue };
                let (candidate, over) = ((*candidate).to_owned(), (*over).to_owned());
                all.push(Ratio { agents: *agents, candidate, over, of, middle, half: (low, high) });
            }
        }
    }
    all
}

pub(crate) fn compare(ratios: &[Ratio]) {
    println!(
        "\nagents | candidate | over | turns/s | half of the rounds | CPU per turn | half of the rounds | p50 | half of the rounds"
    );
    println!("---:|---|---|---:|---|---:|---|---:|---");
    for three in ratios.chunks(3) {
        let Some(first) = three.first() else { continue };
        let each = three.iter().map(|r| format!("{:.2} | {:.2} to {:.2}", r.middle, r.half.0, r.half.1));
        let each: Vec<String> = each.collect();
        println!("{} | {} | {} | {}", first.agents, first.candidate, first.over, each.join(" | "));
    }
}

pub(crate) fn allocations(rows: &[Row], order: &[String]) {
    let found = grouped(rows, "allocations");
    if found.is_empty() {
        return;
    }
    println!("\nagents | candidate | allocations per turn | by service | kB per turn");
    println!("---:|---|---:|---|---:");
    for ((agents, name), rows) in in_order(&found, order) {
        let of = |what: &str| {
            let figures = rows.iter().flat_map(|row| &row.figures);
            figures.filter_map(|(name, figure)| Some((name.strip_prefix(what)?.strip_prefix('.')?, *figure))).collect()
        };
        let (made, bytes): (Vec<(&str, f64)>, Vec<(&str, f64)>) = (of("allocations"), of("allocated_bytes"));
        let each: Vec<String> = made.iter().map(|(service, made)| format!("{service} {made:.0}")).collect();
        println!(
            "{agents} | {name} | {:.0} | {} | {:.1}",
            made.iter().map(|(_, made)| made).sum::<f64>(),
            each.join(", "),
            bytes.iter().map(|(_, bytes)| bytes).sum::<f64>() / 1e3
        );
    }
}

pub(crate) fn streams(rows: &[Row], order: &[String]) {
    let found = grouped(rows, "stream");
    if found.is_empty() {
        return;
    }
    println!(
        "\nstreams | candidate | words/s | CPU µs per word | each | over the floor | worker kB per stream | \
         NATS in | out per word | late p50 ms | p99 ms | seen of all words | foreign cores"
    );
    println!("---:|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:");
    for ((agents, name), rows) in in_order(&found, order) {
        let of = |name: &str, digits| shown(middle(rows, name), digits);
        let floor = found.get(&(*agents, "floor"));
        let over = median(
            rows.iter()
                .filter_map(|row| {
                    let floor = floor?.iter().find(|floor| floor.round == row.round)?;
                    Some(row.figure("cpu")? / floor.figure("cpu")?)
                })
                .collect(),
        );
        println!(
            "{agents} | {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {}",
            of("words_per_second", 0),
            of("cpu", 1),
            processes(rows, 1),
            shown(over.map(|(middle, ..)| middle), 2),
            of("worker_kb_per_stream", 0),
            of("nats_in", 2),
            of("nats_out", 2),
            of("late_p50_ms", 1),
            of("late_p99_ms", 1),
            of("seen_share", 3),
            quality(rows)
        );
    }
}
