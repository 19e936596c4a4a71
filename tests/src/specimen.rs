//! A row that can stand for any machine's entity, for machines whose own table comes later.

use instar_store::{Store, Table};
use sea_orm::ConnectionTrait;
use sea_orm::entity::prelude::*;
use std::sync::LazyLock;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "specimens")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub session_id: Uuid,
    pub status: String,
    pub epoch: i64,
    pub version: i64,
    pub updated_at: DateTimeUtc,
}

impl ActiveModelBehavior for ActiveModel {}

macro_rules! tables {
    ($($name:ident $machine:literal),+ $(,)?) => {
        $(static $name: LazyLock<Table> = LazyLock::new(|| Table::of::<Entity>(&[($machine, "status")], None));)+

        /// The specimen table as the table of this machine's entities.
        pub fn table(machine: &str) -> Option<&'static Table> {
            match machine {
                $($machine => Some(&$name),)+
                _ => None,
            }
        }
    };
}

tables! {
    MISSION "mission", HOP "hop", STEP "tool_step", ASSET "asset", PLAN "plan", TASK "task",
}

pub async fn create(store: &Store) -> anyhow::Result<()> {
    let (uuid, time) = match store.is_postgres() {
        true => ("uuid", "timestamptz"),
        false => ("uuid_text", "timestamp_with_timezone_text"),
    };
    let sql = format!(
        "CREATE TABLE specimens (id {uuid} PRIMARY KEY, session_id {uuid} NOT NULL, status text NOT NULL, \
         epoch bigint NOT NULL, version bigint NOT NULL, updated_at {time} NOT NULL)"
    );
    store.db().execute_unprepared(&sql).await?;
    Ok(())
}
