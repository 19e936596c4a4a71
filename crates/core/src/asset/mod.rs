//! What an asset's value is: its schema, its bytes and their hash, and from what it was made.
//!
//! Pure: where content is kept, and when it expires, is for the store and the services to know.

pub mod content;
pub mod lineage;
mod schema;

pub use schema::{DEPTH_MAX, FIELDS_MAX, Misfit, Schema, Type};

/// What an asset is to the mission or hop that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Read.
    Input,
    /// Promised.
    Output,
    /// Made on the way.
    Intermediate,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Input, Role::Output, Role::Intermediate];

    pub const fn token(self) -> &'static str {
        match self {
            Role::Input => "input",
            Role::Output => "output",
            Role::Intermediate => "intermediate",
        }
    }

    pub fn parse(token: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.token() == token)
    }
}
