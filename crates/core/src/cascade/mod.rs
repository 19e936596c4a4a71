//! Cross-machine cascades: what else moves in the same commit when a row moves.
//!
//! [`LIST`] is the second small list of the domain, beside the tables. [`expand`] follows it from a
//! cause to all moves of the commit, in their order. It knows no store: a [`View`] tells it rows,
//! relations and facts, and what it answers are values.
//!
//! Order: what must come `Before` a move is carried out completely before it, so that results
//! precede turns and turns precede agents; what follows `After` waits its turn in a queue, so that
//! all entities of one cause move before what their moves cause in turn. Only a move that has no
//! rune of its own goes at once with the one whose rune it rides on.

mod list;
mod pick;
mod reach;
mod record;
#[cfg(test)]
mod tests;
mod view;

pub use list::LIST;
pub use pick::Pick;
pub use reach::Reach;
pub use record::{Entry, record};
pub use view::{Fact, View};

use crate::id::Entity;
use crate::machine::{Answer, By, Cell, Emit, Move, Refusal, Table, apply};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::LazyLock;

/// How far a cascade may reach from its cause. Half a cascade would leave entities that contradict
/// each other, so that a deeper one is refused as a whole.
pub const DEPTH_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Before,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    /// Only if the row is the command itself and not a cascade.
    Alone,
    /// A fact about the entity that moved.
    Cause(Fact),
    /// A fact about the entity that is reached.
    Target(Fact),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    Event(&'static str),
    Pick(Pick),
}

#[derive(Debug)]
pub struct Cascade {
    /// Row ids, separated by spaces; `T16:steer` where an id has rows for several events.
    pub causes: &'static str,
    pub order: Order,
    pub reach: Reach,
    pub raise: Raise,
    pub when: When,
}

impl Cascade {
    fn is_caused_by(&self, mv: &Move) -> bool {
        self.causes.split_whitespace().any(|cause| match cause.split_once(':') {
            Some((row, event)) => row == mv.row() && event == mv.event(),
            None => cause == mv.row(),
        })
    }
}

/// A transition of a commit.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    pub entity: Entity,
    pub mv: Move,
    /// The transition that it follows from, by its place in the commit; `None` for the command's own.
    pub cause: Option<usize>,
}

impl std::fmt::Display for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Planned { entity, mv, .. } = self;
        write!(f, "{} {}: {} > {} {entity}", mv.row(), mv.event(), mv.from().unwrap_or("none"), mv.to())
    }
}

/// All moves of the commit that this event makes, in commit order. Empty when the event is ignored
/// (already so). A consequence whose cell does not move is passed over: it never fails its cause.
pub fn expand(
    view: &impl View,
    entity: Entity,
    table: &'static Table,
    event: &str,
    by: By,
) -> Result<Vec<Planned>, Refusal> {
    let seen = view::Seen { view, moved: HashMap::new() };
    let mut plan = Expansion {
        seen,
        by,
        done: HashSet::new(),
        pending: Vec::new(),
        planned: Vec::new(),
        places: Vec::new(),
        queue: VecDeque::new(),
    };
    let from = plan.seen.state(table, entity);
    let mv = match apply(table, from, event, by) {
        Answer::Moves(mv) => mv,
        Answer::Ignored { .. } => return Ok(Vec::new()),
        Answer::Refused(no) => return Err(*no),
    };
    let too_deep = |mv: &Move| Refusal {
        machine: mv.machine(),
        from: mv.from().unwrap_or("none").to_owned(),
        event: event.to_owned(),
        allowed: Vec::new(),
        advice: format!("its consequences reach further than {DEPTH_MAX} entities deep: end the inner ones first"),
    };
    plan.take(entity, mv, 0, None).map_err(|Deep| too_deep(&mv))?;
    while let Some(effect) = plan.queue.pop_front() {
        plan.follow(effect).map_err(|Deep| too_deep(&mv))?;
    }
    Ok(plan.finish())
}

/// By row id, because every move of every commit asks.
static INDEX: LazyLock<HashMap<&'static str, Vec<&'static Cascade>>> = LazyLock::new(|| {
    let mut index: HashMap<&str, Vec<&Cascade>> = HashMap::new();
    for cascade in LIST {
        for cause in cascade.causes.split_whitespace() {
            let row = cause.split_once(':').map_or(cause, |(row, _)| row);
            index.entry(row).or_default().push(cascade);
        }
    }
    index
});

/// Whether the list raises this event on this machine when one of these rows moves.
pub fn follows(table: &Table, event: &str, rows: &[impl AsRef<str>]) -> bool {
    rows.iter().map(AsRef::as_ref).any(|row| {
        INDEX.get(row).is_some_and(|cascades| {
            cascades.iter().any(|cascade| {
                let reached = cascade.reach.table().or_else(|| crate::machine::by_row(row));
                let raised = match cascade.raise {
                    Raise::Event(one) => one == event,
                    Raise::Pick(pick) => pick.options().contains(&event),
                };
                raised && reached.is_some_and(|reached| reached.name == table.name)
            })
        })
    })
}

struct Deep;

/// A consequence that waits for its turn.
struct Effect {
    cascade: &'static Cascade,
    row: &'static str,
    cause: Entity,
    target: Entity,
    table: &'static Table,
    depth: usize,
    ticket: usize,
}

struct Expansion<'a> {
    seen: view::Seen<'a>,
    by: By,
    /// Each entity makes each row once, which is also why this ends.
    done: HashSet<(Entity, &'static str)>,
    /// About to move: what comes before such a move must not move the same entity.
    pending: Vec<(&'static str, Entity)>,
    /// With the ticket of each move's cause: what comes before its cause has no place to name yet.
    planned: Vec<Planned>,
    /// By ticket, the place in the commit.
    places: Vec<usize>,
    queue: VecDeque<Effect>,
}

impl Expansion<'_> {
    fn take(&mut self, entity: Entity, mv: Move, depth: usize, cause: Option<usize>) -> Result<(), Deep> {
        if depth > DEPTH_MAX {
            return Err(Deep);
        }
        if !self.done.insert((entity, mv.row())) {
            return Ok(());
        }
        let ticket = self.places.len();
        self.places.push(0);
        self.pending.push((mv.machine(), entity));
        for effect in self.effects(entity, &mv, depth, ticket, Order::Before) {
            self.follow(effect)?;
        }
        self.pending.pop();
        self.places[ticket] = self.planned.len();
        self.planned.push(Planned { entity, mv, cause });
        self.seen.moved.insert((mv.machine(), entity), mv.to());
        for effect in self.effects(entity, &mv, depth, ticket, Order::After) {
            // What has no rune of its own rides on this one, and must not be overtaken by a move
            // that comes in a later rune.
            let free = !self.pending.contains(&(effect.table.name, effect.target));
            match self.answer(&effect).filter(|_| free) {
                Some(rider) if rides(&rider, &mv) => {
                    self.take(effect.target, rider, effect.depth, Some(ticket))?;
                }
                _ => self.queue.push_back(effect),
            }
        }
        Ok(())
    }

    fn effects(&self, cause: Entity, mv: &Move, depth: usize, ticket: usize, order: Order) -> Vec<Effect> {
        let mut effects = Vec::new();
        let of_row = INDEX.get(mv.row()).map_or(&[][..], Vec::as_slice);
        for cascade in of_row.iter().filter(|c| c.order == order && c.is_caused_by(mv)) {
            let applies = match cascade.when {
                When::Always | When::Target(_) => true,
                When::Alone => depth == 0,
                When::Cause(fact) => self.seen.view.fact(cause, fact),
            };
            if applies {
                let table = cascade.reach.table().unwrap_or(mv.table());
                let (row, depth) = (mv.row(), depth + 1);
                let targets = self.seen.related(cause, cascade.reach).into_iter();
                effects.extend(targets.map(|target| Effect { cascade, row, cause, target, table, depth, ticket }));
            }
        }
        effects
    }

    /// The move that an effect makes as things stand now.
    fn answer(&self, effect: &Effect) -> Option<Move> {
        let Effect { cascade, row, cause, target, table, .. } = *effect;
        if let When::Target(fact) = cascade.when
            && !self.seen.view.fact(target, fact)
        {
            return None;
        }
        let event = match cascade.raise {
            Raise::Event(event) => event,
            Raise::Pick(pick) => pick.choose(&self.seen, &pick::Asked { row, cause, target })?,
        };
        let from = self.seen.state(table, target);
        match apply(table, from, event, voice(table, from, event, self.by)) {
            Answer::Moves(mv) => Some(mv),
            Answer::Ignored { .. } | Answer::Refused(_) => None,
        }
    }

    fn follow(&mut self, effect: Effect) -> Result<(), Deep> {
        match self.answer(&effect) {
            Some(mv) => self.take(effect.target, mv, effect.depth, Some(effect.ticket)),
            None => Ok(()),
        }
    }

    fn finish(self) -> Vec<Planned> {
        let place = |ticket: usize| self.places[ticket];
        self.planned.iter().map(|p| Planned { cause: p.cause.map(place), ..*p }).collect()
    }
}

/// Whether a consequence has no rune of its own but that of its cause.
fn rides(rider: &Move, cause: &Move) -> bool {
    match (rider.emit(), cause.emit()) {
        (Emit::Via(kind), Emit::Runes(kinds)) => kinds.last() == Some(&kind),
        (Emit::Silent, Emit::Runes(_)) => true,
        _ => false,
    }
}

/// In whose name a consequence is raised: the system's, unless the row is not for it.
fn voice(table: &Table, from: Option<&str>, event: &str, cause: By) -> By {
    let allowed = table.event(event).map_or(&[][..], |e| match table.cell(from.and_then(|s| table.state(s)), e) {
        Cell::Moves(row) => table.raisers(row),
        Cell::Ignored(_) | Cell::Refused(_) => table.events[e as usize].by,
    });
    [By::System, cause].into_iter().find(|by| allowed.contains(by)).or(allowed.first().copied()).unwrap_or(By::System)
}
