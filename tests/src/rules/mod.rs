//! Every builder of the hot path with the command that it carries out by hand, in a world of rows in memory: what the
//! test that holds the builders to the list of cascades, and the bench of both, have in common.

pub mod agent;
pub mod call;
pub mod plan;
pub mod turn;
mod world;

pub use world::World;

use anyhow::{Result, anyhow};
use instar_core::cascade::{self, Planned, Reach};
use instar_core::id::{Entity, Kind};
use instar_core::machine::{By, Table};
use instar_store::{Commit, Outline};
use std::collections::BTreeMap;
use uuid::Uuid;

type Build = Box<dyn Fn(&World) -> Result<Commit>>;
type Causes = Box<dyn Fn(&Outline) -> Vec<Cause>>;
type Relations = Box<dyn Fn(&Outline) -> Vec<(Reach, Entity, Entity)>>;

/// An event that somebody raises.
#[derive(Clone, Copy)]
pub struct Cause {
    pub entity: Entity,
    pub table: &'static Table,
    pub event: &'static str,
    pub by: By,
}

fn raised(entity: Entity, table: &'static Table, event: &'static str, by: By) -> Cause {
    Cause { entity, table, event, by }
}

/// Where a builder and the list part; by row of a table, or by kind of a rune.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Departure {
    /// In the list alone.
    Missing(&'static str),
    /// In the builder alone.
    Extra(&'static str),
    /// Both tell the same, in another order.
    Order,
}

/// One way to use a builder.
pub struct Case {
    /// As `flow` calls it.
    pub builder: &'static str,
    /// What is the case, where it differs from others of the same builder.
    pub when: String,
    pub world: World,
    build: Build,
    causes: Causes,
    relations: Relations,
}

impl Case {
    fn new(builder: &'static str, world: World, build: impl Fn(&World) -> Result<Commit> + 'static) -> Case {
        Case {
            builder,
            when: String::new(),
            world,
            build: Box::new(build),
            causes: Box::new(|_| Vec::new()),
            relations: Box::new(|_| Vec::new()),
        }
    }

    fn when(mut self, when: impl Into<String>) -> Case {
        self.when = when.into();
        self
    }

    /// The command, as an event of an entity that is there.
    fn by(self, entity: impl Into<Entity>, table: &'static Table, event: &'static str, by: By) -> Case {
        let cause = raised(entity.into(), table, event, by);
        self.causes(move |_| vec![cause])
    }

    /// The command, where it is about what the commit brings forth, or is several events.
    fn causes(mut self, causes: impl Fn(&Outline) -> Vec<Cause> + 'static) -> Case {
        self.causes = Box::new(causes);
        self
    }

    /// Whom the command means.
    fn meaning(mut self, relations: impl Fn(&Outline) -> Vec<(Reach, Entity, Entity)> + 'static) -> Case {
        self.relations = Box::new(relations);
        self
    }

    /// Input waits for this agent: a turn is due as soon as it can be.
    fn with_input(self, agent: Uuid) -> Case {
        let agent = Entity::new(Kind::Agent, agent);
        self.meaning(move |outline| vec![(Reach::NewTurnOfAgent, agent, new_turn(outline, agent))])
    }

    pub fn name(&self) -> String {
        if self.when.is_empty() { self.builder.to_owned() } else { format!("{}, {}", self.builder, self.when) }
    }

    pub fn commit(&self) -> Result<Commit> {
        (self.build)(&self.world)
    }

    /// The world as the list sees it, and the command, once it is known what the commit brings forth.
    pub fn command(&self, outline: &Outline) -> (World, Vec<Cause>) {
        let mut world = self.world.clone();
        world.relations.extend((self.relations)(outline));
        (world, (self.causes)(outline))
    }

    /// What the builder and the list do not have in common.
    pub fn departures(&self) -> Result<Vec<Departure>> {
        let built = self.commit()?.outline();
        let (world, causes) = self.command(&built);
        let planned = expand(&world, &causes).map_err(|why| anyhow!("{}: {why}", self.name()))?;
        let entries = cascade::record(&planned).map_err(|p| anyhow!("{}: no rune tells of {p}", self.name()))?;
        let mut sum: BTreeMap<(&'static str, Entity), i32> = BTreeMap::new();
        built.moves.iter().for_each(|(entity, mv)| *sum.entry((mv.row(), *entity)).or_default() += 1);
        planned.iter().for_each(|p| *sum.entry((p.mv.row(), p.entity)).or_default() -= 1);
        built.runes.iter().for_each(|told| *sum.entry((told.kind, told.entity)).or_default() += 1);
        entries.iter().for_each(|entry| *sum.entry((entry.kind, entry.entity)).or_default() -= 1);
        let mut found: Vec<Departure> = Vec::new();
        for ((what, _), n) in &sum {
            let departure = if *n < 0 { Departure::Missing(what) } else { Departure::Extra(what) };
            found.extend((0..n.abs()).map(|_| departure));
        }
        let both = |kind: &'static str, entity: Entity| sum.get(&(kind, entity)) == Some(&0);
        let told = built.runes.iter().map(|told| (told.kind, told.entity)).filter(|(k, e)| both(k, *e));
        let listed = entries.iter().map(|entry| (entry.kind, entry.entity)).filter(|(k, e)| both(k, *e));
        if !told.eq(listed) {
            found.push(Departure::Order);
        }
        found.sort();
        Ok(found)
    }
}

/// What the list says follows from a command, event by event.
pub fn expand(world: &World, causes: &[Cause]) -> Result<Vec<Planned>, String> {
    let (mut world, mut all) = (world.clone(), Vec::<Planned>::new());
    for cause in causes {
        let planned = cascade::expand(&world, cause.entity, cause.table, cause.event, cause.by)
            .map_err(|no| format!("{}: {no}", cause.event))?;
        let base = all.len();
        for p in planned {
            world.moved.insert((p.mv.machine(), p.entity), p.mv.to());
            all.push(Planned { cause: p.cause.map(|cause| cause + base), ..p });
        }
    }
    Ok(all)
}

/// Whatever of a kind the commit brings forth.
fn born(outline: &Outline, kind: Kind) -> Vec<Entity> {
    let mut found: Vec<Entity> = Vec::new();
    for (entity, _) in outline.moves.iter().filter(|(entity, mv)| mv.from().is_none() && entity.kind == kind) {
        if !found.contains(entity) {
            found.push(*entity);
        }
    }
    found
}

fn only(outline: &Outline, kind: Kind) -> Entity {
    born(outline, kind).first().copied().unwrap_or(Entity::new(kind, Uuid::nil()))
}

/// The turn that the commit queues for this agent; one that is not there, if it queues none.
fn new_turn(outline: &Outline, agent: Entity) -> Entity {
    let queued = outline.runes.iter().filter(|told| told.kind == "turn.queued");
    let mut own = queued.filter(|told| told.agent.map(Entity::from) == Some(agent));
    own.next().map_or(Entity::new(Kind::Turn, Uuid::nil()), |told| told.entity)
}

/// All of them.
pub fn cases() -> Vec<Case> {
    let mut all = turn::cases();
    all.extend(call::cases());
    all.extend(agent::cases());
    all.extend(plan::cases());
    all
}
