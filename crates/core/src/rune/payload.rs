//! Typed payloads, one struct per rune kind, from one list.
//!
//! Who did it and from which state to which is in the envelope (actor, moves); a payload has what
//! a reader needs besides: reasons, errors, and what it takes to go on.

use super::kind::{KindInfo, Payload, Visibility};
use crate::id::*;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Optional fields are left out of the text when there is nothing to say: runes stay small.
fn absent<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The seven ways a tool call can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    Success,
    Error,
    Timeout,
    Cancelled,
    Denied,
    /// The effect may or may not have happened.
    #[default]
    Unknown,
    SandboxViolation,
}

/// Tokens of one or more provider calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// A message that a turn takes up: its beginning, and whether there is more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnInput {
    pub message_id: MessageId,
    pub source: String,
    #[serde(default, skip_serializing_if = "absent")]
    pub text: String,
    #[serde(default, skip_serializing_if = "absent")]
    pub cut: bool,
}

/// What came of a call: the beginning of its output, or of its error, and whether there is more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSummary {
    pub call_id: CallId,
    pub tool: String,
    pub status: ResultStatus,
    #[serde(default, skip_serializing_if = "absent")]
    pub text: String,
    #[serde(default, skip_serializing_if = "absent")]
    pub cut: bool,
}

macro_rules! kinds {
    ($($name:ident $token:literal $vis:ident $home:ident { $($field:ident: $ty:ty),*; $($opt:ident: $oty:ty),* })+) => {
        $(
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            pub struct $name {
                $(pub $field: $ty,)*
                $(#[serde(default, skip_serializing_if = "absent")] pub $opt: $oty,)*
            }
            impl Payload for $name {
                const KIND: &'static str = $token;
            }
        )+
        pub(super) const LIST: &[KindInfo] = &[$(KindInfo {
            token: $token,
            visibility: Visibility::$vis,
            standalone: home!($home),
            fields: &[$(stringify!($field),)* $(concat!(stringify!($opt), "?")),*],
            check: |text| serde_json::from_str::<$name>(text).map(drop),
        }),+];
    };
}
macro_rules! home {
    (row) => {
        false
    };
    (standalone) => {
        true
    };
}

kinds! {
    // session
    SessionCreated     "session.created"     Public row { ; name: Option<String>, config: Json, root_agent_id: Option<AgentId> }
    SessionActivated   "session.activated"   Public row { ; root_agent_id: Option<AgentId> }
    SessionPaused      "session.paused"      Public row { ; reason: Option<String>, in_flight: Option<String> }
    SessionResumed     "session.resumed"     Public row { ; reason: Option<String> }
    SessionSuspended   "session.suspended"   Public row { reason: String; budget_info: Json }
    SessionUnsuspended "session.unsuspended" Public row { ; reason: Option<String>, budget: Json }
    SessionClosing     "session.closing"     Public row { ; reason: Option<String> }
    SessionClosed      "session.closed"      Public row { ; final_stats: Json, forced: bool }
    SessionArchived    "session.archived"    Public row { ; location: Option<String>, head_seq: i64, final_hash: Option<String> }
    SessionConfig      "session.config"      Public standalone { ; changes: Json }

    // agent
    AgentSpawning        "agent.spawning"         Public   row { name: String, role: String, model: String; parent_id: Option<AgentId>, config: Json }
    AgentLoaded          "agent.loaded"           Public   row { name: String; origin: Option<String> }
    AgentReady           "agent.ready"            Public   row { ; tools: Vec<String> }
    AgentFailed          "agent.failed"           Public   row { error: String; }
    AgentTerminated      "agent.terminated"       Public   row { reason: String; stats: Json }
    AgentDeleted         "agent.deleted"          Public   row { ; reason: Option<String> }
    AgentMessage         "agent.message"          Internal row { from_agent_id: AgentId, to_agent_id: AgentId, content: String; message_id: Option<MessageId> }
    AgentMessageReceived "agent.message_received" Public   row { message_id: MessageId, source: String; content: String, mode: Option<String>, broadcast_id: Option<String> }
    AgentBudgetExhausted "agent.budget_exhausted" Public   row { kind: String, used: i64, limit: i64; }
    AgentDriveStarted    "agent.drive_started"    Public   row { ; reason: Option<String>, relaunched_from: Option<String> }
    AgentDriveIdled      "agent.drive_idled"      Public   row { reason: String; needs_attention: bool }
    AgentDriveStopped    "agent.drive_stopped"    Public   row { ; reason: Option<String> }
    AgentDriveErrored    "agent.drive_errored"    Public   row { last_error: String; error_type: Option<String> }
    AgentDriveRecovered  "agent.drive_recovered"  Internal row { ; worker: Option<String>, nudge_count: i64 }
    AgentNudged          "agent.nudged"           Internal row { n: i64; }

    // turn
    TurnQueued            "turn.queued"              Public   row { cause: String; number: i64, message_ids: Vec<MessageId>, input: Option<String> }
    TurnStarted           "turn.started"             Public   row { attempt: i64; cause: Option<String>, inputs: Vec<TurnInput>, model: Option<String>, prompt_epoch: Option<MessageId>, worker: Option<String> }
    TurnAssistantDelta    "turn.assistant_delta"     Public   row { content: String; index: i64 }
    TurnAssistantFinal    "turn.assistant_final"     Public   row { content: String; reasoning: Option<String> }
    TurnUsage             "turn.usage"               Public   row { input_tokens: u64, output_tokens: u64; estimated: bool }
    TurnToolCallsReceived "turn.tool_calls_received" Public   row { call_ids: Vec<CallId>; content: Option<String>, reasoning: Option<String> }
    TurnToolsFinished     "turn.tools_finished"      Public   row { ; results: Vec<CallSummary> }
    TurnControlRequested  "turn.control_requested"   Internal row { action: String; reason: Option<String>, message_id: Option<MessageId> }
    TurnCompleted         "turn.completed"           Public   row { usage: Usage; final_output: Option<String>, finish_reason: Option<String>, iterations: i64 }
    TurnInterrupted       "turn.interrupted"         Public   row { reason: String; partial_output: Option<String>, forced: bool }
    TurnError             "turn.error"               Public   row { error_type: String, message: String; partial_output: Option<String> }
    TurnRecovered         "turn.recovered"           Public   row { attempt: i64, epoch: i64; reason: Option<String>, partial_output: Option<String> }

    // tool call
    ToolCall              "tool.call"               Public   row { tool_name: String; arguments: Json, provenance: Option<String>, digest: Option<String>, step_id: Option<StepId>, provider_call_id: Option<String> }
    ToolApprovalRequested "tool.approval_requested" Public   row { policy_reason: String; digest: Option<String>, expires_at: Option<String> }
    ToolApproved          "tool.approved"           Public   row { approver: String; digest: Option<String> }
    ToolDenied            "tool.denied"             Public   row { reason: String; by: Option<String> }
    ToolStarted           "tool.started"            Internal row { attempt: i64; runner: Option<String> }
    ToolReclaimed         "tool.reclaimed"          Public   row { attempt: i64; idempotency_key: Option<String> }
    ToolProgress          "tool.progress"           Public   row { chunk: String; stream: Option<String> }
    ToolResult            "tool.result"             Public   row { status: ResultStatus; output: Json, error: Option<String>, phase: Option<String>, duration_ms: i64, attempt: i64, truncated: bool }
    ToolResolved          "tool.resolved"           Public   row { outcome: String; output: Json, reason: Option<String> }

    // mission
    MissionProposed         "mission.proposed"          Public row { name: String, goal: String; description: Option<String>, success_criteria: Vec<String>, revision: i64, reset_of: Option<MissionId>, asset_ids: Vec<AssetId> }
    MissionApproved         "mission.approved"          Public row { approver: String; revision: i64 }
    MissionChangesRequested "mission.changes_requested" Public row { feedback: String; revision: i64 }
    MissionRevised          "mission.revised"           Public row { revision: i64; changes: Json }
    MissionCompleted        "mission.completed"         Public row { ; early: bool, reason: Option<String> }
    MissionFailed           "mission.failed"            Public row { reason: String; phase: Option<String>, hop_id: Option<HopId>, error: Json }
    MissionCancelled        "mission.cancelled"         Public row { reason: String; }
    MissionRetried          "mission.retried"           Public row { ; hop_id: Option<HopId>, reason: Option<String> }
    MissionReset            "mission.reset"             Public row { new_mission_id: MissionId; reason: Option<String> }
    MissionResumed          "mission.resumed"           Public row { ; hop_id: Option<HopId>, reason: Option<String> }
    MissionTermsChanged     "mission.terms_changed"     Public standalone { revision: i64; changes: Json }
    MissionAttention        "mission.attention"         Public row { reason: String; hop_id: Option<HopId>, error: Json }

    // hop
    HopPlanStarted      "hop.plan_started"      Public row { mission_id: MissionId, sequence_order: i64; }
    HopPlanProposed     "hop.plan_proposed"     Public row { mission_id: MissionId, name: String; author: Option<String>, goal: Option<String>, is_final: bool, revision: i64, inputs: Vec<AssetId>, output: Option<AssetId>, rationale: Option<String> }
    HopPlanApproved     "hop.plan_approved"     Public row { approver: String; revision: i64 }
    HopPlanRejected     "hop.plan_rejected"     Public row { feedback: String; after_accept: bool }
    HopPlanRevised      "hop.plan_revised"      Public row { revision: i64; changes: Json }
    HopImplStarted      "hop.impl_started"      Public row { ; agent_id: Option<AgentId> }
    HopImplProposed     "hop.impl_proposed"     Public row { step_ids: Vec<StepId>; revision: i64 }
    HopImplApproved     "hop.impl_approved"     Public row { approver: String; revision: i64 }
    HopImplRejected     "hop.impl_rejected"     Public row { feedback: String; after_accept: bool }
    HopImplRevised      "hop.impl_revised"      Public row { revision: i64; changes: Json }
    HopImplInvalid      "hop.impl_invalid"      Public row { errors: Vec<String>; }
    HopExecutionStarted "hop.execution_started" Public row { attempt: i64; input_versions: BTreeMap<String, i64> }
    HopCompleted        "hop.completed"         Public row { ; manual: bool, reason: Option<String>, result: Json }
    HopFailed           "hop.failed"            Public row { phase: String; step_id: Option<StepId>, reason: Option<String>, class: Option<String>, error: Json }
    HopCancelled        "hop.cancelled"         Public row { ; reason: Option<String> }
    HopFixed            "hop.fixed"             Public row { phase: String; reason: Option<String> }
    HopRetried          "hop.retried"           Public row { attempt: i64; phase: Option<String>, restart: bool }
    HopReset            "hop.reset"             Public row { ; reason: Option<String> }
    HopArchived         "hop.archived"          Public row { ; reason: Option<String> }
    HopDeleted          "hop.deleted"           Public row { ; reason: Option<String> }

    // tool step
    StepCreated        "step.created"         Public row { hop_id: HopId, sequence_order: i64; name: Option<String>, description: Option<String> }
    StepToolSelected   "step.tool_selected"   Public row { tool_id: String; }
    StepConfigured     "step.configured"      Public row { ; parameter_mapping: Json, result_mapping: Json, resource_configs: Json }
    StepStarted        "step.started"         Public row { attempt: i64; call_id: Option<CallId> }
    StepCompleted      "step.completed"       Public row { ; manual: bool, outputs: Json }
    StepAttemptFailed  "step.attempt_failed"  Public row { attempt: i64, error: String; next_at: Option<String> }
    StepFailed         "step.failed"          Public row { phase: String; error: Option<String>, attempt: i64 }
    StepCancelled      "step.cancelled"       Public row { ; reason: Option<String> }
    StepRetried        "step.retried"         Public row { ; restart: bool, reason: Option<String> }
    StepConfigReopened "step.config_reopened" Public row { ; errors: Vec<String>, tool_cleared: bool }
    StepReset          "step.reset"           Public row { ; reason: Option<String> }
    StepDeleted        "step.deleted"         Public row { ; reason: Option<String> }

    // asset
    AssetProposed            "asset.proposed"             Public row { name: String, role: String; scope: Option<String>, schema: Json, mission_id: Option<MissionId>, hop_id: Option<HopId> }
    AssetAccepted            "asset.accepted"             Public row { ; auto: bool, name: Option<String> }
    AssetRejected            "asset.rejected"             Public row { ; reason: Option<String> }
    AssetRevised             "asset.revised"              Public row { revision: i64; changes: Json }
    AssetProcessingStarted   "asset.processing_started"   Public row { version: i64; step_id: Option<StepId> }
    AssetProcessingCancelled "asset.processing_cancelled" Public row { ; reason: Option<String> }
    AssetReady               "asset.ready"                Public row { version: i64; content_hash: Option<String>, by: Option<String>, bytes: i64 }
    AssetError               "asset.error"                Public row { reason: String; error: Json }
    AssetExpired             "asset.expired"              Public row { ; expires_at: Option<String> }
    AssetReopened            "asset.reopened"             Public row { ; reason: Option<String> }
    AssetRefreshed           "asset.refreshed"            Public row { ; reason: Option<String>, expires_at: Option<String> }
    AssetPromoted            "asset.promoted"             Public row { from_hop: HopId, version: i64; }
    AssetDeleted             "asset.deleted"              Public row { ; reason: Option<String> }

    // plan and task
    PlanGoalReceived    "plan.goal_received"    Public   row { goal: String; hop_id: Option<HopId>, autonomy: Option<String> }
    PlanPlanningStarted "plan.planning_started" Public   row { ; agent_id: Option<AgentId> }
    PlanCreated         "plan.created"          Public   row { tasks: Vec<Json>; }
    PlanUpdated         "plan.updated"          Public   row { changes: Json; iteration: i64 }
    PlanApproved        "plan.approved"         Public   row { approver: String; }
    PlanRejected        "plan.rejected"         Public   row { feedback: String; }
    PlanReviewStarted   "plan.review_started"   Public   row { ; iteration: i64 }
    PlanBlocked         "plan.blocked"          Public   row { ; reason: Option<String> }
    PlanUnblocked       "plan.unblocked"        Public   row { ; task_id: Option<TaskId> }
    PlanCritique        "plan.critique"         Internal row { pass: bool; findings: Vec<Json>, summary: Option<String> }
    PlanGoalMet         "plan.goal_met"         Public   row { ; summary: Option<String> }
    PlanStopped         "plan.stopped"          Public   row { reason: String; }
    PlanTaskAssigned    "plan.task_assigned"    Public   row { agent_id: AgentId; plan_id: Option<PlanId> }
    PlanTaskStarted     "plan.task_started"     Public   row { ; turn_id: Option<TurnId>, attempt: i64 }
    PlanTaskCompleted   "plan.task_completed"   Public   row { result: Json; evidence: Vec<RuneId> }
    PlanTaskFailed      "plan.task_failed"      Public   row { error: String; attempt: i64 }
    PlanTaskBlocked     "plan.task_blocked"     Public   row { ; reason: Option<String>, dependency: Option<TaskId> }
    PlanTaskUnblocked   "plan.task_unblocked"   Public   row { ; reason: Option<String> }
    PlanTaskUpdated     "plan.task_updated"     Public   row { reason: String; attempt: i64 }
    PlanTaskCancelled   "plan.task_cancelled"   Public   row { ; reason: Option<String> }

    // beside the machines
    MemoryCandidate          "memory.candidate"           Internal standalone { ; memory: Json }
    MemoryCommitted          "memory.committed"           Internal standalone { ; memory: Json }
    ConfigUpdated            "config.updated"             Public   standalone { changes: Json; }
    ConfigToolRegistered     "config.tool_registered"     Public   standalone { tool: Json; }
    ConfigToolRemoved        "config.tool_removed"        Public   standalone { name: String; }
    CheckpointCreated        "checkpoint.created"         Public   standalone { checkpoint_id: String; call_id: Option<CallId>, trigger: Option<String> }
    CheckpointRestored       "checkpoint.restored"        Public   standalone { checkpoint_id: String, mode: String; to_seq: i64 }
    SystemInvariantViolation "system.invariant_violation" Internal row { invariant_id: String, severity: String, message: String; context: Json }
    SystemError              "system.error"               Public   standalone { error_type: String, message: String; context: Json }
    SystemGap                "system.gap"                 Internal standalone { earliest_available: i64; }
}
