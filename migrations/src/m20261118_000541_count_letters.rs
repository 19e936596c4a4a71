use crate::schema::*;

migration!(manager => {
    // Turns in a row that letters of other agents have caused, since the last word of a person.
    add(manager, "agents", "letter_count", Int).await
});
