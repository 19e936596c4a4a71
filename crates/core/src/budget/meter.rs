//! One limit and what is taken from it.

/// A limit. Nothing here is ever below zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    pub cap: i64,
    pub used: i64,
    /// Set aside for what is under way.
    pub reserved: i64,
}

/// Whether there is room for so much more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Free,
    /// Others have set aside what is left: when they are done, there may be.
    Later,
    /// There is none, whatever the others give back.
    Spent,
}

impl Meter {
    /// What is not used.
    pub const fn remaining(&self) -> i64 {
        let left = self.cap.saturating_sub(self.used);
        if left > 0 { left } else { 0 }
    }

    pub const fn is_spent(&self) -> bool {
        self.used >= self.cap
    }

    /// Whether `need` more would fit.
    pub const fn room(&self, need: i64) -> Room {
        let used = self.used.saturating_add(need);
        match () {
            () if used > self.cap => Room::Spent,
            () if used.saturating_add(self.reserved) > self.cap => Room::Later,
            () => Room::Free,
        }
    }

    /// Sets `n` aside, if anything is left at all: by how much too little is left is not known before the call
    /// is made, and only one can go beyond the limit.
    pub fn reserve(&mut self, n: i64) -> Room {
        let room = self.room(1);
        if room == Room::Free {
            self.reserved = self.reserved.saturating_add(n.max(0));
        }
        room
    }

    /// Books what was really used of what was set aside, be it more or less.
    pub fn settle(&mut self, reserved: i64, used: i64) {
        self.reserved -= reserved;
        self.used = self.used.saturating_add(used);
    }

    /// Counts what is known exactly, if all of it fits.
    pub fn count(&mut self, n: i64) -> Room {
        let room = self.room(n);
        if room == Room::Free {
            self.used += n;
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Reserve(i64),
        /// Which of those under way, and how much of its estimate it used, in hundredths.
        Settle(usize, i64),
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1i64..500).prop_map(Step::Reserve),
            2 => (0usize..50, 0i64..=100).prop_map(|(at, share)| Step::Settle(at, share)),
            1 => (0usize..50).prop_map(Step::Release),
        ]
    }

    proptest! {
        #[test]
        fn never_more_than_the_limit_and_one_estimate(cap in 1i64..5_000, steps in prop::collection::vec(step(), 0..300)) {
            let mut meter = Meter { cap, ..Meter::default() };
            let (mut under_way, mut largest) = (Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Reserve(n) => {
                        let before = meter;
                        match meter.reserve(n) {
                            Room::Free => {
                                under_way.push(n);
                                largest = largest.max(n);
                            }
                            Room::Later => prop_assert!(before == meter && meter.used < cap && meter.reserved > 0),
                            Room::Spent => prop_assert!(before == meter && meter.is_spent()),
                        }
                    }
                    Step::Settle(at, share) if !under_way.is_empty() => {
                        let n = under_way.swap_remove(at % under_way.len());
                        meter.settle(n, n * share / 100);
                    }
                    Step::Release(at) if !under_way.is_empty() => {
                        let n = under_way.swap_remove(at % under_way.len());
                        meter.settle(n, 0);
                    }
                    _ => {}
                }
                prop_assert_eq!(meter.reserved, under_way.iter().sum::<i64>(), "nothing is leaked");
                prop_assert!(meter.used + meter.reserved < cap + largest.max(1), "{:?}", meter);
                prop_assert!(meter.used >= 0 && meter.remaining() >= 0);
            }
            // Whoever has to wait finds room, or an end, when the others are done.
            for n in under_way {
                meter.settle(n, n);
            }
            prop_assert!(meter.reserved == 0 && meter.room(1) != Room::Later);
        }

        #[test]
        fn what_is_counted_never_exceeds_the_limit(cap in 0i64..1_000, counts in prop::collection::vec(1i64..50, 0..100)) {
            let mut meter = Meter { cap, ..Meter::default() };
            for n in counts {
                let fits = meter.used + n <= cap;
                prop_assert_eq!(meter.count(n) == Room::Free, fits);
                prop_assert!(meter.used <= cap);
            }
        }
    }

    #[test]
    fn who_must_wait_is_told_apart_from_who_has_nothing_left() {
        let meter = |used, reserved| Meter { cap: 10, used, reserved };
        assert_eq!(meter(0, 9).room(1), Room::Free);
        assert_eq!(meter(0, 10).room(1), Room::Later);
        assert_eq!(meter(9, 5).room(1), Room::Later);
        assert_eq!(meter(10, 0).room(1), Room::Spent);
        assert_eq!(meter(8, 0).room(3), Room::Spent);
        assert_eq!(meter(i64::MAX, i64::MAX).room(i64::MAX), Room::Spent);
    }
}
