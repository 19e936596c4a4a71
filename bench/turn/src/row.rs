//! What a round found, as it is written to the file of results and reduced to tables.

use crate::meter::Use;
use serde::Serialize;
use std::collections::BTreeMap;

/// A round in which others used more cores than this says little.
pub(crate) const FOREIGN_MAX: f64 = 0.1;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) candidate: String,
    pub(crate) agents: usize,
    pub(crate) round: usize,
    /// Others were at work, or nothing was done: it counts only where there is no better one.
    pub(crate) marked: bool,
    pub(crate) figures: BTreeMap<String, f64>,
    /// Processor time by process, of each turn or word.
    pub(crate) cpu: Vec<(String, f64)>,
}

impl Row {
    /// `each`: what the figures are divided by; `cpu_unit`: by how much processor seconds are multiplied before.
    pub(crate) fn new(
        what: &'static str,
        candidate: &str,
        agents: usize,
        round: usize,
        used: &Use,
        each: f64,
        cpu_unit: f64,
    ) -> Row {
        let cpu: Vec<(String, f64)> =
            used.cpu.iter().map(|(name, seconds)| (name.clone(), seconds * cpu_unit / each)).collect();
        let mut figures = BTreeMap::new();
        figures.insert("foreign".to_owned(), used.foreign);
        figures.insert("cpu".to_owned(), cpu.iter().map(|(_, used)| used).sum());
        for (name, count) in used.counts("") {
            figures.insert(name.to_owned(), count / each);
        }
        if let (Some(commits), Some(all)) = (used.count("commits"), used.count("transactions")) {
            figures.insert("reads".to_owned(), (all - commits).max(0.0) / each);
        }
        if let (Some(hot), Some(all)) = (used.count("hot_updates"), used.count("updates")) {
            figures.insert("hot_share".to_owned(), hot / all);
        }
        // Divided by nothing, nothing is known.
        let marked = used.foreign > FOREIGN_MAX || each == 0.0;
        Row { what, candidate: candidate.to_owned(), agents, round, marked, figures, cpu }
    }

    pub(crate) fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied().filter(|figure| figure.is_finite())
    }
}

/// Of sorted numbers.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The middle one, and the two between which half of them are.
pub(crate) fn median(mut numbers: Vec<f64>) -> Option<(f64, f64, f64)> {
    numbers.sort_by(f64::total_cmp);
    let middle = match numbers.len() {
        0 => return None,
        length if length % 2 == 1 => numbers[length / 2],
        length => (numbers[length / 2 - 1] + numbers[length / 2]) / 2.0,
    };
    Some((middle, percentile(&numbers, 0.25), percentile(&numbers, 0.75)))
}
