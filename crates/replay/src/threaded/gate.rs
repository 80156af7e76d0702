//! A counter that threads wait for.

use std::sync::atomic::{AtomicU32, Ordering};

/// The flag in the lowest bit, which is set while a thread sleeps.
const SLEEPERS: u32 = 1;
const STEP: u32 = 2;
const SPINS: u32 = 128;
const YIELDS: u32 = 4;

/// A count modulo 2^31 in the upper bits. The lowest bit is set while a thread sleeps until the count changes.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU32);

impl Gate {
    /// The count.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire) / STEP
    }

    /// Sets the count and wakes sleeping threads. Only one thread at a time may call it.
    #[inline]
    pub(crate) fn advance(&self, to: u32) {
        let before = self.0.swap(to.wrapping_mul(STEP), Ordering::AcqRel);
        if before & SLEEPERS != 0 {
            // SAFETY: wakes the waiters on this word, which is live.
            unsafe {
                libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX)
            };
        }
    }

    /// Waits until the count satisfies `wanted`. Spins, then yields, then sleeps.
    #[inline]
    pub(crate) fn wait(&self, wanted: impl Fn(u32) -> bool) {
        for _ in 0..SPINS {
            if wanted(self.count()) {
                return;
            }
            std::hint::spin_loop();
        }
        self.wait_long(&wanted);
    }

    #[cold]
    fn wait_long(&self, wanted: &impl Fn(u32) -> bool) {
        for _ in 0..YIELDS {
            if wanted(self.count()) {
                return;
            }
            std::thread::yield_now();
        }
        loop {
            let seen = self.0.load(Ordering::Acquire);
            if wanted(seen / STEP) {
                return;
            }
            let asleep = seen | SLEEPERS;
            if seen != asleep && self.0.compare_exchange(seen, asleep, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            let flags = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: sleeps only while the word equals `asleep`; there is no timeout.
            unsafe {
                libc::syscall(libc::SYS_futex, self.0.as_ptr(), flags, asleep, std::ptr::null::<libc::timespec>())
            };
        }
    }
}

/// The count after `count`.
#[inline]
pub(crate) fn next(count: u32) -> u32 {
    count.wrapping_add(1) & (u32::MAX / STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_take_turns() {
        const TURNS: u32 = 20_000;
        let (gate, mut total) = (Gate::default(), 0u64);
        let counter = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for parity in 0..2 {
                let (gate, counter) = (&gate, &counter);
                scope.spawn(move || {
                    for turn in (parity..TURNS).step_by(2) {
                        gate.wait(|count| count == turn);
                        // Not an atomic addition, so that overlapping turns change the total.
                        counter.store(counter.load(Ordering::Relaxed) + u64::from(turn), Ordering::Relaxed);
                        gate.advance(next(turn));
                    }
                });
            }
        });
        total += counter.into_inner();
        assert_eq!(total, u64::from(TURNS) * u64::from(TURNS - 1) / 2);
    }

    #[test]
    fn the_count_wraps_to_zero() {
        assert_eq!(next(u32::MAX / STEP), 0);
    }
}
