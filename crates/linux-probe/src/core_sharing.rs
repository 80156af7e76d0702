//! Whether other work shares the processor core with this thread.
//!
//! A core that runs two hardware threads divides its execution units between them. In a virtual machine the other one may belong to
//! another machine, which no clock and no figure of the kernel shows: the same instructions then take up to twice as long. What
//! shows it is how many additions that do not wait for each other the core executes in a cycle. Additions that wait for each
//! other take a cycle each in any case, and so measure the cycle: on Zen 3, 3.8 additions a cycle alone, and 2.0 to 3.5 beside other work,
//! which came and went within milliseconds.

use std::time::{Duration, Instant};

/// Additions of a chain, which wait for each other. A loop of one addition can take two cycles a round, depending on where its
/// instructions lie.
pub const CHAIN: u64 = 32;
/// Additions of a repetition that do not: two to each of eight registers.
const INDEPENDENT: u32 = 16;
/// Repetitions of a look: some 2000 cycles, twice, and 4000 additions between. All of it takes about 2 us.
const CHAINS: u64 = 60;
const INDEPENDENT_TIMES: u32 = 500;
/// A core executes at least this share of the fastest additions if it has no other work.
const ALONE_SHARE: f32 = 0.96;
/// Looks are counted in steps of a 50th of an addition per cycle, up to 16.
const STEPS_PER_ADDITION: f32 = 50.0;
const STEPS: usize = 16 * STEPS_PER_ADDITION as usize;
/// Of so many looks, one may be too fast, because the thread was interrupted while the cycle was measured.
const LOOKS_PER_OUTLIER: u32 = 100;

/// Adds one, [`CHAIN`] times: as many cycles.
#[inline(always)]
pub fn chain(mut sum: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes its own register and the flags.
    unsafe {
        std::arch::asm!(".rept {count}", "add {sum}, 1", ".endr", count = const CHAIN, sum = inout(reg) sum,
            options(pure, nomem, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: changes its own register.
    unsafe {
        std::arch::asm!(".rept {count}", "add {sum}, {sum}, #1", ".endr", count = const CHAIN, sum = inout(reg) sum,
            options(pure, nomem, nostack));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    for _ in 0..CHAIN {
        sum = std::hint::black_box(sum + 1);
    }
    sum
}

/// Adds one to each of eight registers, twice.
#[inline(always)]
fn independent() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes its own registers and the flags.
    unsafe {
        std::arch::asm!(".rept 2", "add {a}, 1", "add {b}, 1", "add {c}, 1", "add {d}, 1", "add {e}, 1", "add {f}, 1",
            "add {g}, 1", "add {h}, 1", ".endr", a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
            e = out(reg) _, f = out(reg) _, g = out(reg) _, h = out(reg) _, options(nomem, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: changes its own registers.
    unsafe {
        std::arch::asm!(".rept 2", "add {a}, {a}, #1", "add {b}, {b}, #1", "add {c}, {c}, #1", "add {d}, {d}, #1",
            "add {e}, {e}, #1", "add {f}, {f}, #1", "add {g}, {g}, #1", "add {h}, {h}, #1", ".endr", a = out(reg) _,
            b = out(reg) _, c = out(reg) _, d = out(reg) _, e = out(reg) _, f = out(reg) _, g = out(reg) _,
            h = out(reg) _, options(nomem, nostack));
    }
}

/// Additions that the core executes in a cycle for this thread now: a look of some 2 us. Always 1 on processors other than x86-64
/// and AArch64.
pub fn additions_per_cycle() -> f32 {
    if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
        return 1.0;
    }
    let chains = || {
        let begun = Instant::now();
        std::hint::black_box((0..CHAINS).fold(std::hint::black_box(1), |sum, _| chain(sum)));
        begun.elapsed()
    };
    let before = chains();
    let begun = Instant::now();
    (0..INDEPENDENT_TIMES).for_each(|_| independent());
    let additions = begun.elapsed();
    // An interruption makes one of the two longer.
    let cycle_ns = before.min(chains()).as_nanos() as f32 / (CHAIN * CHAINS) as f32;
    cycle_ns * (INDEPENDENT * INDEPENDENT_TIMES) as f32 / additions.as_nanos().max(1) as f32
}

/// Looks at the core, and what they found. "Alone" is as fast as the fastest looks: if other work never pauses, it cannot be told from
/// a slower core.
#[derive(Clone, Debug)]
pub struct CoreWatch {
    /// Looks by the number of steps of additions per cycle.
    looks: Box<[u32; STEPS]>,
    total: u32,
    /// At least so many additions per cycle are executed alone, as was found before.
    known: f32,
}

impl Default for CoreWatch {
    fn default() -> CoreWatch {
        CoreWatch { looks: Box::new([0; STEPS]), total: 0, known: 0.0 }
    }
}

impl CoreWatch {
    /// Looks of which it is known from others that the core is not alone below `alone_from` additions per cycle.
    pub fn knowing(alone_from: f32) -> CoreWatch {
        CoreWatch { known: alone_from, ..CoreWatch::default() }
    }

    /// Looks once, and counts that.
    pub fn look(&mut self) -> f32 {
        let found = additions_per_cycle();
        self.note(found);
        found
    }

    /// Counts a look.
    pub fn note(&mut self, additions_per_cycle: f32) {
        self.looks[((additions_per_cycle * STEPS_PER_ADDITION) as usize).min(STEPS - 1)] += 1;
        self.total += 1;
    }

    /// Additions per cycle from which on the core is this thread's alone, as far as all looks so far can tell.
    pub fn alone_from(&self) -> f32 {
        let mut faster = 0;
        let of_fast = |&(_, &looks): &(usize, &u32)| {
            faster += looks;
            faster > self.total / LOOKS_PER_OUTLIER
        };
        let fastest = self.looks.iter().enumerate().rev().find(of_fast).map_or(0, |(step, _)| step);
        (fastest as f32 / STEPS_PER_ADDITION * ALONE_SHARE).max(self.known)
    }

    /// Whether a look found the core to be alone, by [`CoreWatch::alone_from`].
    pub fn is_alone(&self, additions_per_cycle: f32) -> bool {
        additions_per_cycle >= self.alone_from()
    }

    /// Looks until the core is alone, for this time at most. Only the first look is counted: while other work is there, there are more
    /// looks. Returns the last one.
    pub fn wait(&mut self, time_max: Duration) -> f32 {
        let begun = Instant::now();
        let mut found = self.look();
        while !self.is_alone(found) && begun.elapsed() < time_max {
            found = additions_per_cycle();
        }
        found
    }

    /// Number of looks.
    pub fn looks(&self) -> u32 {
        self.total
    }

    /// The share of looks that found other work; `None` without looks.
    pub fn shared_share(&self) -> Option<f64> {
        let from = (self.alone_from() * STEPS_PER_ADDITION) as usize;
        let shared: u32 = self.looks[..from].iter().sum();
        (self.total > 0).then(|| f64::from(shared) / f64::from(self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_judged_by_the_fastest_but_for_outliers() {
        let mut watch = CoreWatch::default();
        assert_eq!(watch.shared_share(), None);
        (0..300).for_each(|_| watch.note(2.4));
        assert!(watch.is_alone(2.4), "nothing faster was seen");
        assert_eq!(watch.shared_share(), Some(0.0));
        (0..97).for_each(|_| watch.note(3.8));
        (0..3).for_each(|_| watch.note(11.0));
        assert!(watch.is_alone(3.7) && !watch.is_alone(3.5), "from {}", watch.alone_from());
        assert_eq!((watch.shared_share(), watch.looks()), (Some(0.75), 400));
        let mut other = CoreWatch::knowing(watch.alone_from());
        other.note(2.4);
        assert!(!other.is_alone(2.4));
        assert_eq!(other.shared_share(), Some(1.0));
    }

    /// Whatever else the machine does: a look is never above the 16 additions of all processors of today, and dependent additions
    /// cannot be faster than independent ones.
    #[test]
    fn a_look_finds_a_possible_number_of_additions() {
        let mut looks: Vec<f32> = (0..201).map(|_| additions_per_cycle()).collect();
        looks.sort_by(f32::total_cmp);
        let median = looks[100];
        assert!((0.9..16.0).contains(&median), "{looks:?}");
    }

    #[test]
    fn waiting_counts_one_look_and_ends() {
        let mut watch = CoreWatch::default();
        (0..100).for_each(|_| watch.note(15.9));
        let begun = Instant::now();
        let found = watch.wait(Duration::from_millis(3));
        assert!(begun.elapsed() >= Duration::from_millis(3) || watch.is_alone(found), "{found}");
        assert_eq!(watch.looks(), 101);
    }
}
