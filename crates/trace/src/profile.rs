//! What the objects of a call site touch: measured on a sample, lent to the rest.
//!
//! A recorder that watches pages can watch only objects that have pages of their own: a sample of the small ones. The others borrow
//! the profile of their call site, at their birth, in the proportions measured there. The borrowing is part of reading a
//! trace, so a simulation and a replay of it touch alike, and one event stays one event.

use crate::error::TraceError;
use crate::event::{Birth, Event, Op};
use crate::header::{Footer, Header, Summary};
use crate::source::{BATCH_EVENTS_MAX, EventSource};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// How many watched objects (smaller than a page) of one call site were touched how, over their whole life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteProfile {
    /// The call site; 0 sums up all sites, and serves those without a watched object.
    pub site: u32,
    /// Objects never touched.
    #[serde(default)]
    pub untouched: u64,
    /// Objects only read.
    #[serde(default)]
    pub read: u64,
    /// Objects first written.
    #[serde(default)]
    pub written: u64,
    /// Objects read first and written later.
    #[serde(default)]
    pub read_then_written: u64,
}

impl SiteProfile {
    /// Shares in the order in which they are dealt out.
    fn shares(&self) -> [(Birth, u64); 4] {
        [
            (Birth::All, self.written),
            (Birth::None, self.untouched),
            (Birth::Read, self.read),
            (Birth::ReadThenWrite, self.read_then_written),
        ]
    }
}

/// Deals out the births of one profile so that after any number of objects each share is as close to the measured one as
/// whole objects allow. No random numbers: every reading of a trace deals alike.
#[derive(Clone, Debug)]
struct Dealer {
    shares: [(Birth, u64); 4],
    total: u64,
    /// What each share is owed, in units of 1 / `total` objects.
    owed: [i128; 4],
}

impl Dealer {
    /// `None` for a profile without objects.
    fn new(profile: &SiteProfile) -> Option<Self> {
        let shares = profile.shares();
        let total = shares.iter().try_fold(0u64, |sum, &(_, share)| sum.checked_add(share))?;
        (total > 0).then_some(Dealer { shares, total, owed: [0; 4] })
    }

    fn deal(&mut self) -> Birth {
        for (owed, (_, share)) in self.owed.iter_mut().zip(self.shares) {
            *owed += i128::from(share);
        }
        let most = (0..self.owed.len()).rev().max_by_key(|&at| self.owed[at]).unwrap_or_default();
        self.owed[most] -= i128::from(self.total);
        self.shares[most].0
    }
}

/// A sampled trace in which objects that were not watched have borrowed births. Any other trace passes unchanged.
pub struct Borrowing<S> {
    source: S,
    dealers: HashMap<u32, Dealer>,
    fresh: HashMap<u32, Dealer>,
    batch: Vec<Event>,
}

impl<S: EventSource> Borrowing<S> {
    /// Lends the profiles of the source's footer.
    pub fn new(source: S) -> Self {
        let profiles = source.footer().profiles.iter();
        let fresh: HashMap<_, _> = profiles.filter_map(|profile| Some((profile.site, Dealer::new(profile)?))).collect();
        Borrowing { source, dealers: fresh.clone(), fresh, batch: Vec::with_capacity(BATCH_EVENTS_MAX) }
    }
}

/// The birth of the site's next object that was not watched.
fn lend(dealers: &mut HashMap<u32, Dealer>, site: u32) -> Birth {
    let site = if dealers.contains_key(&site) { site } else { 0 };
    dealers.get_mut(&site).map_or(Birth::None, Dealer::deal)
}

impl<S: EventSource> EventSource for Borrowing<S> {
    fn next_batch(&mut self) -> Result<Option<&[Event]>, TraceError> {
        if self.fresh.is_empty() {
            return self.source.next_batch();
        }
        let Some(batch) = self.source.next_batch()? else { return Ok(None) };
        self.batch.clear();
        self.batch.extend_from_slice(batch);
        for event in &mut self.batch {
            if let Op::Alloc { birth, .. } | Op::Realloc { birth, .. } = &mut event.op
                && *birth == Birth::None
            {
                *birth = lend(&mut self.dealers, event.site.0);
            }
        }
        Ok(Some(&self.batch))
    }

    fn header(&self) -> &Header {
        self.source.header()
    }

    fn checksum(&self) -> Option<u32> {
        self.source.checksum()
    }

    fn summary(&self) -> &Summary {
        self.source.summary()
    }

    fn footer(&self) -> &Footer {
        self.source.footer()
    }

    fn rewind(&mut self) -> Result<(), TraceError> {
        self.dealers.clone_from(&self.fresh);
        self.source.rewind()
    }
}
