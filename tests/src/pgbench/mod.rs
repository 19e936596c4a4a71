//! One transition, by our writer and by pgbench: the same rows change in the same way.

pub mod peer;
pub mod writer;

pub const SESSIONS: usize = 8_192;

/// What one measurement gave.
#[derive(Clone, Copy, Default)]
pub struct Figure {
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub wal_bytes: f64,
    pub transactions_per_transition: f64,
}

impl Figure {
    pub fn best(self, other: Figure) -> Figure {
        if other.per_second > self.per_second { other } else { self }
    }
}
