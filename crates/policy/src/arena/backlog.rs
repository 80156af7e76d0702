//! The decay curve of purges: how much unused memory may stay, by age.
//!
//! With [`PurgeCurve::Smoothstep`](crate::policy::vocabulary::PurgeCurve) a list of unused memory shrinks along a curve
//! over the purge delay, instead of losing each entry when its delay is over. The delay is divided into epochs. At the
//! end of an epoch, the entries that were added in it are counted. Of those that were added `a` epochs ago,
//! `1 - smoothstep(a / EPOCHS)` may stay; their sum, rounded up, is the number of entries that may stay in the list. The
//! oldest are purged first. jemalloc's `dirty_decay_ms` works like this, with pages, 200 epochs and a steeper curve.
//! Rounding up lets a single entry stay for the whole delay: an entry here is a SuperSlab, not a page.

use crate::metadata::field::Field;

/// Epochs of a purge delay.
pub const EPOCHS: usize = 16;

/// The denominator of [`weight`].
const WHOLE: u64 = (EPOCHS * EPOCHS * EPOCHS) as u64;

/// The part of the entries of age `age` (in epochs) that may stay, times [`WHOLE`]: 1 - 3x^2 + 2x^3.
const fn weight(age: usize) -> u64 {
    WHOLE + 2 * (age * age * age) as u64 - (3 * EPOCHS * age * age) as u64
}

/// When the entries of a list were added to it. Valid when zeroed.
#[derive(Default)]
pub struct Backlog {
    /// Start of the current epoch.
    epoch_ns: Field<u64>,
    /// Entries of the list when the epoch began.
    before: Field<u32>,
    /// Entries that were added in each of the last epochs, the newest first.
    added: [Field<u32>; EPOCHS],
}

impl Backlog {
    /// A backlog without entries.
    pub const fn new() -> Backlog {
        Backlog { epoch_ns: Field::new(0), before: Field::new(0), added: [const { Field::new(0) }; EPOCHS] }
    }

    /// If the current epoch is over, begins the next and returns how many entries may stay. `entries` counts those in
    /// the list. The caller then calls [`set_before`](Self::set_before).
    pub(crate) fn allowed(&self, now_ns: u64, delay_ns: u64, entries: impl FnOnce() -> u32) -> Option<u64> {
        let length_ns = (delay_ns / EPOCHS as u64).max(1);
        let ended = now_ns.saturating_sub(self.epoch_ns.get()) / length_ns;
        if ended == 0 {
            return None;
        }
        self.epoch_ns.set(self.epoch_ns.get() + ended * length_ns);
        for age in (0..EPOCHS).rev() {
            let younger = usize::try_from(ended).ok().and_then(|ended| age.checked_sub(ended));
            self.added[age].set(younger.map_or(0, |age| self.added[age].get()));
        }
        self.added[0].set(entries().saturating_sub(self.before.get()));
        let weighted = self.added.iter().enumerate().map(|(age, added)| u64::from(added.get()) * weight(age));
        Some(weighted.sum::<u64>().div_ceil(WHOLE))
    }

    /// Records the number of entries that are left when an epoch begins.
    pub(crate) fn set_before(&self, entries: u32) {
        self.before.set(entries);
    }

    /// All fields, to detect changes.
    pub fn values(&self) -> impl Iterator<Item = u64> + '_ {
        let counts = self.added.iter().chain([&self.before]).map(|count| u64::from(count.get()));
        counts.chain([self.epoch_ns.get()])
    }
}
