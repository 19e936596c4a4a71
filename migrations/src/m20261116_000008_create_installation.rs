use crate::schema::*;

migration!(manager => {
    let columns = [("id", Int), ("key", Bytes)];
    table("installation", &["id"], &columns).create(manager, false).await
});
