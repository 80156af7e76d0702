//! Whether other work shares the processor core with this thread.
//!
//! A core that runs two hardware threads divides its execution units between them. In a virtual machine the other one may belong to
//! another machine, which no clock and no figure of the kernel shows: the same instructions then take up to twice as long. What
//! shows it is how many additions that do not wait for each other the core executes in a cycle. Additions that wait for each
//! other take a cycle each in any case, and so measure the cycle: on Zen 3, 3.5 additions a cycle alone, and 2.0 to 3.3 beside other work,
//! which came and went within milliseconds. The cores of a processor must be alike: beside fast ones, slow ones seem shared.

use std::time::{Duration, Instant};

/// Additions of a chain, which wait for each other. A loop of one addition can take two cycles a round, depending on where its
/// instructions lie.
pub const CHAIN: u64 = 32;
/// A core executes at least this share of the fastest additions if it has no other work.
const ALONE_SHARE: f32 = 0.96;
/// Looks are counted in steps of a 50th of an addition per cycle, up to 16.
const STEPS_PER_ADDITION: f32 = 50.0;
const STEPS: usize = 16 * STEPS_PER_ADDITION as usize;
/// Of ten looks, and of each thousand, one may be too fast, because the thread was interrupted while the cycle was measured.
const LOOKS_WITH_OUTLIER: u32 = 10;
const LOOKS_PER_OUTLIER: u32 = 1000;
/// Whether a look shows anything on this processor.
const SHOWS: bool = cfg!(target_arch = "x86_64");

/// Adds one, [`CHAIN`] times: as many cycles. The one is in a register, because some processors add constants without executing
/// anything.
#[inline(always)]
pub fn chain(mut sum: u64) -> u64 {
    let one = std::hint::black_box(1u64);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes its own register and the flags.
    unsafe {
        std::arch::asm!(".rept {count}", "add {sum}, {one}", ".endr", count = const CHAIN, sum = inout(reg) sum,
            one = in(reg) one, options(pure, nomem, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: changes its own register.
    unsafe {
        std::arch::asm!(".rept {count}", "add {sum}, {sum}, {one}", ".endr", count = const CHAIN, sum = inout(reg) sum,
            one = in(reg) one, options(pure, nomem, nostack));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    for _ in 0..CHAIN {
        sum = std::hint::black_box(sum + one);
    }
    sum
}

/// Additions that the core executes in a cycle for this thread now: a look of some 2 us.
#[cfg(target_arch = "x86_64")]
pub fn additions_per_cycle() -> f32 {
    use std::arch::x86_64::_rdtsc;
    use std::hint::black_box;

    /// Chains, of some 2000 cycles, before and after the additions that do not wait.
    const CHAINS: u64 = 60;
    /// Additions of a repetition that do not wait: two to each of seven registers.
    const INDEPENDENT: u64 = 14;
    /// Repetitions: some 2000 cycles alone.
    const TIMES: u64 = 550;
    /// Adds one to each of seven registers, twice.
    #[inline(always)]
    fn independent(one: u64) {
        // SAFETY: changes its own registers and the flags.
        unsafe {
            std::arch::asm!(".rept 2", "add {a}, {one}", "add {b}, {one}", "add {c}, {one}", "add {d}, {one}",
                "add {e}, {one}", "add {f}, {one}", "add {g}, {one}", ".endr", one = in(reg) one, a = out(reg) _,
                b = out(reg) _, c = out(reg) _, d = out(reg) _, e = out(reg) _, f = out(reg) _, g = out(reg) _,
                options(nomem, nostack));
        }
    }
    // The unit of the counter does not matter, and other clocks may have steps of 100 ns.
    // SAFETY: every x86-64 processor has the counter.
    let now = || unsafe { _rdtsc() };
    let chains = || {
        let begun = now();
        black_box((0..CHAINS).fold(black_box(1), |sum, _| chain(sum)));
        now().saturating_sub(begun)
    };
    let (before, one, begun) = (chains(), black_box(1), now());
    (0..TIMES).for_each(|_| independent(one));
    let additions = now().saturating_sub(begun);
    // An interruption makes one of the two longer.
    let cycle = before.min(chains()) as f32 / (CHAIN * CHAINS) as f32;
    cycle * (INDEPENDENT * TIMES) as f32 / additions.max(1) as f32
}

/// Not known on this processor: it always seems to be alone.
#[cfg(not(target_arch = "x86_64"))]
pub fn additions_per_cycle() -> f32 {
    1.0
}

/// Looks at the core, and what they found. "Alone" is as fast as the fastest looks: if other work never pauses, it cannot be told from
/// a slower core.
#[derive(Clone, Debug)]
pub struct CoreWatch {
    /// All looks by the number of steps of additions per cycle.
    looks: Box<[u32; STEPS]>,
    /// Those that were not made because of what another one found.
    counted: Box<[u32; STEPS]>,
    /// At least so many additions per cycle are executed alone, as was found before.
    known: f32,
}

impl Default for CoreWatch {
    fn default() -> CoreWatch {
        CoreWatch { looks: Box::new([0; STEPS]), counted: Box::new([0; STEPS]), known: 0.0 }
    }
}

impl CoreWatch {
    /// No looks yet. Others have found that the core is not alone below `alone_from` additions per cycle.
    pub fn knowing(alone_from: f32) -> CoreWatch {
        CoreWatch { known: alone_from, ..CoreWatch::default() }
    }

    /// Looks once, and counts that.
    pub fn look(&mut self) -> f32 {
        let found = self.look_again();
        self.counted[step(found)] += 1;
        found
    }

    /// Looks because of what another look found, or right after the core was alone: that says nothing of how often it is.
    pub fn look_again(&mut self) -> f32 {
        let found = additions_per_cycle();
        self.note(found);
        found
    }

    /// Learns from a look of another process.
    pub fn note(&mut self, additions_per_cycle: f32) {
        self.looks[step(additions_per_cycle)] += 1;
    }

    /// Additions per cycle from which on the core is this thread's alone, as far as all looks so far can tell.
    pub fn alone_from(&self) -> f32 {
        let total: u32 = self.looks.iter().sum();
        let outliers = total / LOOKS_PER_OUTLIER + u32::from(total >= LOOKS_WITH_OUTLIER);
        let mut faster = 0;
        let is_fast = |&(_, &looks): &(usize, &u32)| {
            faster += looks;
            faster > outliers
        };
        let fastest = self.looks.iter().enumerate().rev().find(is_fast).map_or(0, |(step, _)| step);
        (fastest as f32 / STEPS_PER_ADDITION * ALONE_SHARE).max(self.known)
    }

    /// Whether a look found the core to be alone, by [`CoreWatch::alone_from`].
    pub fn is_alone(&self, additions_per_cycle: f32) -> bool {
        additions_per_cycle >= self.alone_from()
    }

    /// Looks until the core is alone, for this time at most. Returns the last look.
    pub fn wait(&mut self, time_max: Duration) -> f32 {
        let begun = Instant::now();
        let mut found = self.look_again();
        while !self.is_alone(found) && begun.elapsed() < time_max {
            found = self.look_again();
        }
        found
    }

    /// The share of counted looks that found other work; `None` without any, and on processors where nothing shows it.
    pub fn shared_share(&self) -> Option<f64> {
        let looks: u32 = self.counted.iter().sum();
        let shared: u32 = self.counted[..step(self.alone_from())].iter().sum();
        (SHOWS && looks > 0).then(|| f64::from(shared) / f64::from(looks))
    }
}

fn step(additions_per_cycle: f32) -> usize {
    ((additions_per_cycle * STEPS_PER_ADDITION) as usize).min(STEPS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(watch: &mut CoreWatch, additions_per_cycle: f32, looks: u32) {
        watch.looks[step(additions_per_cycle)] += looks;
        watch.counted[step(additions_per_cycle)] += looks;
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn looks_are_judged_by_the_fastest_but_for_outliers() {
        let mut watch = CoreWatch::default();
        assert_eq!(watch.shared_share(), None);
        counted(&mut watch, 2.4, 300);
        assert!(watch.is_alone(2.4), "nothing faster was seen");
        assert_eq!(watch.shared_share(), Some(0.0));
        counted(&mut watch, 3.8, 99);
        counted(&mut watch, 11.0, 1);
        assert!(watch.is_alone(3.7) && !watch.is_alone(3.5), "from {}", watch.alone_from());
        assert_eq!(watch.shared_share(), Some(0.75));
        (0..500).for_each(|_| watch.note(2.0));
        assert_eq!(watch.shared_share(), Some(0.75), "what was not counted says nothing");
        let mut other = CoreWatch::knowing(watch.alone_from());
        counted(&mut other, 2.4, 1);
        assert!(!other.is_alone(2.4));
        assert_eq!(other.shared_share(), Some(1.0));
    }

    /// Whatever else the machine does: no processor of today executes 16 additions in a cycle.
    #[test]
    fn a_look_finds_a_possible_number_of_additions() {
        let mut looks: Vec<f32> = (0..201).map(|_| additions_per_cycle()).collect();
        looks.sort_by(f32::total_cmp);
        assert!((0.3..16.0).contains(&looks[100]), "{looks:?}");
    }

    #[test]
    fn waiting_ends() {
        let mut watch = CoreWatch::knowing(16.0);
        let begun = Instant::now();
        let found = watch.wait(Duration::from_millis(3));
        assert!(begun.elapsed() >= Duration::from_millis(3) && !watch.is_alone(found), "{found}");
        assert_eq!(watch.shared_share(), None, "no look was counted");
    }
}
