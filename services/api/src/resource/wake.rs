//! Turns that may start now that something stood aside: told to the workers, who look at the rows.

use crate::call::Call;
use instar_runtime::Ready;
use instar_store::entity::turn;
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use uuid::Uuid;

/// Beyond this the scheduler's sweep finds the rest.
const WOKEN_MAX: u64 = 1_000;

pub(crate) async fn session(call: &Call) {
    if let Some(id) = call.session.get() {
        woken(call, Condition::all().add(turn::Column::SessionId.eq(id.uuid()))).await;
        // Theirs ran out while the session stood still.
        if let Err(error) = call.api.hub().nudge_session(*id).await {
            tracing::debug!(%error, "autonomous agents were not told to go on; a sweep will find them");
        }
    }
}

pub(crate) async fn agent(call: &Call, id: Uuid) {
    woken(call, Condition::all().add(turn::Column::AgentId.eq(id))).await;
}

/// A hint only: what fails here is found by the sweep.
async fn woken(call: &Call, which: Condition) {
    let turns = turn::Entity::find()
        .filter(which)
        .filter(turn::Column::EndedAt.is_null())
        .order_by_asc(turn::Column::Id)
        .limit(WOKEN_MAX)
        .all(call.api.db())
        .await;
    match turns {
        Ok(turns) => {
            for turn in turns {
                call.api.hub().wake_turn(Ready::of(&turn, "released"), None, turn.traceparent.as_deref());
            }
        }
        Err(error) => tracing::debug!(%error, "nobody was told of turns that may start; a sweep will find them"),
    }
}
