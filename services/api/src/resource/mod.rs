//! The nouns of the API: per noun what its answer looks like and what can be done with it.

pub(crate) mod agent;
pub(crate) mod catalog;
pub(crate) mod command;
pub(crate) mod configure;
pub(crate) mod find;
pub(crate) mod key;
pub(crate) mod machine;
pub(crate) mod message;
pub(crate) mod rune;
pub(crate) mod session;
pub(crate) mod tool_call;
pub(crate) mod turn;
pub(crate) mod wait;
pub(crate) mod wake;
