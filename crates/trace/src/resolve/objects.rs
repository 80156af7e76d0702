//! The table from address to live object.
//!
//! A used address is usually used again, so its slot is kept when its object is freed. So nearly every call finds its
//! address in one cache line, without any other data-dependent branch. A bucket has the low 32 bits of eight scrambled
//! addresses; the bucket's index gives the other bits, so equal bits mean equal addresses.

use super::address_map::AddressMap;

/// Instead of an id: no object is live at this address.
pub(super) const NO_OBJECT: u32 = u32::MAX;
const SLOTS: usize = 8;
/// Address bits that differ between blocks: below 2^47, in units of 8 bytes.
const KEY_BITS: u32 = 44;
/// With at least this many buckets, index and 32 bits give the whole key.
const BUCKETS_LOG2_MIN: u32 = KEY_BITS - u32::BITS;
/// The table grows from this average number of live objects per bucket on.
const LIVE_PER_BUCKET_MAX: usize = 3;

/// Eight addresses and their objects: one cache line. No address occurs twice, except that unused slots look like the
/// address of bits 0; the first match is used.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Bucket {
    bits: [u32; SLOTS],
    pub(super) ids: [u32; SLOTS],
}

/// The table.
#[derive(Debug)]
pub(super) struct Objects {
    buckets: Vec<Bucket>,
    buckets_log2: u32,
    /// Objects in buckets.
    live: usize,
    /// Objects at ordinary addresses whose bucket is full. Few, as the table grows with the number of live objects.
    overflow: AddressMap,
    /// Objects at other addresses. These can be all objects, if a source has ids instead of addresses or unaligned
    /// blocks. They do not make the buckets grow.
    unusual: AddressMap,
}

/// The bucket of an address, and its bits there.
#[derive(Clone, Copy)]
pub(super) struct Location {
    pub(super) bucket: usize,
    pub(super) bits: u32,
}

/// Whether a block of a common allocator can have this address: 0 < address < 2^47, a multiple of 8.
#[inline(always)]
pub(super) fn is_ordinary(address: u64) -> bool {
    // The rotation moves the bits that must be 0 above the key. Subtracting 1 makes address 0 fail, too.
    address.rotate_right(3).wrapping_sub(1) < (1 << KEY_BITS) - 1
}

impl Bucket {
    const EMPTY: Bucket = Bucket { bits: [0; SLOTS], ids: [NO_OBJECT; SLOTS] };

    /// The slot of an address.
    #[inline(always)]
    pub(super) fn find(&self, bits: u32) -> Option<usize> {
        let found = equal_slots(&self.bits, bits);
        (found != 0).then_some(found.trailing_zeros() as usize % SLOTS)
    }

    /// A slot without a live object.
    fn free_slot(&self, bits: u32) -> Option<usize> {
        // Start anywhere, so that reuse does not always evict the address in the same slot.
        let start = (bits >> 8) as usize;
        (0..SLOTS).map(|slot| (start + slot) % SLOTS).find(|&slot| self.ids[slot] == NO_OBJECT)
    }

    fn put(&mut self, slot: usize, bits: u32, id: u32) {
        self.bits[slot] = bits;
        self.ids[slot] = id;
    }
}

/// A mask of the numbers that equal `bits`; the lowest bit is for the first number.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal_slots(stored: &[u32; SLOTS], bits: u32) -> u32 {
    use std::arch::x86_64 as simd;
    let [a, b, c, d, e, f, g, h] = stored.map(u32::cast_signed);
    // SAFETY: every x86_64 has SSE2.
    let equal = unsafe {
        let wanted = simd::_mm_set1_epi32(bits.cast_signed());
        let low = simd::_mm_cmpeq_epi32(simd::_mm_set_epi32(d, c, b, a), wanted);
        let high = simd::_mm_cmpeq_epi32(simd::_mm_set_epi32(h, g, f, e), wanted);
        let halves = simd::_mm_packs_epi32(low, high);
        simd::_mm_movemask_epi8(simd::_mm_packs_epi16(halves, halves))
    };
    // The mask has each result twice.
    equal.cast_unsigned() & 0xFF
}

/// A mask of the numbers that equal `bits`; the lowest bit is for the first number.
#[cfg(not(target_arch = "x86_64"))]
fn equal_slots(stored: &[u32; SLOTS], bits: u32) -> u32 {
    stored.iter().rev().fold(0, |found, &stored| found << 1 | u32::from(stored == bits))
}

impl Objects {
    pub(super) fn new() -> Self {
        let buckets = vec![Bucket::EMPTY; 1 << BUCKETS_LOG2_MIN];
        Objects {
            buckets,
            buckets_log2: BUCKETS_LOG2_MIN,
            live: 0,
            overflow: AddressMap::new(),
            unusual: AddressMap::new(),
        }
    }

    /// The location of an ordinary address.
    #[inline(always)]
    pub(super) fn locate(buckets_log2: u32, address: u64) -> Location {
        // The multiplier is odd, so different keys stay different. The key is in the upper bits, and so is the product.
        let key = (address << (64 - KEY_BITS - 3)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Location { bucket: (key >> (64 - buckets_log2)) as usize, bits: (key >> (64 - KEY_BITS)) as u32 }
    }

    /// The buckets and the logarithm of their number. After changing them, call [`Objects::count`].
    #[inline(always)]
    pub(super) fn buckets(&mut self) -> (&mut [Bucket], u32) {
        (&mut self.buckets, self.buckets_log2)
    }

    /// Counts objects that were added and removed through [`Objects::buckets`].
    #[inline(always)]
    pub(super) fn count(&mut self, born: usize, dead: usize) {
        self.live = self.live + born - dead;
    }

    pub(super) fn get(&self, address: u64) -> Option<u32> {
        if !is_ordinary(address) {
            return self.unusual.get(address);
        }
        let location = Self::locate(self.buckets_log2, address);
        let bucket = &self.buckets[location.bucket];
        if let Some(slot) = bucket.find(location.bits) {
            return Some(bucket.ids[slot]).filter(|&id| id != NO_OBJECT);
        }
        if self.overflow.is_empty() { None } else { self.overflow.get(address) }
    }

    /// Adds an object. Returns false and changes nothing if one is live at the address.
    #[inline]
    pub(super) fn insert_new(&mut self, address: u64, id: u32) -> bool {
        if !is_ordinary(address) {
            return self.unusual.insert_new(address, id);
        }
        let location = Self::locate(self.buckets_log2, address);
        let bucket = &mut self.buckets[location.bucket];
        match bucket.find(location.bits) {
            Some(slot) if bucket.ids[slot] == NO_OBJECT => {
                bucket.ids[slot] = id;
                self.live += 1;
                true
            }
            Some(_) => false,
            None if !self.overflow.is_empty() && self.overflow.get(address).is_some() => false,
            None => {
                self.insert_first(address, id);
                true
            }
        }
    }

    /// Adds an object at an address that has no slot.
    fn insert_first(&mut self, address: u64, id: u32) {
        if self.live >= self.buckets.len() * LIVE_PER_BUCKET_MAX {
            self.grow();
        }
        let location = Self::locate(self.buckets_log2, address);
        let bucket = &mut self.buckets[location.bucket];
        match bucket.free_slot(location.bits) {
            Some(slot) => {
                bucket.put(slot, location.bits, id);
                self.live += 1;
            }
            None => self.overflow.insert(address, id),
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, address: u64) -> Option<u32> {
        if !is_ordinary(address) {
            return self.unusual.remove(address);
        }
        let location = Self::locate(self.buckets_log2, address);
        let bucket = &mut self.buckets[location.bucket];
        if let Some(slot) = bucket.find(location.bits) {
            let id = std::mem::replace(&mut bucket.ids[slot], NO_OBJECT);
            self.live -= usize::from(id != NO_OBJECT);
            return Some(id).filter(|&id| id != NO_OBJECT);
        }
        if self.overflow.is_empty() { None } else { self.overflow.remove(address) }
    }

    /// All live objects.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        let ids = self.buckets.iter().flat_map(|bucket| bucket.ids).filter(|&id| id != NO_OBJECT);
        ids.chain(self.overflow.iter().chain(self.unusual.iter()).map(|(_, id)| id))
    }

    /// Doubles the buckets: each is split in two by the next bit of the key.
    #[cold]
    fn grow(&mut self) {
        let next_bit = KEY_BITS - self.buckets_log2 - 1;
        let mut buckets = vec![Bucket::EMPTY; 2 * self.buckets.len()];
        for (old, pair) in self.buckets.iter().zip(buckets.chunks_exact_mut(2)) {
            let mut used = [0; 2];
            for (&bits, &id) in old.bits.iter().zip(&old.ids).filter(|&(_, &id)| id != NO_OBJECT) {
                let half = (bits >> next_bit) as usize & 1;
                pair[half].put(used[half], bits, id);
                used[half] += 1;
            }
        }
        self.buckets = buckets;
        self.buckets_log2 += 1;
        let overflow = AddressMap::with_room(self.overflow.len());
        for (address, id) in std::mem::replace(&mut self.overflow, overflow).iter() {
            self.insert_new(address, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::address_map::PROBES;
    use std::collections::HashMap;

    /// Ids of a script, blocks one byte after an ordinary address, and addresses that overfill most buckets.
    #[test]
    fn a_lookup_costs_the_same_however_many_live() {
        for (stride, offset, mask) in [(1, 1, u64::MAX), (33, 0x7f00_0000_0001, u64::MAX), (48, 1 << 40, !(1 << 20))] {
            let mut map = Objects::new();
            PROBES.set(0);
            let objects = 300_000;
            let new = (0..objects).filter(|&id| map.insert_new((offset + u64::from(id) * stride) & mask, id)).count();
            let probes = PROBES.get() / new;
            assert!(probes <= 16, "stride {stride}: {probes} cells looked at per object");
        }
    }

    /// Ordinary addresses, some of which share one bucket, and some that no allocator returns.
    fn address(random: u64, range: u64) -> u64 {
        match random % 16 {
            0 => random >> 8 & 0xFFF | 1,
            1 => 1 << 47 | (random >> 8 & 0xFFF0),
            // Multiples of the inverse of the multiplier, modulo 2^44: all in bucket 0.
            2 | 3 => ((random >> 8) % 40).wrapping_mul(0xF1DE_83E1_9937_733D) << 20 >> 17 & ((1 << 47) - 1),
            _ => (random >> 8) % range * 16 + 0x7f00_0000_0000,
        }
    }

    #[test]
    fn agrees_with_a_hash_map() {
        for range in [300, 60_000] {
            let (mut map, mut oracle) = (Objects::new(), HashMap::new());
            let mut random = 88_172_645_463_325_252u64;
            for step in 0..400_000u32 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let address = address(random, range);
                assert_eq!(map.get(address), oracle.get(&address).copied(), "step {step}");
                if random >> 62 == 0 {
                    assert_eq!(map.remove(address), oracle.remove(&address), "step {step}");
                } else {
                    let new = !oracle.contains_key(&address);
                    assert_eq!(map.insert_new(address, step), new, "step {step}");
                    oracle.entry(address).or_insert(step);
                }
            }
            let mut ids: Vec<u32> = map.ids().collect();
            let mut expected: Vec<u32> = oracle.values().copied().collect();
            ids.sort_unstable();
            expected.sort_unstable();
            assert_eq!(ids, expected);
            assert!(!map.overflow.is_empty() && !map.unusual.is_empty(), "buckets overflow here");
        }
    }
}
