//! Which runes a commit writes and which of them carries which move.

use super::Planned;
use crate::id::Entity;
use crate::machine::Emit;
use crate::rune::Moved;

/// A rune to be: its kind, whom it is about, and the moves it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: &'static str,
    pub entity: Entity,
    pub moves: Vec<Moved>,
}

/// The runes of a commit, in order. `Err` is the first move that no rune of the commit carries:
/// its event cannot be committed by itself, only together with the one that writes that rune.
pub fn record(planned: &[Planned]) -> Result<Vec<Entry>, Planned> {
    let carriers: Vec<usize> =
        (0..planned.len()).map(|i| carrier(planned, i).ok_or(planned[i])).collect::<Result<_, _>>()?;
    let mut entries = Vec::new();
    for (i, p) in planned.iter().enumerate() {
        let Emit::Runes(kinds) = p.mv.emit() else { continue };
        entries.extend(kinds.iter().map(|kind| Entry { kind, entity: p.entity, moves: Vec::new() }));
        if let Some(last) = entries.last_mut() {
            let carried = planned.iter().zip(&carriers).filter(|(_, carrier)| **carrier == i);
            last.moves = carried.map(|(p, _)| Moved::new(p.entity, &p.mv)).collect();
        }
    }
    Ok(entries)
}

/// A move without a rune of its own rides on that of its nearest cause, else on that of what it
/// causes itself. A silent one may ride on any; one that names its carrier may not: a rune of that
/// kind further off speaks of something else.
fn carrier(planned: &[Planned], i: usize) -> Option<usize> {
    let wanted = match planned[i].mv.emit() {
        Emit::Runes(_) => return Some(i),
        Emit::Via(kind) => Some(kind),
        Emit::Silent => None,
    };
    let fits = |i: &usize| match planned[*i].mv.emit() {
        Emit::Runes(kinds) => wanted.is_none_or(|kind| kinds.last() == Some(&kind)),
        Emit::Via(_) | Emit::Silent => false,
    };
    let mut causes = std::iter::successors(planned[i].cause, |cause| planned[*cause].cause);
    let mut effects = (0..planned.len()).filter(|j| planned[*j].cause == Some(i));
    let near = causes.find(fits).or_else(|| effects.find(fits));
    let any = || (0..i).rev().chain(i + 1..planned.len()).find(fits);
    near.or_else(|| if wanted.is_none() { any() } else { None })
}
