use crate::schema::*;

migration!(manager => {
    // The newest summary of an agent is found however old it is; other messages are not in it.
    index(manager, "messages_summaries", "messages", "agent_id, id", Some("source = 'summary'")).await
});
