//! A short way to write a table that both databases take.

use instar_core::doc::check_constraint;
use instar_core::machine::Table as Machine;
use sea_orm_migration::prelude::*;

/// A migration named by its file. In a transaction on both databases.
macro_rules! migration {
    ($manager:ident => $body:block) => {
        #[derive(sea_orm_migration::prelude::DeriveMigrationName)]
        pub(crate) struct Migration;

        #[async_trait::async_trait]
        impl sea_orm_migration::MigrationTrait for Migration {
            fn use_transaction(&self) -> Option<bool> {
                Some(true)
            }

            async fn up(&self, $manager: &sea_orm_migration::SchemaManager) -> Result<(), sea_orm::DbErr> {
                $body
            }
        }
    };
}
pub(crate) use migration;

/// The types that Instar's columns have.
#[derive(Clone, Copy)]
pub(crate) enum Type {
    Uuid,
    Text,
    Int,
    Bool,
    Time,
    Json,
    Bytes,
}

pub(crate) use Type::*;

fn column(name: &'static str, kind: Type, null: bool) -> ColumnDef {
    let mut def = ColumnDef::new(name);
    match kind {
        Uuid => def.uuid(),
        Text => def.text(),
        Int => def.big_integer(),
        Bool => def.boolean(),
        Time => def.timestamp_with_time_zone(),
        Json => def.json_binary(),
        Bytes => def.var_binary_none(),
    };
    if null {
        def.null()
    } else {
        def.not_null()
    };
    def
}

trait VarBinary {
    fn var_binary_none(&mut self) -> &mut Self;
}
impl VarBinary for ColumnDef {
    fn var_binary_none(&mut self) -> &mut Self {
        self.custom("bytea_or_blob")
    }
}

pub(crate) struct Draft {
    table: TableCreateStatement,
    name: &'static str,
}

/// A table whose primary key is `key`; columns whose name ends in `?` may be null.
pub(crate) fn table(name: &'static str, key: &[&'static str], columns: &[(&'static str, Type)]) -> Draft {
    let mut table = Table::create();
    table.table(name);
    for (column_name, kind) in columns {
        let (column_name, null) = match column_name.strip_suffix('?') {
            Some(name) => (name, true),
            None => (*column_name, false),
        };
        table.col(column(column_name, *kind, null));
    }
    let mut primary = Index::create();
    for k in key {
        primary.col(*k);
    }
    table.primary_key(primary.primary());
    Draft { table, name }
}

impl Draft {
    pub(crate) fn states(mut self, machine: &'static Machine, column: &str) -> Draft {
        self.table.check(Expr::cust(check_constraint(machine, column)));
        self
    }

    /// Rows that are updated often keep room on their page, so that an update touches no index.
    pub(crate) async fn create(self, manager: &SchemaManager<'_>, updated_often: bool) -> Result<(), DbErr> {
        let postgres = manager.get_database_backend() == sea_orm::DbBackend::Postgres;
        let sql = match manager.get_database_backend() {
            sea_orm::DbBackend::Postgres => {
                self.table.to_string(PostgresQueryBuilder).replace("bytea_or_blob", "bytea")
            }
            _ => self.table.to_string(SqliteQueryBuilder).replace("bytea_or_blob", "blob"),
        };
        manager.get_connection().execute_unprepared(&sql).await?;
        if postgres && updated_often {
            let sql = format!("ALTER TABLE {} SET (fillfactor = 70)", self.name);
            manager.get_connection().execute_unprepared(&sql).await?;
        }
        Ok(())
    }
}

/// A column that a table did not have so far; rows that are there have nothing in it.
pub(crate) async fn add(
    manager: &SchemaManager<'_>,
    table: &'static str,
    name: &'static str,
    kind: Type,
) -> Result<(), DbErr> {
    let alter = Table::alter().table(table).add_column(column(name, kind, true)).to_owned();
    let sql = match manager.get_database_backend() {
        sea_orm::DbBackend::Postgres => alter.to_string(PostgresQueryBuilder).replace("bytea_or_blob", "bytea"),
        _ => alter.to_string(SqliteQueryBuilder).replace("bytea_or_blob", "blob"),
    };
    manager.get_connection().execute_unprepared(&sql).await.map(drop)
}

/// An index, partial when `only` is given; both databases take this form.
pub(crate) async fn index(
    manager: &SchemaManager<'_>,
    name: &str,
    table: &str,
    columns: &str,
    only: Option<&str>,
) -> Result<(), DbErr> {
    let only = only.map(|w| format!(" WHERE {w}")).unwrap_or_default();
    let sql = format!("CREATE INDEX {name} ON {table} ({columns}){only}");
    manager.get_connection().execute_unprepared(&sql).await.map(drop)
}

/// An index that also refuses a second row of the same key.
pub(crate) async fn unique(manager: &SchemaManager<'_>, name: &str, table: &str, columns: &str) -> Result<(), DbErr> {
    let sql = format!("CREATE UNIQUE INDEX {name} ON {table} ({columns})");
    manager.get_connection().execute_unprepared(&sql).await.map(drop)
}

/// The same for the rows of which `only` is true.
pub(crate) async fn unique_where(
    manager: &SchemaManager<'_>,
    name: &str,
    table: &str,
    columns: &str,
    only: &str,
) -> Result<(), DbErr> {
    let sql = format!("CREATE UNIQUE INDEX {name} ON {table} ({columns}) WHERE {only}");
    manager.get_connection().execute_unprepared(&sql).await.map(drop)
}
