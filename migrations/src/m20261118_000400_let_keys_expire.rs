use crate::schema::*;

migration!(manager => {
    // From when on a key opens nothing, if it was made for a while.
    add(manager, "api_keys", "expires_at", Time).await
});
