//! Everything the API can do: one list, from which come the router, the rights and the OpenAPI
//! document.

use crate::auth::Role;
use crate::call::{Call, Reply};
use crate::problem::Problem;
use crate::resource::{
    account, agent, archive, asset, broadcast, catalog, completion, configure, content, context, definition, hop, key,
    machine, mcp, message, mission, plan, rune, session, step, tool_call, turn,
};
use crate::shape::{Field, Kind, Shape};
use crate::stream;
use futures::future::BoxFuture;
use instar_runtime::Vault;
use serde_json::{Map, Value};
use std::borrow::Cow;
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
    /// The body is taken as it is, of whatever form, up to `archive.import_bytes_max`.
    pub(crate) raw: bool,
    /// The same for the content of an asset, up to `assets.bytes_max`.
    pub(crate) content: bool,
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

    /// The body as it stands for the request in what is kept for repeats: a plain hash over a secret could be
    /// tried out by whoever has a copy of the database.
    pub(crate) fn masked<'a>(
        &self,
        body: &'a Map<String, Value>,
        vault: Option<&Vault>,
    ) -> Cow<'a, Map<String, Value>> {
        let secret = |field: &&Field| matches!(field.kind, Kind::Secrets);
        let mut body = Cow::Borrowed(body);
        for field in self.takes.iter().flat_map(|shape| shape.fields).filter(secret) {
            if let Some(Value::Object(secrets)) = body.to_mut().get_mut(field.name) {
                for value in secrets.values_mut() {
                    *value = vault.zip(value.as_str()).map(|(vault, text)| vault.stand_in(text)).into();
                }
            }
        }
        body
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
    let (raw, content, keeps, described_only) = (false, false, false, false);
    Route { method, path, role, summary, query, takes, gives, raw, content, keeps, described_only, run }
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
    route(
        "PATCH",
        "/v1/sessions/{id}",
        Operator,
        One(200, &session::SESSION),
        "Change its name or its limits while it goes on",
        run!(session::patch),
    )
    .taking(&session::PATCH),
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
        "Move the log of one that is closed to cold storage",
        run!(archive::archive),
    ),
    Route {
        raw: true,
        ..post(
            "/v1/sessions/import",
            Admin,
            One(201, &session::SESSION),
            "Bring in the log of one that ended elsewhere, as `instar import` sends it",
            run!(archive::import),
        )
    },
    get("/v1/catalogue", Many(&rune::RUNE), "Sessions that were archived, oldest first", run!(rune::catalogue))
        .asking(&[LIMIT, CURSOR, asks("after", "Only those after this number")]),
    get("/v1/sessions/{id}/runes", Many(&rune::RUNE), "Its log, oldest first", run!(rune::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("after", "Only runes after this number"),
    ]),
    get("/v1/sessions/{id}/seals", Many(&rune::SEAL), "The chain over its log, oldest first", run!(rune::seals))
        .asking(&[LIMIT, CURSOR, asks("after", "Only seals after this number")]),
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
    post(
        "/v1/sessions/{id}/agents/import",
        Operator,
        One(201, &definition::IMPORTED),
        "Load agents from definitions; not started unless they say so",
        run!(definition::import),
    )
    .taking(&definition::IMPORT)
    .keeping(),
    get("/v1/agents", Many(&agent::AGENT), "Agents, newest first", run!(agent::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("session", "Only those of this session"),
        asks("lifecycle", "Only those in this state"),
        asks("drive", "Only those in this state; without it, deleted ones are left out"),
    ]),
    get("/v1/agents/{id}", One(200, &agent::AGENT), "An agent", run!(agent::get)),
    get(
        "/v1/agents/{id}/definition",
        One(200, &definition::DEFINITION),
        "What it is made of, to be loaded elsewhere",
        run!(definition::export),
    ),
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
    route(
        "DELETE",
        "/v1/agents/{id}",
        Operator,
        One(200, &agent::AGENT),
        "End it at once and remove it from the fleet",
        run!(agent::delete),
    ),
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
    // broadcasts
    post(
        "/v1/sessions/{id}/broadcasts",
        Operator,
        One(202, &broadcast::DELIVERED),
        "Say something to all agents of a session",
        run!(broadcast::send),
    )
    .taking(&broadcast::NEW_BROADCAST)
    .keeping(),
    get(
        "/v1/sessions/{id}/broadcasts",
        Many(&broadcast::BROADCAST),
        "Its broadcasts, newest first",
        run!(broadcast::list),
    )
    .asking(&[LIMIT, CURSOR]),
    // turns
    get("/v1/turns", Many(&turn::TURN), "Turns, newest first", run!(turn::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("agent", "Only those of this agent"),
        asks("session", "Only those of this session"),
        asks("status", "Only those in this state"),
    ]),
    get(
        "/v1/turns/{id}/context",
        One(200, &context::CONTEXT),
        "What the model was sent in a provider call of a turn",
        run!(context::get),
    )
    .asking(&[asks("iteration", "Which provider call, from 1; the latest")]),
    get("/v1/turns/{id}", One(200, &turn::TURN), "A turn", run!(turn::get))
        .asking(&[asks("wait", "Answer when it has ended, or after so many seconds")]),
    post(
        "/v1/turns/{id}/interrupt",
        Operator,
        One(200, &turn::TURN),
        "End it: an answer ends where it is, what was said is kept",
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
        asks("step", "Only those of this tool step"),
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
    // missions
    post(
        "/v1/sessions/{id}/missions",
        Operator,
        One(201, &mission::MISSION),
        "Propose a mission",
        run!(mission::create),
    )
    .taking(&mission::NEW_MISSION),
    get("/v1/missions", Many(&mission::MISSION), "Missions, newest first", run!(mission::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("session", "Only those of this session"),
        asks("status", "Only those in this state"),
        asks("awaits", "Only those in which this one has to act next"),
        asks("agent", "Only those of this agent"),
    ]),
    get("/v1/missions/{id}", One(200, &mission::MISSION), "A mission", run!(mission::get)),
    route(
        "PATCH",
        "/v1/missions/{id}",
        Approver,
        One(200, &mission::MISSION),
        "Change its agent, its gates or what becomes of it when a hop fails",
        run!(mission::patch),
    )
    .taking(&mission::SET_TERMS),
    post(
        "/v1/missions/{id}/approve",
        Approver,
        One(200, &mission::MISSION),
        "Accept the proposal",
        run!(mission::approve),
    )
    .taking(&mission::DECISION),
    post(
        "/v1/missions/{id}/reject",
        Approver,
        One(200, &mission::MISSION),
        "Turn the proposal down",
        run!(mission::reject),
    )
    .taking(&mission::DECISION),
    post(
        "/v1/missions/{id}/request-changes",
        Approver,
        One(200, &mission::MISSION),
        "Have the proposal changed",
        run!(mission::request_changes),
    )
    .taking(&mission::FEEDBACK),
    post(
        "/v1/missions/{id}/revise",
        Operator,
        One(200, &mission::MISSION),
        "Change the proposal",
        run!(mission::revise),
    )
    .taking(&mission::REVISE_MISSION),
    post(
        "/v1/missions/{id}/complete",
        Approver,
        One(200, &mission::MISSION),
        "Complete it before its final hop",
        run!(mission::complete),
    )
    .taking(&mission::REASON),
    post(
        "/v1/missions/{id}/cancel",
        Operator,
        One(200, &mission::MISSION),
        "Cancel it with everything that runs for it",
        run!(mission::cancel),
    )
    .taking(&mission::REASON),
    post(
        "/v1/missions/{id}/retry",
        Approver,
        One(200, &mission::MISSION),
        "Try the failed hop of a failed mission again",
        run!(mission::retry),
    )
    .taking(&mission::REASON),
    post(
        "/v1/missions/{id}/resume",
        Operator,
        One(200, &mission::MISSION),
        "Let one go on whose hop a person has stopped",
        run!(mission::resume),
    )
    .taking(&mission::REASON),
    post(
        "/v1/missions/{id}/reset",
        Operator,
        One(201, &mission::MISSION),
        "Start one that has ended over, as a new instance",
        run!(mission::reset),
    )
    .taking(&mission::RESET),
    post(
        "/v1/missions/{id}/answer",
        Operator,
        One(200, &mission::MISSION),
        "Answer its agent's question",
        run!(mission::answer),
    )
    .taking(&mission::ANSWER),
    post(
        "/v1/missions/{id}/command",
        Approver,
        One(200, &mission::MISSION),
        "A command in the older vocabulary",
        run!(mission::older),
    )
    .taking(&mission::OLDER),
    // hops
    post("/v1/missions/{id}/hops", Operator, One(201, &hop::HOP), "Write the plan of its next hop", run!(hop::create))
        .taking(&hop::NEW_HOP),
    get("/v1/hops", Many(&hop::HOP), "Hops, newest first", run!(hop::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("mission", "Only those of this mission"),
        asks("session", "Only those of this session"),
        asks("status", "Only those in this state; without it, deleted ones are left out"),
    ]),
    get("/v1/hops/{id}", One(200, &hop::HOP), "A hop", run!(hop::get)),
    route("DELETE", "/v1/hops/{id}", Operator, One(200, &hop::HOP), "Remove it", run!(hop::delete)),
    post("/v1/hops/{id}/approve-plan", Approver, One(200, &hop::HOP), "Accept its plan", run!(hop::approve_plan))
        .taking(&mission::DECISION),
    post("/v1/hops/{id}/reject-plan", Approver, One(200, &hop::HOP), "Turn its plan down", run!(hop::reject_plan))
        .taking(&mission::FEEDBACK),
    post("/v1/hops/{id}/edit-plan", Operator, One(200, &hop::HOP), "Change its plan", run!(hop::edit_plan))
        .taking(&hop::EDIT_PLAN),
    post("/v1/hops/{id}/approve-impl", Approver, One(200, &hop::HOP), "Accept its steps", run!(hop::approve_impl))
        .taking(&mission::DECISION),
    post("/v1/hops/{id}/reject-impl", Approver, One(200, &hop::HOP), "Turn its steps down", run!(hop::reject_impl))
        .taking(&mission::FEEDBACK),
    post("/v1/hops/{id}/edit-impl", Operator, One(200, &hop::HOP), "Change its steps", run!(hop::edit_impl))
        .taking(&hop::EDIT_IMPL),
    post(
        "/v1/hops/{id}/request-changes",
        Approver,
        One(200, &hop::HOP),
        "Take an acceptance back",
        run!(hop::request_changes),
    )
    .taking(&hop::CHANGES),
    post("/v1/hops/{id}/execute", Approver, One(200, &hop::HOP), "Run its steps", run!(hop::execute))
        .taking(&mission::REASON),
    post("/v1/hops/{id}/stop", Operator, One(200, &hop::HOP), "Stop its execution", run!(hop::stop))
        .taking(&mission::REASON),
    post("/v1/hops/{id}/cancel", Operator, One(200, &hop::HOP), "Cancel it; the mission goes on", run!(hop::cancel))
        .taking(&mission::REASON),
    post("/v1/hops/{id}/fix", Operator, One(200, &hop::HOP), "Reopen what failed, to mend it", run!(hop::fix))
        .taking(&mission::REASON),
    post("/v1/hops/{id}/retry", Approver, One(200, &hop::HOP), "Execute again from the failed step", run!(hop::retry))
        .taking(&hop::RETRY),
    post("/v1/hops/{id}/replan", Operator, One(200, &hop::HOP), "Plan again", run!(hop::replan))
        .taking(&mission::REASON),
    post("/v1/hops/{id}/complete", Approver, One(200, &hop::HOP), "Say that it is done", run!(completion::complete))
        .taking(&completion::COMPLETE),
    post("/v1/hops/{id}/reset", Operator, One(200, &hop::HOP), "Propose a cancelled hop again", run!(hop::reset))
        .taking(&mission::REASON),
    post("/v1/hops/{id}/archive", Operator, One(200, &hop::HOP), "Put a completed hop away", run!(hop::archive))
        .taking(&mission::REASON),
    post("/v1/hops/{id}/command", Approver, One(200, &hop::HOP), "A command in the older vocabulary", run!(hop::older))
        .taking(&mission::OLDER),
    // tool steps
    get("/v1/hops/{id}/steps", Many(&step::STEP), "The steps of a hop, in the order they run", run!(step::of_hop)),
    get("/v1/steps/{id}", One(200, &step::STEP), "A tool step", run!(step::get)),
    post(
        "/v1/steps/{id}/complete",
        Approver,
        One(200, &step::STEP),
        "Supply what a running step should make, and go on behind it",
        run!(step::complete),
    )
    .taking(&step::COMPLETE),
    post("/v1/steps/{id}/cancel", Operator, One(200, &step::STEP), "Cancel it", run!(step::cancel))
        .taking(&asset::REASON),
    post(
        "/v1/steps/{id}/request-changes",
        Operator,
        One(200, &step::STEP),
        "Have another tool chosen",
        run!(step::request_changes),
    )
    .taking(&asset::REASON),
    post("/v1/steps/{id}/reset", Operator, One(200, &step::STEP), "Bring a cancelled one back", run!(step::reset))
        .taking(&asset::REASON),
    route("DELETE", "/v1/steps/{id}", Operator, One(200, &step::STEP), "Remove it", run!(step::delete)),
    // assets
    post(
        "/v1/missions/{id}/assets",
        Operator,
        One(201, &asset::ASSET),
        "Add an asset to a mission; with a value it is READY at once",
        run!(asset::create),
    )
    .taking(&asset::NEW_ASSET),
    get("/v1/assets", Many(&asset::ASSET), "Assets, newest first", run!(asset::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("mission", "Only those of this mission"),
        asks("hop", "Only those that this hop reads, makes or proposed"),
        asks("session", "Only those of this session"),
        asks("status", "Only those in this state"),
        asks("role", "Only inputs, outputs or intermediates"),
    ]),
    get("/v1/assets/{id}", One(200, &asset::ASSET), "An asset", run!(asset::get)),
    get("/v1/assets/{id}/versions", Many(&asset::ASSET_VERSION), "Its versions, newest first", run!(asset::versions))
        .asking(&[LIMIT]),
    get(
        "/v1/assets/{id}/content",
        Text("application/octet-stream"),
        "The content of a version, with its hash as ETag",
        run!(content::content),
    )
    .asking(&[asks("version", "Which version; the newest")]),
    get(
        "/v1/assets/{id}/lineage",
        One(200, &asset::LINEAGE),
        "Which step of which hop made which version out of what",
        run!(asset::lineage),
    )
    .asking(&[
        asks("version", "Which version; the newest"),
        asks("direction", "up: what it was made from; down: what was made from it"),
    ]),
    route(
        "PATCH",
        "/v1/assets/{id}",
        Operator,
        One(200, &asset::ASSET),
        "Another revision of one that waits for approval",
        run!(asset::patch),
    )
    .taking(&asset::EDIT_ASSET),
    post("/v1/assets/{id}/accept", Approver, One(200, &asset::ASSET), "Accept it", run!(asset::accept))
        .taking(&asset::REASON),
    post("/v1/assets/{id}/reject", Approver, One(200, &asset::ASSET), "Turn it down", run!(asset::reject))
        .taking(&asset::REASON),
    Route {
        content: true,
        ..post(
            "/v1/assets/{id}/provide",
            Operator,
            One(200, &asset::ASSET),
            "Give its value: {\"value\": …}, or the content itself under a type other than JSON",
            run!(content::provide),
        )
        .taking(&content::PROVIDE)
    },
    post(
        "/v1/assets/{id}/reprocess",
        Operator,
        One(200, &asset::ASSET),
        "Open one that a person gave for its next value; what a step makes its hop makes again",
        run!(asset::reprocess),
    )
    .taking(&asset::REASON),
    post("/v1/assets/{id}/cancel", Operator, One(200, &asset::ASSET), "Stop making it", run!(asset::cancel))
        .taking(&asset::REASON),
    post("/v1/assets/{id}/fix", Operator, One(200, &asset::ASSET), "Open one that failed again", run!(asset::fix))
        .taking(&asset::REASON),
    post(
        "/v1/assets/{id}/refresh",
        Operator,
        One(200, &asset::ASSET),
        "Bring an expired one back",
        run!(asset::refresh),
    )
    .taking(&asset::REASON),
    route("DELETE", "/v1/assets/{id}", Operator, One(200, &asset::ASSET), "Remove it", run!(asset::delete)),
    // plans
    post(
        "/v1/sessions/{id}/plans",
        Operator,
        One(201, &plan::PLAN),
        "Set a goal that agents carry out",
        run!(plan::create),
    )
    .taking(&plan::NEW_PLAN)
    .keeping(),
    get("/v1/plans", Many(&plan::PLAN), "Plans, newest first", run!(plan::list)).asking(&[
        LIMIT,
        CURSOR,
        asks("session", "Only those of this session"),
        asks("status", "Only those in this state"),
    ]),
    get("/v1/plans/{id}", One(200, &plan::PLAN), "A plan with its tasks", run!(plan::get)),
    post("/v1/plans/{id}/approve", Approver, One(200, &plan::PLAN), "Let its draft run", run!(plan::approve))
        .taking(&plan::APPROVE),
    post("/v1/plans/{id}/reject", Approver, One(200, &plan::PLAN), "Have another draft made", run!(plan::reject))
        .taking(&plan::REJECT),
    post(
        "/v1/plans/{id}/cancel",
        Operator,
        One(200, &plan::PLAN),
        "Stop it, with all of its tasks",
        run!(plan::cancel),
    )
    .taking(&plan::CANCEL),
    post(
        "/v1/plans/{id}/unblock",
        Operator,
        One(200, &plan::PLAN),
        "Let tasks go on that waited for a person",
        run!(plan::unblock),
    )
    .taking(&plan::UNBLOCK),
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
    route(
        "DELETE",
        "/v1/tools/{name}",
        Admin,
        One(200, &catalog::TOOL),
        "Remove a tool that was registered by a request",
        run!(catalog::remove),
    ),
    post(
        "/v1/tools/{name}/accept",
        Admin,
        One(200, &catalog::TOOL),
        "Accept the definition that an MCP server offers now",
        run!(mcp::accept),
    )
    .taking(&mcp::ACCEPT),
    get("/v1/mcp-servers", Many(&mcp::SERVER), "MCP servers, as each tool-runner sees them", run!(mcp::servers)),
    get("/v1/models", Many(&catalog::MODEL), "Models that agents may be given", run!(catalog::models)),
    route("GET", "/v1/accounts", Operator, Many(&account::ACCOUNT), "Accounts, newest first", run!(account::list))
        .asking(&[LIMIT, CURSOR, asks("pool", "Only those of this pool")]),
    post(
        "/v1/accounts",
        Admin,
        One(201, &account::ACCOUNT),
        "Store an account that agents may claim; its secrets are never shown again",
        run!(account::create),
    )
    .taking(&account::NEW_ACCOUNT),
    route(
        "GET",
        "/v1/accounts/{id}",
        Operator,
        One(200, &account::ACCOUNT),
        "An account, by its id or name",
        run!(account::get),
    ),
    route(
        "DELETE",
        "/v1/accounts/{id}",
        Admin,
        One(200, &account::ACCOUNT),
        "Remove an account; its holder claims another when it next needs one",
        run!(account::remove),
    ),
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
