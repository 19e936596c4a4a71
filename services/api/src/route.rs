//! Everything the API can do: one list, from which come the router, the rights and the OpenAPI
//! document.

use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::resource::{agent, catalog, configure, key, machine, message, rune, session, tool_call, turn};
use crate::shape::Shape;
use crate::stream;
use futures::future::BoxFuture;
use std::sync::Arc;

pub(crate) type Run = fn(Arc<Call>) -> BoxFuture<'static, Result<Reply, Problem>>;

pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// The least role that may.
    pub(crate) role: Role,
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Param],
    /// The body, checked before the handler sees it.
    pub(crate) takes: Option<&'static Shape>,
    pub(crate) gives: Gives,
    /// Its commit stores the answer for repeats itself.
    pub(crate) keeps: bool,
    /// Served by the route of a shorter path.
    pub(crate) described_only: bool,
    pub(crate) run: Run,
}

pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
}

pub(crate) enum Gives {
    One(u16, &'static Shape),
    Many(&'static Shape),
    Text(&'static str),
}

impl Route {
    pub(crate) const fn reads_body(&self) -> bool {
        matches!(self.method.as_bytes(), b"POST" | b"PATCH")
    }

    const fn asking(mut self, query: &'static [Param]) -> Route {
        self.query = query;
        self
    }

    const fn taking(mut self, shape: &'static Shape) -> Route {
        self.takes = Some(shape);
        self
    }

    const fn keeping(mut self) -> Route {
        self.keeps = true;
        self
    }

    const fn described(mut self) -> Route {
        self.described_only = true;
        self
    }
}

const fn route(
    method: &'static str,
    path: &'static str,
    role: Role,
    gives: Gives,
    summary: &'static str,
    run: Run,
) -> Route {
    let (query, takes) = (&[] as &[Param], None);
    Route { method, path, role, summary, query, takes, gives, keeps: false, described_only: false, run }
}

const fn get(path: &'static str, gives: Gives, summary: &'static str, run: Run) -> Route {
    route("GET", path, Role::Viewer, gives, summary, run)
}

const fn post(path: &'static str, role: Role, gives: Gives, summary: &'static str, run: Run) -> Route {
    route("POST", path, role, gives, summary, run).taking(&session::NOTHING)
}

const fn asks(name: &'static str, doc: &'static str) -> Param {
    Param { name, doc }
}

const LIMIT: Param = asks("limit", "How many, 1 to 200; 50");
const CURSOR: Param = asks("cursor", "The next_cursor of the page before");

use Gives::{Many, One, Text};
use Role::{Admin, Approver, Operator, Viewer};

macro_rules! run {
    ($($handler:ident)::+) => { |call| Box::pin($($handler)::+(call)) };
}

pub(crate) static ROUTES: &[Route] = &[
    // sessions
    post(
        "/v1/sessions",
        Operator,
        One(201, &session::SESSION),
        "Make a session, with its root agent if one is given",
        run!(session::create),
    )
    .taking(&session::NEW_SESSION)
    .keeping(),
    get("/v1/sessions", Many(&session::SESSION), "Sessions, newest first", run!(session::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("status", "Only those in this state"),
    ]),
    get("/v1/sessions/{id}", One(200, &session::SESSION), "A session", run!(session::get)),
    post(
        "/v1/sessions/{id}/pause",
        Operator,
        One(200, &session::SESSION),
        "Hold it: input queues up, no turn starts",
        run!(session::pause),
    )
    .taking(&session::PAUSE),
    post("/v1/sessions/{id}/resume", Operator, One(200, &session::SESSION), "Let it go on", run!(session::resume)),
    post(
        "/v1/sessions/{id}/replenish",
        Operator,
        One(200, &session::SESSION),
        "Raise the limits of one that is suspended",
        run!(session::replenish),
    )
    .taking(&session::REPLENISH)
    .keeping(),
    post(
        "/v1/sessions/{id}/reset",
        Operator,
        One(200, &session::SESSION),
        "Clear the errors that suspended it",
        run!(session::reset),
    ),
    post("/v1/sessions/{id}/close", Operator, One(200, &session::SESSION), "End it in order", run!(session::close)),
    post(
        "/v1/sessions/{id}/archive",
        Operator,
        One(200, &session::SESSION),
        "Move it to cold storage (not there yet)",
        run!(session::archive),
    ),
    get("/v1/sessions/{id}/runes", Many(&rune::RUNE), "Its log, oldest first", run!(rune::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("after", "Only runes after this number"),
    ]),
    get(
        "/v1/sessions/{id}/events",
        Text("text/event-stream"),
        "Its log as it grows, and what models say as they say it",
        run!(stream::events),
    )
    .asking(&[asks("after", "Begin after the rune of this number; Last-Event-ID goes before")]),
    // agents
    post("/v1/sessions/{id}/agents", Operator, One(201, &agent::AGENT), "Make an agent", run!(agent::create))
        .taking(&agent::NEW_AGENT)
        .keeping(),
    get("/v1/agents", Many(&agent::AGENT), "Agents, newest first", run!(agent::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("session", "Only those of this session"),
        asks("lifecycle", "Only those in this state"),
        asks("drive", "Only those in this state"),
    ]),
    get("/v1/agents/{id}", One(200, &agent::AGENT), "An agent", run!(agent::get)),
    route(
        "PATCH",
        "/v1/agents/{id}",
        Operator,
        One(200, &agent::AGENT),
        "Configure it, from its next turn on",
        run!(configure::patch),
    )
    .taking(&configure::CONFIGURE),
    post("/v1/agents/{id}/start", Operator, One(200, &agent::AGENT), "Launch or relaunch it", run!(agent::start))
        .keeping(),
    post("/v1/agents/{id}/stop", Operator, One(200, &agent::AGENT), "Have it take no more work", run!(agent::stop)),
    post(
        "/v1/agents/{id}/hold",
        Operator,
        One(200, &agent::AGENT),
        "Keep an idle agent from waking",
        run!(agent::hold),
    ),
    post("/v1/agents/{id}/terminate", Operator, One(200, &agent::AGENT), "End it", run!(agent::terminate))
        .taking(&agent::TERMINATE),
    // messages
    post(
        "/v1/agents/{id}/messages",
        Operator,
        One(202, &message::ACCEPTED),
        "Say something to an agent",
        run!(message::send),
    )
    .taking(&message::NEW_MESSAGE)
    .asking(&[asks("wait", "Seconds, 25 at most, to wait for the end of the turn that answers")])
    .keeping(),
    get(
        "/v1/agents/{id}/messages",
        Many(&message::MESSAGE),
        "What was said to and by an agent, newest first",
        run!(message::list),
    )
    .asking(&[LIMIT, CURSOR, asks("query", "Only those that contain this text")]),
    // turns
    get("/v1/turns", Many(&turn::TURN), "Turns, newest first", run!(turn::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("agent", "Only those of this agent"),
        asks("session", "Only those of this session"),
        asks("status", "Only those in this state"),
    ]),
    get("/v1/turns/{id}", One(200, &turn::TURN), "A turn", run!(turn::get))
        .asking(&[asks("wait", "Answer when it has ended, or after so many seconds")]),
    post(
        "/v1/turns/{id}/interrupt",
        Operator,
        One(200, &turn::TURN),
        "End it at its next safe boundary",
        run!(turn::interrupt),
    )
    .taking(&turn::INTERRUPT),
    post(
        "/v1/turns/{id}/steer",
        Operator,
        One(202, &message::ACCEPTED),
        "New input instead of the rest of it",
        run!(message::steer),
    )
    .taking(&message::STEER)
    .keeping(),
    // tool calls
    get("/v1/tool-calls", Many(&tool_call::TOOL_CALL), "Tool calls, newest first", run!(tool_call::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("status", "Only those in this state"),
        asks("turn", "Only those of this turn"),
        asks("session", "Only those of this session"),
        asks("agent", "Only those of this agent"),
    ]),
    get("/v1/tool-calls/{id}", One(200, &tool_call::TOOL_CALL), "A tool call", run!(tool_call::get)),
    post(
        "/v1/tool-calls/{id}/approve",
        Approver,
        One(200, &tool_call::TOOL_CALL),
        "Let it run",
        run!(tool_call::approve),
    )
    .taking(&tool_call::APPROVE)
    .keeping(),
    post("/v1/tool-calls/{id}/deny", Approver, One(200, &tool_call::TOOL_CALL), "Refuse it", run!(tool_call::deny))
        .taking(&tool_call::DENY),
    post(
        "/v1/tool-calls/{id}/cancel",
        Operator,
        One(200, &tool_call::TOOL_CALL),
        "End it before it has a result",
        run!(tool_call::cancel),
    )
    .taking(&tool_call::CANCEL),
    post(
        "/v1/tool-calls/{id}/resolve",
        Approver,
        One(200, &tool_call::TOOL_CALL),
        "Say what an unknown outcome was",
        run!(tool_call::resolve),
    )
    .taking(&tool_call::RESOLVE)
    .keeping(),
    // the house itself
    get("/v1/machines", Many(&machine::MACHINE), "Every machine", run!(machine::list)),
    get("/v1/machines/{name}", One(200, &machine::MACHINE), "A machine", run!(machine::get)),
    get("/v1/machines/{name}.mmd", Text("text/vnd.mermaid"), "A machine as a Mermaid diagram", run!(machine::get))
        .described(),
    get("/v1/machines/{name}.svg", Text("image/svg+xml"), "A machine as a picture", run!(machine::get)).described(),
    get("/v1/tools", Many(&catalog::TOOL), "Tools that agents may be given", run!(catalog::tools)),
    Route {
        takes: None,
        ..post(
            "/v1/tools",
            Admin,
            One(201, &catalog::TOOL),
            "Register a tool; its fields are those of the configuration",
            run!(catalog::register),
        )
    },
    get("/v1/models", Many(&catalog::MODEL), "Models that agents may be given", run!(catalog::models)),
    get("/v1/whoami", One(200, &key::WHOAMI), "Whose key this is", run!(key::whoami)),
    route("GET", "/v1/keys", Admin, Many(&key::KEY), "Keys of this namespace, newest first", run!(key::list))
        .asking(&[LIMIT, CURSOR]),
    post("/v1/keys", Admin, One(201, &key::KEY), "Make a key; it is shown once", run!(key::create))
        .taking(&key::NEW_KEY),
    route(
        "DELETE",
        "/v1/keys/{id}",
        Admin,
        One(200, &key::KEY),
        "Revoke a key; it opens nothing within seconds",
        run!(key::revoke),
    ),
];

/// Roles in the order of their rights, for whoever describes them.
pub(crate) const ROLES: [Role; 4] = [Viewer, Operator, Approver, Admin];
