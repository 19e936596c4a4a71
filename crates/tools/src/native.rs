//! Tools that act on the store: what they are called and what they take.
//!
//! They are registered like any other, so that policy, approval and schema checks apply to them
//! unchanged. What they do is the tool-runner's to know: it has the store, and writes the effect and
//! the call's result in one commit, which is why repeating an attempt can do nothing twice.

use crate::spec::{Kind, Spec};
use instar_core::plan::{Category, Priority, Severity, TASKS_MAX};
use serde_json::{Value, json};

/// Matches that a search returns when the call names no limit, and at the most.
pub const FOUND_DEFAULT: u64 = 20;
pub const FOUND_MAX: u64 = 100;
const QUERY_CHARS_MAX: usize = 1_000;
const NAME_CHARS_MAX: usize = 100;
const TEXT_CHARS_MAX: usize = 32_000;
const TOOLS_MAX: usize = 500;
const AWAITED_MAX: usize = 100;
const KEY_CHARS_MAX: usize = 60;
/// The same with the iteration before it, of which there are 100 at the most.
const TASK_NAME_CHARS_MAX: usize = KEY_CHARS_MAX + 4;
const TITLE_CHARS_MAX: usize = 200;
const REASON_CHARS_MAX: usize = 4_000;
const CRITERIA_MAX: usize = 20;
const EVIDENCE_MAX: usize = 100;
const FINDINGS_MAX: usize = 100;
/// Thirty days.
const WAIT_MS_MAX: u64 = 2_592_000_000;

const ASSETS_MAX: usize = 50;
const STEPS_MAX: usize = 32;
const ATTEMPTS_MAX: u32 = 100;

/// An asset as it is proposed.
fn asset() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name"],
        "properties": {
            "name": text(NAME_CHARS_MAX),
            "description": text(TEXT_CHARS_MAX),
            "specification": text(TEXT_CHARS_MAX),
            "type": {"type": "string", "description":
                "string, number, boolean, object, file, markdown, config or a word of your domain"},
            "subtype": text(NAME_CHARS_MAX),
            "is_array": {"type": "boolean"},
            "schema": {"type": "object"},
            "example": {},
            "external_system": text(NAME_CHARS_MAX),
            "ttl_ms": {"type": "integer", "minimum": 1, "description": "how long a value is good for"},
        },
    })
}

/// What an agent that another one makes may be for.
pub const ROLES: [&str; 6] = ["orchestrator", "worker", "explorer", "critic", "summarizer", "monitor"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    SearchMessages,
    SearchReasoning,
    SearchBroadcasts,
    SpawnAgent,
    SendMessage,
    WaitFor,
    TerminateAgent,
    ProposeMission,
    ProposeHopPlan,
    ProposeHopImpl,
    AskPerson,
    FailHop,
    ReplanHop,
    ProposePlan,
    CompleteTask,
    FailTask,
    BlockTask,
    SubmitCritique,
    ReadAsset,
}

impl Native {
    pub const ALL: [Native; 19] = [
        Native::SearchMessages,
        Native::SearchReasoning,
        Native::SearchBroadcasts,
        Native::SpawnAgent,
        Native::SendMessage,
        Native::WaitFor,
        Native::TerminateAgent,
        Native::ProposeMission,
        Native::ProposeHopPlan,
        Native::ProposeHopImpl,
        Native::AskPerson,
        Native::FailHop,
        Native::ReplanHop,
        Native::ProposePlan,
        Native::CompleteTask,
        Native::FailTask,
        Native::BlockTask,
        Native::SubmitCritique,
        Native::ReadAsset,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Native::SearchMessages => "search_messages",
            Native::SearchReasoning => "search_reasoning",
            Native::SearchBroadcasts => "search_broadcasts",
            Native::SpawnAgent => "spawn_agent",
            Native::SendMessage => "send_message",
            Native::WaitFor => "wait_for",
            Native::TerminateAgent => "terminate_agent",
            Native::ProposeMission => "propose_mission",
            Native::ProposeHopPlan => "propose_hop_plan",
            Native::ProposeHopImpl => "propose_hop_impl",
            Native::AskPerson => "ask_person",
            Native::FailHop => "fail_hop",
            Native::ReplanHop => "replan_hop",
            Native::ProposePlan => "propose_plan",
            Native::CompleteTask => "complete_task",
            Native::FailTask => "fail_task",
            Native::BlockTask => "block_task",
            Native::SubmitCritique => "submit_critique",
            Native::ReadAsset => "read_asset",
        }
    }

    /// Whether it is for agents that work on a mission; such a tool is offered only while it can be used.
    pub const fn is_of_mission(self) -> bool {
        matches!(
            self,
            Native::ProposeMission
                | Native::ProposeHopPlan
                | Native::ProposeHopImpl
                | Native::AskPerson
                | Native::FailHop
                | Native::ReplanHop
        )
    }

    pub fn named(name: &str) -> Option<Native> {
        Native::ALL.into_iter().find(|native| native.name() == name)
    }

    pub fn names() -> Vec<&'static str> {
        Native::ALL.into_iter().map(Native::name).collect()
    }

    const fn description(self) -> &'static str {
        match self {
            Native::SearchMessages => {
                "Searches your own messages, sent and received, for a text. Letters A to Z match in either case. \
                 Gives the newest matches, oldest first."
            }
            Native::SearchReasoning => {
                "Searches your own earlier reasoning for a text. Letters A to Z match in either case. Gives the \
                 newest matches, oldest first."
            }
            Native::SearchBroadcasts => {
                "Searches the broadcasts that reached you for a text. Letters A to Z match in either case. Gives \
                 the newest matches, oldest first."
            }
            Native::SpawnAgent => {
                "Makes an agent that works for you, and gives it its first task. Its role chooses a budget, tools \
                 and instructions; it can have no tool that you have not. It works by itself from then on: use \
                 wait_for to have its answer, and send_message to say more."
            }
            Native::SendMessage => {
                "Says something to your parent (to: \"parent\"), to an agent that you made or to another one of the \
                 same parent, by name or id. It reads it in a turn of its own, after what it does now."
            }
            Native::WaitFor => {
                "Waits until all of these agents, which you made, are done or have ended, and gives what each said \
                 last. With timeout_ms no longer than that: `done` is then false, and they go on working."
            }
            Native::TerminateAgent => {
                "Ends an agent that you made and that is in no turn, with everything it made, for good. Its place is \
                 free for another one."
            }
            Native::ProposeMission => {
                "Proposes a mission to people: a goal, how one sees that it is reached, and the assets that it reads \
                 and promises. Nothing happens before somebody accepts it. With mission_id it is a new revision of a \
                 mission that waits for approval."
            }
            Native::ProposeHopPlan => {
                "Proposes the plan of the mission's next hop to people: which of its assets it reads, the one asset \
                 that it makes, and whether it is the last. Nothing happens before somebody accepts it."
            }
            Native::ProposeHopImpl => {
                "Proposes the steps of the hop whose plan was accepted: tools in order, each with where its \
                 parameters come from and where its results go. The chain is checked; what is wrong with it comes \
                 back to you. Nothing runs before somebody accepts it."
            }
            Native::AskPerson => {
                "Asks a person something that you must know before you can propose. The mission waits for the answer, \
                 which comes to you as a message: end your turn after asking."
            }
            Native::FailHop => {
                "Says that the hop you were asked for cannot be planned, or that its steps cannot be found, and why. \
                 The hop fails, and people decide how the mission goes on: end your turn after it. What is only not \
                 clear is a question for ask_person."
            }
            Native::ReplanHop => {
                "Takes up a hop again that failed before its steps were chosen, because something is different now: \
                 say what. You are then asked for its plan anew."
            }
            Native::ProposePlan => {
                "Hands in the tasks that lead to the goal, all at once. `id` is t1, t2 and so on, in every round anew; \
                 `deps` names tasks that must be completed before, those of this call by their ids and those of an \
                 earlier round as in 1/t1; there must be no circle. What is wrong with it is said, and nothing is taken then."
            }
            Native::CompleteTask => {
                "Says that your task is done, and what came of it. `evidence` are ids of runes that bear it out; \
                 without them the results of your tool calls in this turn count. Ends your turn."
            }
            Native::FailTask => {
                "Says that your task could not be done, and why. It is tried again while it has attempts left, \
                 unless `retry` is false. Ends your turn."
            }
            Native::BlockTask => {
                "Says that your task waits for something that only a person can give, and what. Somebody else may go \
                 on with it when it is there. Ends your turn."
            }
            Native::SubmitCritique => {
                "Says what you found. The goal is met if nothing is an error; else errors become tasks of high and \
                 warnings tasks of medium priority, and `task` is tried again where it failed. With `replan` the whole \
                 plan is made anew. Ends your turn."
            }
            Native::ReadAsset => {
                "Reads the value of an asset of the mission that you work for, by its name or id: all of it, where its \
                 summary says little. What is long comes in pages: go on with `next_offset` as offset."
            }
        }
    }

    /// Whether it is given by what a turn works on, and never by an agent's list.
    pub const fn is_given(self) -> bool {
        self.reports() || matches!(self, Native::ReadAsset)
    }

    /// Whether it says what came of a turn's work.
    const fn reports(self) -> bool {
        matches!(
            self,
            Native::ProposePlan | Native::CompleteTask | Native::FailTask | Native::BlockTask | Native::SubmitCritique
        )
    }

    /// Whether its call may wait as a row, for longer than anybody keeps its turn in mind.
    pub const fn waits(self) -> bool {
        matches!(self, Native::WaitFor)
    }

    /// Whether it changes anything.
    const fn acts(self) -> bool {
        match self {
            Native::SearchMessages | Native::SearchReasoning | Native::SearchBroadcasts | Native::WaitFor => false,
            Native::ReadAsset => false,
            // A proposal is for people to decide on: it does nothing by itself.
            Native::ProposeMission | Native::ProposeHopPlan | Native::ProposeHopImpl | Native::AskPerson => false,
            // Nor does a word about one's own part in a mission.
            Native::FailHop | Native::ReplanHop => false,
            Native::SpawnAgent | Native::SendMessage | Native::TerminateAgent => true,
            // What an agent says of its own work needs nobody's leave.
            Native::ProposePlan
            | Native::CompleteTask
            | Native::FailTask
            | Native::BlockTask
            | Native::SubmitCritique => false,
        }
    }

    fn parameters(self) -> Value {
        let (fields, required) = match self {
            Native::SearchMessages | Native::SearchReasoning | Native::SearchBroadcasts => {
                let query = json!({"type": "string", "minLength": 1, "maxLength": QUERY_CHARS_MAX});
                let limit = json!({"type": "integer", "minimum": 1, "maximum": FOUND_MAX, "default": FOUND_DEFAULT});
                (json!({"query": query, "limit": limit}), json!(["query"]))
            }
            Native::SpawnAgent => {
                let limit = json!({"type": "integer", "minimum": 1});
                let budget = json!({"type": "object", "additionalProperties": false, "properties": {
                    "max_tokens": limit, "max_tool_calls": limit, "max_wall_time_ms": limit,
                    "on_budget": {"type": "string", "enum": ["terminate", "stop"]},
                }});
                let fields = json!({
                    "name": {"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX},
                    "role": {"type": "string", "enum": ROLES, "default": "worker"},
                    "model": {"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX},
                    "system_prompt": {"type": "string", "maxLength": TEXT_CHARS_MAX},
                    "tools": {"type": "array", "items": {"type": "string"}, "maxItems": TOOLS_MAX},
                    "budget": budget,
                    "task": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS_MAX},
                });
                (fields, json!(["name", "task"]))
            }
            Native::SendMessage => {
                let fields = json!({
                    "to": {"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX},
                    "content": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS_MAX},
                });
                (fields, json!(["to", "content"]))
            }
            Native::WaitFor => {
                let name = json!({"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX});
                let fields = json!({
                    "agents": {"type": "array", "items": name, "minItems": 1, "maxItems": AWAITED_MAX},
                    "timeout_ms": {"type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX},
                });
                (fields, json!(["agents"]))
            }
            Native::TerminateAgent => {
                let name = json!({"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX});
                (json!({"agent": name}), json!(["agent"]))
            }
            Native::ProposeMission => {
                let assets = json!({"type": "array", "items": asset(), "maxItems": ASSETS_MAX});
                let fields = json!({
                    "mission_id": text(NAME_CHARS_MAX),
                    "name": text(NAME_CHARS_MAX),
                    "description": text(TEXT_CHARS_MAX),
                    "goal": text(TEXT_CHARS_MAX),
                    "success_criteria": {"type": "array", "items": text(TEXT_CHARS_MAX), "minItems": 1, "maxItems": 20},
                    "inputs": assets,
                    "outputs": assets,
                    "scope": text(TEXT_CHARS_MAX),
                    "metadata": {"type": "object"},
                });
                (fields, json!(["name", "goal", "success_criteria", "outputs"]))
            }
            Native::ProposeHopPlan => {
                let output = json!({
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {"asset_id": text(NAME_CHARS_MAX), "asset": asset()},
                    "description": "asset_id of an asset of the mission, or asset for a new one",
                });
                let fields = json!({
                    "mission_id": text(NAME_CHARS_MAX),
                    "name": text(NAME_CHARS_MAX),
                    "description": text(TEXT_CHARS_MAX),
                    "goal": text(TEXT_CHARS_MAX),
                    "success_criteria": {"type": "array", "items": text(TEXT_CHARS_MAX), "maxItems": 20},
                    "inputs": {"type": "array", "items": text(NAME_CHARS_MAX), "maxItems": ASSETS_MAX},
                    "output": output,
                    "is_final": {"type": "boolean"},
                    "rationale": text(TEXT_CHARS_MAX),
                    "alternatives": {"type": "array", "items": text(TEXT_CHARS_MAX), "maxItems": 20},
                    "executor": {
                        "type": "string",
                        "enum": ["steps", "plan"],
                        "description": "steps: tools in order (the default); plan: agents that share the work",
                    },
                });
                (fields, json!(["name", "output", "is_final"]))
            }
            Native::ProposeHopImpl => {
                let step = json!({
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["tool_id"],
                    "properties": {
                        "name": text(NAME_CHARS_MAX),
                        "tool_id": text(NAME_CHARS_MAX),
                        "description": text(TEXT_CHARS_MAX),
                        "parameter_mapping": {"type": "object", "description":
                            "parameter to {type: asset_field, state_asset_id} or {type: literal, value}"},
                        "result_mapping": {"type": "object", "description":
                            "result to {type: asset_field, state_asset_id} or {type: discard}; `output` is the whole answer"},
                        "attempts_max": {"type": "integer", "minimum": 1, "maximum": ATTEMPTS_MAX, "description":
                            "how often it is tried in one execution; 3"},
                    },
                });
                let steps = json!({"type": "array", "items": step, "minItems": 1, "maxItems": STEPS_MAX});
                let scratch = json!({
                    "type": "array",
                    "description": "values that only pass from one step to the next; mappings call them by name",
                    "maxItems": STEPS_MAX,
                    "items": {
                        "type": "object",
                        "additionalProperties": false,
                        "required": ["name"],
                        "properties": {
                            "name": text(NAME_CHARS_MAX),
                            "type": text(NAME_CHARS_MAX),
                            "is_array": {"type": "boolean"},
                            "description": text(TEXT_CHARS_MAX),
                            "schema": {"type": "object"},
                        },
                    },
                });
                let fields = json!({"mission_id": text(NAME_CHARS_MAX), "steps": steps, "scratch": scratch});
                (fields, json!(["steps"]))
            }
            Native::AskPerson => {
                let fields = json!({"mission_id": text(NAME_CHARS_MAX), "question": text(TEXT_CHARS_MAX)});
                (fields, json!(["question"]))
            }
            Native::FailHop | Native::ReplanHop => {
                let fields = json!({"mission_id": text(NAME_CHARS_MAX), "reason": text(REASON_CHARS_MAX)});
                (fields, json!(["reason"]))
            }
            Native::ProposePlan => (json!({"tasks": tasks()}), json!(["tasks"])),
            Native::CompleteTask => {
                let evidence = json!({"type": "array", "items": {"type": "string"}, "maxItems": EVIDENCE_MAX});
                let result = json!({"type": ["string", "object", "array"], "maxLength": TEXT_CHARS_MAX});
                (json!({"result": result, "evidence": evidence}), json!(["result"]))
            }
            Native::FailTask => {
                let reason = json!({"type": "string", "minLength": 1, "maxLength": REASON_CHARS_MAX});
                (json!({"reason": reason, "retry": {"type": "boolean", "default": true}}), json!(["reason"]))
            }
            Native::BlockTask => {
                let reason = json!({"type": "string", "minLength": 1, "maxLength": REASON_CHARS_MAX});
                (json!({"reason": reason}), json!(["reason"]))
            }
            Native::SubmitCritique => {
                let fields = json!({
                    "summary": {"type": "string", "minLength": 1, "maxLength": REASON_CHARS_MAX},
                    "findings": findings(),
                    "replan": {"type": "boolean", "default": false},
                });
                (fields, json!(["summary", "findings"]))
            }
            Native::ReadAsset => {
                let offset = json!({"type": "integer", "minimum": 0, "default": 0});
                (json!({"asset": text(NAME_CHARS_MAX * 8), "offset": offset}), json!(["asset"]))
            }
        };
        json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false})
    }

    pub fn spec(self) -> Spec {
        let mut spec = Spec::new(self.name(), Kind::Native);
        self.complete(&mut spec);
        spec
    }

    /// What it takes and does is its own to say, not the configuration's. Its effect and its result
    /// are one commit, so that an attempt more has no effect more.
    pub(crate) fn complete(self, spec: &mut Spec) {
        spec.parameters = self.parameters();
        spec.side_effects = self.acts();
        spec.idempotent = self.acts();
        if (self.waits() || self.is_of_mission() || self.reports()) && spec.parallel_safe.is_none() {
            // What the model asked for before it comes first: it may be those that are waited for, what a proposal
            // builds on, or what is reported.
            spec.parallel_safe = Some(false);
        }
        if spec.description.is_empty() {
            spec.description = self.description().to_owned();
        }
    }
}

fn text(chars_max: usize) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": chars_max})
}

fn tasks() -> Value {
    let criteria = json!({"type": "array", "items": text(TITLE_CHARS_MAX * 5), "maxItems": CRITERIA_MAX});
    let fields = json!({
        "id": text(KEY_CHARS_MAX),
        "title": text(TITLE_CHARS_MAX),
        "description": text(TEXT_CHARS_MAX),
        "priority": {"type": "string", "enum": Priority::TOKENS, "default": "medium"},
        "deps": {"type": "array", "items": text(TASK_NAME_CHARS_MAX), "maxItems": TASKS_MAX, "uniqueItems": true},
        "role": {"type": "string", "enum": ROLES, "default": "worker"},
        "success_criteria": criteria,
    });
    let required = ["id", "title", "description"];
    let task = json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false});
    // How many there may be is said in words, together with everything else that is wrong.
    json!({"type": "array", "items": task})
}

fn findings() -> Value {
    let fields = json!({
        "severity": {"type": "string", "enum": Severity::TOKENS},
        "category": {"type": "string", "enum": Category::TOKENS},
        "title": text(TITLE_CHARS_MAX),
        "description": {"type": "string", "maxLength": REASON_CHARS_MAX},
        "task": text(TASK_NAME_CHARS_MAX),
        "file": {"type": "string", "maxLength": TITLE_CHARS_MAX * 5},
        "line": {"type": "integer", "minimum": 0},
        "suggested_fix": {"type": "string", "maxLength": REASON_CHARS_MAX},
    });
    let required = ["severity", "category", "title"];
    let finding = json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false});
    json!({"type": "array", "items": finding, "maxItems": FINDINGS_MAX})
}
