//! Touch profiles: how the objects of a call site or size class are accessed, measured on a sample and applied to the
//! rest.
//!
//! A recorder that watches pages can watch only objects on their own pages, so it watches a sample of the small
//! objects. Every other object is assigned an initial touch from the profile of its call site, in the measured
//! proportions. If the site has no profile, the profile of the size class is used. Blocks from `calloc` have their own
//! classes: they are often read before they are written, other blocks hardly ever. Profiles are applied while a trace
//! is read. So simulation and replay perform the same touches, and the number of events does not change.

use crate::error::TraceError;
use crate::event::{AllocCall, Event, InitialTouch, Op, PageTouches};
use crate::header::{Footer, Header, Summary};
use crate::hkt::Batch;
use crate::source::{BATCH_EVENTS_MAX, EventSource, copy_next};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Counts the watched objects (smaller than a page) of one call site or size class by how they were accessed in their
/// lifetime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteProfile {
    /// The call site; 0 for all sites.
    pub site: u32,
    /// The size class, given by its largest requested size in bytes at allocation. It begins above the next smaller
    /// class with the same `zeroed`. A class is used for objects whose site has no profile. 0 means all sizes and is
    /// used for objects larger than all classes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_max: u64,
    /// For a size class: whether its objects were allocated by `calloc`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub zeroed: bool,
    /// Objects never accessed.
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
    /// Of all these objects, those that span two pages and were accessed differently on each, in the order of
    /// [`PageTouches::ALL`].
    #[serde(default, skip_serializing_if = "are_zero")]
    pub apart: [u64; PageTouches::ALL.len()],
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn are_zero(numbers: &[u64; PageTouches::ALL.len()]) -> bool {
    numbers.iter().all(is_zero)
}

impl SiteProfile {
    /// An empty profile for the size class of `bytes` bytes, above 0.
    pub fn of_size(bytes: u64, zeroed: bool) -> Self {
        SiteProfile { bytes_max: bytes.next_multiple_of(Self::CLASS_BYTES), zeroed, ..SiteProfile::default() }
    }

    /// Width of a recorded size class: the granularity of the sampling and of most allocators' size classes.
    const CLASS_BYTES: u64 = 16;

    /// Which objects the profile is for: site, largest size, `calloc`.
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

    /// Counts one object.
    pub fn count(&mut self, initial_touch: InitialTouch) {
        let count = match initial_touch.whole() {
            InitialTouch::Read => &mut self.read,
            InitialTouch::All | InitialTouch::FirstByte => &mut self.written,
            InitialTouch::ReadThenWrite => &mut self.read_then_written,
            InitialTouch::None | InitialTouch::Watched | InitialTouch::PerPage(_) => &mut self.untouched,
        };
        *count = count.saturating_add(1);
        if let InitialTouch::PerPage(sides) = initial_touch {
            self.apart[sides as usize] = self.apart[sides as usize].saturating_add(1);
        }
    }

    /// The profiles with the bounds of their size classes replaced by `size`, in order. Classes with equal bounds are
    /// summed.
    pub(crate) fn with_sizes(profiles: &[SiteProfile], size: impl Fn(u64) -> u64) -> Vec<SiteProfile> {
        let mut sums: BTreeMap<_, SiteProfile> = BTreeMap::new();
        for profile in profiles {
            let bytes_max = if profile.bytes_max == 0 { 0 } else { size(profile.bytes_max) };
            let kind = SiteProfile { site: profile.site, bytes_max, zeroed: profile.zeroed, ..SiteProfile::default() };
            sums.entry(kind.key()).or_insert(kind).add(profile);
        }
        sums.into_values().collect()
    }

    /// Objects per initial touch. If two are equally due, the earlier one comes first.
    fn shares(&self) -> [(InitialTouch, u64); 4] {
        [
            (InitialTouch::All, self.written),
            (InitialTouch::None, self.untouched),
            (InitialTouch::Read, self.read),
            (InitialTouch::ReadThenWrite, self.read_then_written),
        ]
    }
}

/// Assigns the initial touches of one profile in the measured proportions. After any number of objects, each share is
/// as close to its proportion as whole objects allow. The result is the same each time a trace is read.
#[derive(Clone, Debug)]
struct Apportioner {
    shares: [(InitialTouch, u64); 4],
    total: u64,
    /// How many objects each share still has to receive, in units of 1 / `total`.
    credits: [i128; 4],
    /// Objects that differ between two pages.
    apart: [u64; PageTouches::ALL.len()],
    /// Random state, to select the objects that differ between two pages. Blocks span two pages at regular intervals,
    /// which a regular selection could follow or miss.
    random: u64,
}

impl Apportioner {
    /// `None` for a profile without objects.
    fn new(profile: &SiteProfile) -> Option<Self> {
        let shares = profile.shares();
        let total = shares.iter().try_fold(0u64, |sum, &(_, share)| sum.checked_add(share))?;
        (total > 0).then_some(Apportioner { shares, total, credits: [0; 4], apart: profile.apart, random: 1 })
    }

    fn next(&mut self) -> InitialTouch {
        for (credits, (_, share)) in self.credits.iter_mut().zip(self.shares) {
            *credits += i128::from(share);
        }
        let most = (0..self.credits.len()).rev().max_by_key(|&at| self.credits[at]).unwrap_or_default();
        self.credits[most] -= i128::from(self.total);
        let (whole, share) = self.shares[most];
        self.sides_of(whole, share).map_or(whole, InitialTouch::PerPage)
    }

    /// The page touches of the next object of a share; `None` if both pages are accessed alike.
    fn sides_of(&mut self, whole: InitialTouch, share: u64) -> Option<PageTouches> {
        if are_zero(&self.apart) {
            return None;
        }
        // Knuth's MMIX generator. The multiplication below uses its high bits, as the low ones are less random.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut left = ((u128::from(self.random) * u128::from(share)) >> 64) as u64;
        let of_share = PageTouches::ALL.into_iter().filter(|&sides| InitialTouch::PerPage(sides).whole() == whole);
        for sides in of_share {
            match left.checked_sub(self.apart[sides as usize]) {
                Some(rest) => left = rest,
                None => return Some(sides),
            }
        }
        None
    }
}

/// One apportioner per profile.
#[derive(Clone, Debug, Default)]
struct Apportioners {
    /// By call site; 0 for all sites.
    sites: HashMap<u32, Apportioner>,
    /// By largest size, ascending, for all sites: first without `calloc`, then `calloc`.
    sizes: [Vec<(u64, Apportioner)>; 2],
}

impl Apportioners {
    fn new(profiles: &[SiteProfile]) -> Self {
        let mut apportioners = Apportioners::default();
        for profile in profiles {
            let Some(apportioner) = Apportioner::new(profile) else { continue };
            match profile.bytes_max {
                0 => drop(apportioners.sites.insert(profile.site, apportioner)),
                bytes_max => apportioners.sizes[usize::from(profile.zeroed)].push((bytes_max, apportioner)),
            }
        }
        apportioners.sizes.iter_mut().for_each(|sizes| sizes.sort_by_key(|(bytes_max, _)| *bytes_max));
        apportioners
    }

    fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.sizes.iter().all(Vec::is_empty)
    }

    /// The initial touch of the next object of this site and size that was not watched.
    fn next_for(&mut self, site: u32, bytes: u64, zeroed: bool) -> InitialTouch {
        if site != 0
            && let Some(apportioner) = self.sites.get_mut(&site)
        {
            return apportioner.next();
        }
        let sizes = &mut self.sizes[usize::from(zeroed)];
        let class = sizes.partition_point(|(bytes_max, _)| *bytes_max < bytes);
        let apportioner = sizes.get_mut(class).map(|(_, apportioner)| apportioner).or_else(|| self.sites.get_mut(&0));
        apportioner.map_or(InitialTouch::None, Apportioner::next)
    }
}

/// A source in which each object that was not watched has an initial touch from the profiles. Traces without profiles
/// pass unchanged.
pub struct WithProfiles<S> {
    source: S,
    apportioners: Apportioners,
    fresh: Apportioners,
    batch: Vec<Event>,
}

impl<S: EventSource> WithProfiles<S> {
    /// Applies the profiles of the source's footer.
    pub fn new(source: S) -> Self {
        let fresh = Apportioners::new(&source.footer().profiles);
        WithProfiles { source, apportioners: fresh.clone(), fresh, batch: Vec::with_capacity(BATCH_EVENTS_MAX) }
    }
}

impl<S: EventSource> EventSource for WithProfiles<S> {
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
            if let Op::Alloc { initial_touch, size, .. } | Op::Realloc { initial_touch, size, .. } = &mut event.op
                && *initial_touch == InitialTouch::None
            {
                *initial_touch = self.apportioners.next_for(event.site.0, *size, zeroed);
                // The position of the page boundary within the added bytes was not measured.
                if is_resize {
                    *initial_touch = initial_touch.whole();
                }
            }
        }
        Ok(Some(&self.batch))
    }

    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        if self.fresh.is_empty() {
            return self.source.next_into(batch);
        }
        copy_next(self, batch)
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
        self.apportioners.clone_from(&self.fresh);
        self.source.rewind()
    }
}
