//! What drives a candidate and answers it: load, viewers, the model; and how its processes are held. It shares the
//! machine with what is measured, so that everything here costs as little as it can.
//!
//! It must not know the candidates.

pub mod child;
pub mod load;
pub mod model;
pub mod talk;
pub mod watch;
pub mod wire;
