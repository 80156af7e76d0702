//! Samples whether a thread runs in user mode or in the kernel, 4 000 times per second of its processor time.
//!
//! The kernel's own accounting (`ru_stime`) samples at each tick, 100 to 1 000 times per second. That is too few
//! samples for a run of a few milliseconds. This module also samples at timer interrupts, but more often. Each sample
//! took 12 us in a virtual machine, so measure times in runs without sampling.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::area::thread_time;
use crate::perf::{self, Request};
use crate::ring::{HEADER_BYTES, RECORD_SAMPLE, Ring};

/// Processor time between two samples.
pub const SAMPLE_PERIOD: Duration = Duration::from_micros(250);
/// Bytes of the ring. Records have only a header, so it can store the samples of 16 seconds of one thread.
const RING_BYTES: usize = 512 << 10;
/// `PERF_RECORD_MISC_CPUMODE_MASK`, and two of its values.
const MODE_MASK: u16 = 7;
const MODE_KERNEL: u16 = 1;
const MODE_USER: u16 = 2;

/// Samples of a thread, by mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeSamples {
    /// Samples in the kernel.
    pub kernel: u64,
    /// Samples in user mode.
    pub user: u64,
}

impl ModeSamples {
    /// All samples.
    pub fn total(&self) -> u64 {
        self.kernel + self.user
    }

    /// The kernel's share, 0 to 1; `None` without samples.
    pub fn kernel_share(&self) -> Option<f64> {
        (self.total() > 0).then(|| self.kernel as f64 / self.total() as f64)
    }

    /// The processor time that the samples represent.
    pub fn time(&self) -> Duration {
        SAMPLE_PERIOD.saturating_mul(self.total().try_into().unwrap_or(u32::MAX))
    }

    /// Adds other samples.
    pub fn add(&mut self, more: ModeSamples) {
        self.kernel += more.kernel;
        self.user += more.user;
    }
}

/// Samples the thread that opened it, between [`CpuModes::enable`] and [`CpuModes::disable`].
#[derive(Debug)]
pub struct CpuModes {
    event: OwnedFd,
    ring: Ring,
}

impl CpuModes {
    /// Opens the event, disabled, with the pages of its ring present.
    ///
    /// # Errors
    /// The kernel refuses the event or the ring: usually, `kernel.perf_event_paranoid` is above 1 and the user is not
    /// root.
    pub fn open() -> io::Result<CpuModes> {
        let request = Request {
            kind: perf::TYPE_SOFTWARE,
            config: perf::SOFTWARE_CPU_CLOCK,
            sample_period: SAMPLE_PERIOD.as_nanos() as u64,
            flags: perf::FLAG_DISABLED,
            ..Request::default()
        };
        let event = perf::open(&request, None)?;
        let ring = Ring::map(&event, RING_BYTES)?;
        ring.touch();
        Ok(CpuModes { event, ring })
    }

    /// Starts sampling.
    pub fn enable(&self) {
        perf::enable(&self.event);
    }

    /// Stops sampling.
    pub fn disable(&self) {
        perf::disable(&self.event);
    }

    /// The samples since the last call.
    pub fn take(&mut self) -> ModeSamples {
        let (head, mut tail) = (self.ring.head(), self.ring.tail());
        let mut looks = ModeSamples::default();
        while tail + HEADER_BYTES as u64 <= head {
            let header = self.ring.header(tail);
            if header.kind == RECORD_SAMPLE {
                looks.kernel += u64::from(header.misc & MODE_MASK == MODE_KERNEL);
                looks.user += u64::from(header.misc & MODE_MASK == MODE_USER);
            }
            tail += header.bytes;
        }
        self.ring.release(tail);
        looks
    }
}

/// Spends this much processor time, almost all of it in user mode.
pub fn spin(spent: Duration) {
    let start = thread_time();
    // Read the clock only every few milliseconds, because each reading is a system call.
    while thread_time().saturating_sub(start) < spent {
        std::hint::black_box((0..4_000_000u64).fold(1u64, |sum, n| sum.wrapping_mul(31) ^ std::hint::black_box(n)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_loop_counts_as_user_time_and_zeroing_pages_as_kernel_time() {
        let mut modes = match CpuModes::open() {
            Ok(modes) => modes,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let mut looked = |work: &dyn Fn()| {
            let start = Instant::now();
            modes.take();
            modes.enable();
            while start.elapsed() < Duration::from_millis(150) {
                work();
            }
            modes.disable();
            modes.take()
        };
        let user = looked(&|| spin(Duration::from_millis(1)));
        let kernel = looked(&|| {
            let area = crate::area::Area::new(4 << 20).expect("memory");
            area.write(crate::PAGE_BYTES);
        });
        for looks in [user, kernel] {
            assert!(looks.total() > 10, "{looks:?}");
        }
        assert!(user.kernel_share() < Some(0.2) && kernel.kernel_share() > Some(0.6), "{user:?} {kernel:?}");
    }
}
