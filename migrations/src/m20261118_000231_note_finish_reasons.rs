use crate::schema::*;

migration!(manager => {
    // Why the model stopped, where a turn has an end that it chose.
    add(manager, "turns", "finish_reason", Text).await
});
