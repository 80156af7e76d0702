//! What the objects of a call site, or of a size, touch: measured on a sample, lent to the rest.
//!
//! A recorder that watches pages can watch only objects that have pages of their own: a sample of the small ones. The others borrow
//! the profile of their call site, at their birth, in the proportions measured there; where it has none, that of their size,
//! `calloc` apart: what it returns is often read before it is written, and other memory hardly ever. The borrowing is part of
//! reading a trace, so a simulation and a replay of it touch alike, and one event stays one event.

use crate::error::TraceError;
use crate::event::{AllocCall, Birth, Event, Op, Sides};
use crate::header::{Footer, Header, Summary};
use crate::source::{BATCH_EVENTS_MAX, EventSource};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// How many watched objects (smaller than a page) of one call site or one size class were touched how, over their whole life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteProfile {
    /// The call site; 0 sums up all sites.
    pub site: u32,
    /// The size class, by its largest size in bytes: objects above the next smaller class of the same `zeroed`, as they were
    /// made. 0 sums up all sizes. A class serves objects whose site has no profile, and 0 those beyond all classes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_max: u64,
    /// Of a size class: the objects were made by `calloc`, or none was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub zeroed: bool,
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
    /// Objects among them that lay across two pages and were touched otherwise on the first than on the second, in the order of
    /// [`Sides::ALL`].
    #[serde(default, skip_serializing_if = "are_zero")]
    pub apart: [u64; Sides::ALL.len()],
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn are_zero(numbers: &[u64; Sides::ALL.len()]) -> bool {
    numbers.iter().all(is_zero)
}

impl SiteProfile {
    /// The profile without any object yet of the class of objects of `bytes` bytes, above 0.
    pub fn of_size(bytes: u64, zeroed: bool) -> Self {
        SiteProfile { bytes_max: bytes.next_multiple_of(Self::CLASS_BYTES), zeroed, ..SiteProfile::default() }
    }

    /// Width of a size class as they are recorded: the grain of the sampling, and of most allocators' sizes.
    const CLASS_BYTES: u64 = 16;

    /// Which objects it is about.
    pub fn key(&self) -> (u32, u64, bool) {
        (self.site, self.bytes_max, self.zeroed)
    }

    /// Adds the counts of another profile.
    pub(crate) fn add(&mut self, other: &SiteProfile) {
        self.untouched = self.untouched.saturating_add(other.untouched);
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
        self.read_then_written = self.read_then_written.saturating_add(other.read_then_written);
        for (count, other) in self.apart.iter_mut().zip(other.apart) {
            *count = count.saturating_add(other);
        }
    }

    /// Counts an object that was touched like that.
    pub fn count(&mut self, birth: Birth) {
        let count = match birth.whole() {
            Birth::Read => &mut self.read,
            Birth::All | Birth::FirstByte => &mut self.written,
            Birth::ReadThenWrite => &mut self.read_then_written,
            Birth::None | Birth::Watched | Birth::Apart(_) => &mut self.untouched,
        };
        *count = count.saturating_add(1);
        if let Birth::Apart(sides) = birth {
            self.apart[sides as usize] = self.apart[sides as usize].saturating_add(1);
        }
    }

    /// Profiles whose size classes have other bounds, in order. Classes that became one are added up.
    pub(crate) fn with_sizes(profiles: &[SiteProfile], size: impl Fn(u64) -> u64) -> Vec<SiteProfile> {
        let mut sums: BTreeMap<_, SiteProfile> = BTreeMap::new();
        for profile in profiles {
            let bytes_max = if profile.bytes_max == 0 { 0 } else { size(profile.bytes_max) };
            let kind = SiteProfile { site: profile.site, bytes_max, zeroed: profile.zeroed, ..SiteProfile::default() };
            sums.entry(kind.key()).or_insert(kind).add(profile);
        }
        sums.into_values().collect()
    }

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
/// whole objects allow. Every reading of a trace deals alike.
#[derive(Clone, Debug)]
struct Dealer {
    shares: [(Birth, u64); 4],
    total: u64,
    /// What each share is owed, in units of 1 / `total` objects.
    owed: [i128; 4],
    /// How many of them differ on two pages, and how.
    apart: [u64; Sides::ALL.len()],
    /// Which of a share are given to objects that differ on two pages is random: blocks lie across two pages in a rhythm, too.
    random: u64,
}

impl Dealer {
    /// `None` for a profile without objects.
    fn new(profile: &SiteProfile) -> Option<Self> {
        let shares = profile.shares();
        let total = shares.iter().try_fold(0u64, |sum, &(_, share)| sum.checked_add(share))?;
        (total > 0).then_some(Dealer { shares, total, owed: [0; 4], apart: profile.apart, random: 1 })
    }

    fn deal(&mut self) -> Birth {
        for (owed, (_, share)) in self.owed.iter_mut().zip(self.shares) {
            *owed += i128::from(share);
        }
        let most = (0..self.owed.len()).rev().max_by_key(|&at| self.owed[at]).unwrap_or_default();
        self.owed[most] -= i128::from(self.total);
        let (whole, share) = self.shares[most];
        self.sides_of(whole, share).map_or(whole, Birth::Apart)
    }

    /// The sides of the next object among those of a share; `None` if it was touched alike on both pages.
    fn sides_of(&mut self, whole: Birth, share: u64) -> Option<Sides> {
        if are_zero(&self.apart) {
            return None;
        }
        // Knuth's MMIX generator; the high bits are good.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut left = ((u128::from(self.random) * u128::from(share)) >> 64) as u64;
        let of_share = Sides::ALL.into_iter().filter(|&sides| Birth::Apart(sides).whole() == whole);
        for sides in of_share {
            match left.checked_sub(self.apart[sides as usize]) {
                Some(rest) => left = rest,
                None => return Some(sides),
            }
        }
        None
    }
}

/// One dealer per profile.
#[derive(Clone, Debug, Default)]
struct Dealers {
    /// By call site; 0 is for all.
    sites: HashMap<u32, Dealer>,
    /// By largest size, ascending, for all sites: of objects not made by `calloc`, and of those that were.
    sizes: [Vec<(u64, Dealer)>; 2],
}

impl Dealers {
    fn new(profiles: &[SiteProfile]) -> Self {
        let mut dealers = Dealers::default();
        for profile in profiles {
            let Some(dealer) = Dealer::new(profile) else { continue };
            match profile.bytes_max {
                0 => drop(dealers.sites.insert(profile.site, dealer)),
                bytes_max => dealers.sizes[usize::from(profile.zeroed)].push((bytes_max, dealer)),
            }
        }
        dealers.sizes.iter_mut().for_each(|sizes| sizes.sort_by_key(|(bytes_max, _)| *bytes_max));
        dealers
    }

    fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.sizes.iter().all(Vec::is_empty)
    }

    /// The birth of the next object that was not watched, of such a site and size.
    fn lend(&mut self, site: u32, bytes: u64, zeroed: bool) -> Birth {
        if site != 0
            && let Some(dealer) = self.sites.get_mut(&site)
        {
            return dealer.deal();
        }
        let sizes = &mut self.sizes[usize::from(zeroed)];
        let class = sizes.partition_point(|(bytes_max, _)| *bytes_max < bytes);
        let dealer = sizes.get_mut(class).map(|(_, dealer)| dealer).or_else(|| self.sites.get_mut(&0));
        dealer.map_or(Birth::None, Dealer::deal)
    }
}

/// A sampled trace in which objects that were not watched have borrowed births. Any other trace passes unchanged.
pub struct Borrowing<S> {
    source: S,
    dealers: Dealers,
    fresh: Dealers,
    batch: Vec<Event>,
}

impl<S: EventSource> Borrowing<S> {
    /// Lends the profiles of the source's footer.
    pub fn new(source: S) -> Self {
        let fresh = Dealers::new(&source.footer().profiles);
        Borrowing { source, dealers: fresh.clone(), fresh, batch: Vec::with_capacity(BATCH_EVENTS_MAX) }
    }
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
            let zeroed = matches!(event.op, Op::Alloc { call: AllocCall::Calloc, .. });
            let is_resize = matches!(event.op, Op::Realloc { .. });
            if let Op::Alloc { birth, size, .. } | Op::Realloc { birth, size, .. } = &mut event.op
                && *birth == Birth::None
            {
                *birth = self.dealers.lend(event.site.0, *size, zeroed);
                // Where the boundary lies in what a resize added was not measured.
                if is_resize {
                    *birth = birth.whole();
                }
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
