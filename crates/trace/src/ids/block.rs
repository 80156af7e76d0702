//! Eight calls at once. Which of them are frees determines where each call finds its id, and how the stack of freed ids
//! changes. A table has this for every pattern of frees, so that no step depends on the calls before it.

/// Calls in a block.
pub(super) const CALLS: usize = 8;
/// Entries of the stack that a block can read or write: [`CALLS`] below its top, and as many above.
pub(super) const WINDOW: usize = 2 * CALLS;

/// What a pattern of frees determines.
#[derive(Clone, Copy)]
struct Plan {
    /// By call: the entry of the window that has its id, if the objects of the next frees are above the top.
    ids: [u8; CALLS],
    /// By call: whether the id is live afterwards.
    live_after: [bool; CALLS],
    /// The frees whose objects remain on the stack, by number; the rest has no meaning.
    kept: [u8; CALLS],
    /// Length of `kept`.
    kept_count: u8,
    /// Entries that the allocations take from the former stack.
    taken_count: u8,
    /// Number of frees.
    frees: u8,
}

impl Plan {
    /// The plan of a pattern: bit `n` is set if call `n` is a free.
    const fn of(pattern: u8) -> Plan {
        let mut plan = Plan {
            ids: [0; CALLS],
            live_after: [false; CALLS],
            kept: [0; CALLS],
            kept_count: 0,
            taken_count: 0,
            frees: 0,
        };
        let mut call = 0;
        while call < CALLS {
            if pattern >> call & 1 == 1 {
                plan.ids[call] = CALLS as u8 + plan.frees;
                plan.kept[plan.kept_count as usize] = plan.frees;
                plan.kept_count += 1;
                plan.frees += 1;
            } else {
                plan.live_after[call] = true;
                if plan.kept_count > 0 {
                    plan.kept_count -= 1;
                    plan.ids[call] = CALLS as u8 + plan.kept[plan.kept_count as usize];
                } else {
                    plan.taken_count += 1;
                    plan.ids[call] = CALLS as u8 - plan.taken_count;
                }
            }
            call += 1;
        }
        plan
    }
}

static PLANS: [Plan; 1 << CALLS] = {
    let mut plans = [Plan::of(0); 1 << CALLS];
    let mut pattern = 0;
    while pattern < plans.len() {
        plans[pattern] = Plan::of(pattern as u8);
        pattern += 1;
    }
    plans
};

/// What a block of calls has changed.
pub(super) struct Followed {
    /// Number of frees.
    pub(super) frees: usize,
    /// Entries that the allocations have taken from the former stack.
    pub(super) taken: usize,
    /// Entries that were added afterwards.
    pub(super) added: usize,
}

/// Which calls of a block are frees.
#[derive(Clone, Copy)]
pub(super) struct Frees(u8);

impl Frees {
    /// Frees have the code `free`, allocations lower ones. `None` if there is another call. `free` is below 8.
    #[inline(always)]
    pub(super) fn of(calls: &[u8; CALLS], free: u8) -> Option<Frees> {
        const EACH: u64 = 0x0101_0101_0101_0101;
        // Of the product, the highest byte has the lowest bit of every byte of the other factor.
        const GATHER: u64 = 0x0102_0408_1020_4080;
        let calls = u64::from_le_bytes(*calls);
        let above = calls + EACH * u64::from(0x7F - free);
        let frees = (calls + EACH * u64::from(8 - free)) >> 3 & EACH;
        (above & EACH << 7 == 0).then_some(Frees((frees.wrapping_mul(GATHER) >> 56) as u8))
    }

    /// Performs all calls. If one cannot be performed, returns `None`, and changes no flag and nothing below the top.
    /// `freed` are the objects that the next frees free. `window` is the top of the stack, in its first half, and the
    /// entries above. `live` has a flag for each id that is set while the id is live. `objects` gets the id of each
    /// call.
    #[inline(always)]
    pub(super) fn follow(
        self,
        freed: &[u32; CALLS],
        window: &mut [u32; WINDOW],
        live: &mut [bool],
        objects: &mut [u32; CALLS],
    ) -> Option<Followed> {
        let plan = &PLANS[usize::from(self.0)];
        // The entries below the top are not copied: most were written one by one just before, and the processor would
        // have to wait for them before it could read several at once.
        window[CALLS..].copy_from_slice(freed);
        for call in 0..CALLS {
            objects[call] = window[usize::from(plan.ids[call]) % WINDOW];
        }
        for call in 0..CALLS {
            match live.get_mut(objects[call] as usize) {
                Some(live) if *live != plan.live_after[call] => *live = plan.live_after[call],
                _ => {
                    (0..call).rev().for_each(|call| live[objects[call] as usize] = !plan.live_after[call]);
                    return None;
                }
            }
        }
        let taken = usize::from(plan.taken_count);
        let (first, _) = window[(CALLS - taken) % WINDOW..].split_first_chunk_mut::<CALLS>()?;
        for (entry, &kept) in first.iter_mut().zip(&plan.kept) {
            *entry = freed[usize::from(kept) % CALLS];
        }
        Some(Followed { frees: plan.frees.into(), taken, added: plan.kept_count.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: u8 = 6;

    fn calls_of(pattern: u8, free: u8) -> [u8; CALLS] {
        std::array::from_fn(|call| if pattern >> call & 1 == 1 { free } else { call as u8 % free })
    }

    #[test]
    fn every_pattern_is_recognised() {
        for free in 1..8 {
            for pattern in 0..=u8::MAX {
                let calls = calls_of(pattern, free);
                assert_eq!(Frees::of(&calls, free).unwrap().0, pattern);
                for at in 0..CALLS {
                    let mut other = calls;
                    other[at] = free + 1 + pattern % 20;
                    assert!(Frees::of(&other, free).is_none(), "{other:?}");
                }
            }
        }
    }

    /// The oracle: a stack, call by call.
    #[test]
    fn every_pattern_is_followed() {
        for pattern in 0..=u8::MAX {
            // Ids 0 to 9 are free, and 10 to 17 are live.
            let mut window = std::array::from_fn(|entry| if entry < CALLS { entry as u32 + 2 } else { u32::MAX });
            let mut stack: Vec<u32> = (0..10).collect();
            let mut live: Vec<bool> = (0..18).map(|id| id >= 10).collect();
            let freed = std::array::from_fn(|free| 10 + free as u32);
            let mut upcoming = freed.iter().copied();
            let expected: Vec<u32> = (0..CALLS)
                .map(|call| match pattern >> call & 1 == 1 {
                    true => {
                        let id = upcoming.next().unwrap();
                        stack.push(id);
                        id
                    }
                    false => stack.pop().unwrap(),
                })
                .collect();
            let mut objects = [0; CALLS];
            let frees = Frees::of(&calls_of(pattern, FREE), FREE).unwrap();
            let Followed { frees, taken, added } = frees.follow(&freed, &mut window, &mut live, &mut objects).unwrap();
            assert_eq!(objects.as_slice(), expected, "{pattern:#b}");
            assert_eq!(frees, pattern.count_ones() as usize);
            let mut followed: Vec<u32> = (0..2).collect();
            followed.extend(&window[..CALLS - taken + added]);
            assert_eq!(followed, stack, "{pattern:#b}");
            assert!((0..18).all(|id| live[id as usize] != stack.contains(&id)), "{pattern:#b}");
        }
    }

    #[test]
    fn a_block_with_a_bad_call_changes_nothing() {
        let calls = [FREE, 0, FREE, 0, 1, FREE, FREE, 0];
        let frees = Frees::of(&calls, FREE).unwrap();
        let window_before = std::array::from_fn(|entry| entry as u32);
        // A dead object, one that does not exist, and one that is freed twice.
        for last in [3, 99, 8] {
            let mut window: [u32; WINDOW] = window_before;
            let mut live: Vec<bool> = (0..16).map(|id| id >= 8).collect();
            let mut objects = [0; CALLS];
            let freed = [8, 9, 10, last, 12, 13, 14, 15];
            let freed = if last == 8 { [8, 9, 10, 10, 12, 13, 14, 15] } else { freed };
            assert!(frees.follow(&freed, &mut window, &mut live, &mut objects).is_none());
            assert!((0..16).all(|id| live[id] == (id >= 8)));
            assert_eq!(window[..CALLS], window_before[..CALLS]);
        }
    }
}
