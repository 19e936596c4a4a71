use crate::schema::*;

migration!(manager => {
    // What an agent has caused itself on a day: when, how many turns, what they cost.
    add(manager, "agents", "today", Json).await
});
