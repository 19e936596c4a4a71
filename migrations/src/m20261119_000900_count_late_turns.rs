use crate::schema::*;

migration!(manager => {
    // Turns in a row that passed their deadline.
    add(manager, "agents", "late_count", Int).await
});
