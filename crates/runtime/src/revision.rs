//! Decisions name the revision that was looked at: who decides on something else than what is there decides nothing.

use crate::act::{Act, ActError};
use crate::snapshot::Snapshot;
use instar_core::id::{Entity, Kind};

impl<'a> Act<'a> {
    /// Only as long as what it is about is still the revision that was seen; any, if nothing is expected.
    pub fn at_revision(self, expected: Option<i64>) -> Act<'a> {
        let (entity, Some(expected)) = (self.entity, expected) else { return self };
        self.provided(move |snapshot| match revision(snapshot, entity) {
            Some(found) if found != expected => Err(ActError::Stale { expected, found }),
            _ => Ok(()),
        })
    }
}

fn revision(snapshot: &Snapshot, entity: Entity) -> Option<i64> {
    match entity.kind {
        Kind::Mission => snapshot.missions.missions.get(&entity.id).map(|row| row.revision),
        Kind::Hop => snapshot.missions.hops.get(&entity.id).map(|row| row.revision),
        Kind::Asset => snapshot.missions.assets.get(&entity.id).map(|row| row.revision),
        Kind::Plan => snapshot.plan(entity.id).map(|row| row.revision),
        _ => None,
    }
}
