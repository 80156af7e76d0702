//! What page operations do to tracked contents.
//!
//! Policies that share a placement share its contents. The leader's operations change them; a follower may only go on if
//! its own would have changed them in the same way.

use std::ops::Range;

/// A change of contents. Pages and bytes are counted from the start of the reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContentChange {
    /// Pages read as zeros.
    Wiped(Range<u64>),
    /// Bytes are written with zeros.
    Zeroed(Range<u64>),
    /// Pages move to another first page.
    Moved(Range<u64>, u64),
}

/// The effects of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ContentEffects {
    /// In their order.
    pub(super) changes: Vec<ContentChange>,
    /// Whether contents were reported.
    pub(super) reports: bool,
}

impl ContentEffects {
    /// Whether a follower with these effects saw the contents that it would have without the leader, whose effects are
    /// `leader`. A follower's operation comes after the leader's, so it must not report what the leader has changed.
    pub(super) fn agree_with(&self, leader: &ContentEffects) -> bool {
        self.changes == leader.changes && (!self.reports || self.changes.is_empty())
    }
}
