use crate::schema::*;

migration!(manager => {
    // The span in which a turn was last worked on, for whoever goes on with it.
    add(manager, "turns", "segment", Text).await
});
