//! Many byte strings that a text may hold, found without looking at each of them.
//!
//! They are kept sorted: those that begin like the text are neighbours, and each byte more narrows them down. Most
//! places in a text are left after one look at their first bytes.

use super::encode::{ESCAPE_BYTES_MAX, Unit, escaped, escapes, meant, plain};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that decide whether a place is worth more than a look.
const OPENING: usize = 4;
/// Bits per string: one innocent place in so many is looked at in vain.
const SPARSE: usize = 16;

/// What a place in a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The beginning of one that ends so many bytes on.
    To(usize),
    /// The text ends before it is certain.
    Open,
    No,
}

impl Found {
    /// The longest of two; an end that is there is more certain than one that may come.
    pub(super) fn or(self, other: Found) -> Found {
        match (self, other) {
            (Found::To(one), Found::To(two)) => Found::To(one.max(two)),
            (Found::To(end), _) | (_, Found::To(end)) => Found::To(end),
            (Found::Open, _) | (_, Found::Open) => Found::Open,
            (Found::No, Found::No) => Found::No,
        }
    }
}

/// Which writing of a byte is preferred where both fit.
#[derive(Clone, Copy)]
enum First {
    Escaped,
    Plain,
}

#[derive(Clone, Default)]
pub(super) struct Forms {
    /// Sorted, each once.
    list: Vec<Arc<[u8]>>,
    /// Whether one may begin with these bytes: never no where one does.
    openings: Vec<u64>,
}

impl Forms {
    pub(super) fn new(mut list: Vec<Arc<[u8]>>) -> Forms {
        list.sort();
        list.dedup();
        list.retain(|form| form.len() >= OPENING);
        let mut forms = Forms { openings: vec![0; (list.len() * SPARSE).next_power_of_two().div_ceil(64)], list };
        for at in 0..forms.list.len() {
            let bit = forms.bit(&forms.list[at]);
            forms.openings[bit / 64] |= 1 << (bit % 64);
        }
        forms
    }

    pub(super) fn list(&self) -> &[Arc<[u8]>] {
        &self.list
    }

    pub(super) fn has(&self, form: &[u8]) -> bool {
        self.list.binary_search_by(|one| (**one).cmp(form)).is_ok()
    }

    fn bit(&self, text: &[u8]) -> usize {
        let opening = text[..OPENING].iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let mixed = opening.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(mixed).unwrap_or_default() % (self.openings.len() * 64)
    }

    fn may_begin(&self, text: &[u8]) -> bool {
        let bit = self.bit(text);
        self.openings[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// The longest that the text begins with as it is.
    pub(super) fn plainly(&self, text: &[u8]) -> Found {
        if self.list.is_empty() || text.len() >= OPENING && !self.may_begin(text) {
            return Found::No;
        }
        let (mut within, mut best) = (0..self.list.len(), Found::No);
        for depth in 0.. {
            if self.ends(&mut within, depth) {
                best = Found::To(depth);
            }
            if within.is_empty() {
                break;
            }
            let Some(byte) = text.get(depth) else { return best.or(Found::Open) };
            within = self.narrow(within, depth, *byte);
        }
        best
    }

    /// The longest that the text begins with, each byte written for itself or escaped.
    pub(super) fn in_any_writing(&self, text: &[u8]) -> Found {
        if self.list.is_empty() {
            return Found::No;
        }
        if text.len() >= OPENING && !text[..OPENING].iter().any(|byte| escapes(*byte)) && !self.may_begin(text) {
            return Found::No;
        }
        let mut doubtful = false;
        let found = self.walk(text, First::Escaped, &mut doubtful);
        if doubtful { found.or(self.walk(text, First::Plain, &mut doubtful)) } else { found }
    }

    /// `doubtful`: a byte that may begin an escape was met, so that the other preference may find another end.
    fn walk(&self, text: &[u8], first: First, doubtful: &mut bool) -> Found {
        let mut best = Found::No;
        // Strings that agree with the text so far: how many of their bytes, and how many of the text's.
        let mut left = vec![(0..self.list.len(), 0, 0)];
        while let Some((mut within, depth, at)) = left.pop() {
            #[cfg(test)]
            STEPS.with(|steps| steps.set(steps.get() + 1));
            if self.ends(&mut within, depth) {
                best = best.or(Found::To(at));
            }
            if within.is_empty() {
                continue;
            }
            let rest = &text[at..];
            let Some(head) = rest.first() else {
                best = best.or(Found::Open);
                continue;
            };
            let mut step = |within: Range<usize>, byte| {
                let (escaped, plain) = (escaped(rest, byte), plain(rest, byte));
                match match first {
                    First::Escaped => either(escaped, plain),
                    First::Plain => either(plain, escaped),
                } {
                    Unit::Is(length) => left.push((within, depth + 1, at + length)),
                    Unit::Ends => best = best.or(Found::Open),
                    Unit::No => {}
                }
            };
            if !escapes(*head) {
                let within = self.narrow(within, depth, *head);
                if !within.is_empty() {
                    step(within, *head);
                }
                continue;
            }
            *doubtful = true;
            if rest.len() < ESCAPE_BYTES_MAX {
                // The text may end within an escape of any byte.
                while !within.is_empty() {
                    let byte = self.list[within.start][depth];
                    let alike = self.narrow(within.clone(), depth, byte);
                    within.start = alike.end;
                    step(alike, byte);
                }
                continue;
            }
            for byte in meant(rest).into_iter().flatten() {
                let within = self.narrow(within.clone(), depth, byte);
                if !within.is_empty() {
                    step(within, byte);
                }
            }
        }
        best
    }

    /// Whether one of these has no more bytes; it is no longer among them then.
    fn ends(&self, within: &mut Range<usize>, depth: usize) -> bool {
        let ends = self.list.get(within.start).is_some_and(|form| within.start < within.end && form.len() == depth);
        within.start += usize::from(ends);
        ends
    }

    /// Those of them that go on with this byte.
    fn narrow(&self, within: Range<usize>, depth: usize, byte: u8) -> Range<usize> {
        let list = &self.list[within.clone()];
        let start = list.partition_point(|form| form[depth] < byte);
        let count = list[start..].partition_point(|form| form[depth] == byte);
        within.start + start..within.start + start + count
    }
}

fn either(first: Unit, other: Unit) -> Unit {
    match (first, other) {
        (Unit::Is(length), _) | (Unit::No | Unit::Ends, Unit::Is(length)) => Unit::Is(length),
        (Unit::Ends, _) | (_, Unit::Ends) => Unit::Ends,
        (Unit::No, Unit::No) => Unit::No,
    }
}

#[cfg(test)]
thread_local! {
    pub(super) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
