//! `fork`, and the copies after it.

use hksim_linux::PAGE_BYTES;

use super::area::{Area, timed};
use super::{MeasureError, Samples};
use crate::profile::Operation;

/// Pages that are forked: 32 MiB, far above what else the process has.
const FORKED_PAGES: u64 = 8192;
/// Pages that are copied.
const COPIED_PAGES: u64 = 2048;

/// A child that does nothing; it is killed and waited for when dropped.
struct Child(libc::pid_t);

impl Child {
    fn new() -> Result<Child, MeasureError> {
        // SAFETY: the child makes two system calls that are safe whatever other threads held, and touches no memory.
        match unsafe { libc::fork() } {
            -1 => Err(MeasureError::last("fork")),
            0 => loop {
                // SAFETY: as above. It dies with its parent, should that be killed.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::pause();
                }
            },
            child => Ok(Child(child)),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the child is ours and was not waited for, so its number is still its own.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// The cost of a page is the difference between a fork with and without so many of them.
pub(super) fn costs(samples: &mut Samples) -> Result<(), MeasureError> {
    let (child, without) = timed(Child::new);
    drop(child?);
    let area = Area::new(FORKED_PAGES * PAGE_BYTES)?;
    area.advise(libc::MADV_NOHUGEPAGE);
    area.write(PAGE_BYTES);
    let (child, with) = timed(Child::new);
    samples.add(Operation::ForkPage, FORKED_PAGES, with.saturating_sub(without));
    drop((child?, area));
    let area = Area::new(COPIED_PAGES * PAGE_BYTES)?;
    area.advise(libc::MADV_NOHUGEPAGE);
    area.write(PAGE_BYTES);
    let child = Child::new()?;
    samples.add(Operation::CopyAfterFork, COPIED_PAGES, timed(|| area.write(PAGE_BYTES)).1);
    drop(child);
    Ok(())
}
