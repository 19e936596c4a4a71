//! An agent: two machines, one row; idle, it costs nothing else.

use crate::table::Table;
use instar_core::decide::{Approval, Scope};
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "agents")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub name: String,
    pub role: String,
    pub model: String,
    pub lifecycle: String,
    pub drive: String,
    /// Fencing epoch: grows with every change of owner.
    pub epoch: i64,
    pub version: i64,
    /// Worker that owns it while it is in a turn.
    pub owner: Option<Uuid>,
    pub parent_id: Option<Uuid>,
    pub nudge_count: i64,
    /// Turns in a row that letters of other agents have caused, since the last word of a person.
    pub letter_count: Option<i64>,
    /// Turns in a row that passed their deadline.
    pub late_count: Option<i64>,
    /// What it has caused itself on the day on which it last did.
    #[sea_orm(column_type = "JsonBinary", nullable)]
    pub today: Option<Json>,
    pub last_error: Option<String>,
    #[sea_orm(column_type = "JsonBinary")]
    pub config: Json,
    #[sea_orm(column_type = "JsonBinary")]
    pub usage: Json,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
}

impl Model {
    /// Names and patterns of the tools it may use.
    pub fn tools(&self) -> Vec<String> {
        let names = self.config["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
    }

    /// Why its policy has no call with these arguments: they name a path or a host outside of it.
    pub fn outside(&self, arguments: &Json) -> Option<String> {
        match Scope::read(self.config.get("policy")?) {
            Ok(scope) => scope.outside(arguments),
            // What cannot be read allows nothing.
            Err(_) => Some("the agent's policy cannot be read: a person has to correct it".into()),
        }
    }

    /// What its own policy says of calls of this tool.
    pub fn approval_of(&self, tool: &str) -> Approval {
        match self.config.get("tool_approvals").and_then(|tools| tools.get(tool)) {
            None | Some(Json::Null) => Approval::Inherit,
            // What cannot be read asks.
            Some(said) => serde_json::from_value(said.clone()).unwrap_or(Approval::Always),
        }
    }
}

impl ActiveModelBehavior for ActiveModel {}

pub static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::of::<Entity>(&[("agent_lifecycle", "lifecycle"), ("agent_drive", "drive")], None));
