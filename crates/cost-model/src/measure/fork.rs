//! Times `fork` and the writes after it.

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::area::{Area, Granule, HUGE_BYTES, timed};
use hksim_linux_probe::lifetime::die_with_parent;

use super::MeasureError;
use super::pages::{NO_HUGE_PAGES, huge_pages};
use super::samples::Samples;
use crate::profile::Operation;

/// Resident pages at the fork that is timed: 32 MiB, far more than the process's other memory.
const FORKED_PAGES: u64 = 8192;
/// Pages for the writes after a fork: half are copied, half are reused.
const COPIED_PAGES: u64 = 2048;
/// Resident huge pages at the fork whose splits are timed.
const FORKED_HUGE: u64 = 16;
/// The pages of their folios after the splits, but for the first of each, which was copied.
const FOLIO_PAGES: u64 = FORKED_HUGE * (HUGE_BYTES / PAGE_BYTES - 1);

/// An idle child, which is killed and reaped when dropped.
struct Child(libc::pid_t);

impl Child {
    fn new() -> Result<Child, MeasureError> {
        let parent = std::process::id() as libc::pid_t;
        // SAFETY: the child only makes system calls, which are safe whatever locks other threads held at the fork.
        match unsafe { libc::fork() } {
            -1 => Err(MeasureError::last("fork")),
            0 => {
                die_with_parent(parent);
                loop {
                    // SAFETY: as above.
                    unsafe { libc::pause() };
                }
            }
            child => Ok(Child(child)),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, which has not been reaped, so its pid has not been reused.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Times forks with and without resident pages. The difference is the cost of the pages.
pub(super) fn costs(samples: &mut Samples) -> Result<(), MeasureError> {
    let (child, without) = timed(Child::new);
    drop(child?);
    samples.note(Operation::ForkCall, 1, without, Default::default());
    let area = Area::of(Granule::Page, FORKED_PAGES * PAGE_BYTES)?;
    area.write(PAGE_BYTES);
    let (child, with) = timed(Child::new);
    drop((child?, area));
    samples.note(Operation::ForkPage, FORKED_PAGES, with.saturating_sub(without), Default::default());
    let area = Area::of(Granule::Page, COPIED_PAGES * PAGE_BYTES)?;
    area.write(PAGE_BYTES);
    let child = Child::new()?;
    let half = COPIED_PAGES / 2 * PAGE_BYTES;
    samples.time(Operation::CopyAfterFork, COPIED_PAGES / 2, || area.write_part(0, half, PAGE_BYTES));
    drop(child);
    samples.time(Operation::ReuseAfterFork, COPIED_PAGES / 2, || area.write_part(half, half, PAGE_BYTES));
    huge(samples)
}

/// Times the first write to each huge page after a fork, which splits it and copies one page, and a fork after that: the
/// difference to the first fork is the cost of the pages of split folios.
fn huge(samples: &mut Samples) -> Result<(), MeasureError> {
    let Some(area) = huge_pages(FORKED_HUGE)? else {
        samples.skip(Operation::SplitAfterFork, NO_HUGE_PAGES);
        samples.skip(Operation::ForkFolioPage, NO_HUGE_PAGES);
        return Ok(());
    };
    let (child, without) = timed(Child::new);
    let child = child?;
    samples.time(Operation::SplitAfterFork, FORKED_HUGE, || area.write(HUGE_BYTES));
    drop(child);
    let (child, with) = timed(Child::new);
    drop(child?);
    samples.note(Operation::ForkFolioPage, FOLIO_PAGES, with.saturating_sub(without), Default::default());
    Ok(())
}
