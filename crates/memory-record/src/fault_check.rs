//! A check of the recorded faults that uses no events: the kernel charges faults to each process as well.

use hksim_memory_trace::{Op, PAGE_BYTES};

/// `MAP_POPULATE | MAP_LOCKED`; `MADV_POPULATE_READ`, `MADV_POPULATE_WRITE`.
const POPULATES: u32 = (libc::MAP_POPULATE | libc::MAP_LOCKED) as u32;
const MADV_POPULATE: [u32; 2] = [22, 23];
/// A smaller deficit is no finding: each exec charges faults for its arguments, and direct I/O for its buffers.
const UNSEEN_MIN: u64 = 256;
const UNSEEN_SHARE_MIN: u64 = 100;

/// The faults of a recording, and the pages that calls may have populated: they are charged as faults, but raise no
/// exception.
#[derive(Clone, Copy, Debug)]
pub struct FaultCheck {
    recorded: u64,
    /// `None` if all later mappings may be populated.
    populated: Option<u64>,
    /// Faults charged before the recording began.
    charged_before: u64,
}

impl FaultCheck {
    /// A check of a process to which `charged_before` faults were charged so far.
    pub fn new(charged_before: u64) -> Self {
        Self { recorded: 0, populated: Some(0), charged_before }
    }

    /// Counts an operation.
    pub fn see(&mut self, op: &Op) {
        let pages = match op {
            Op::Touch { .. } => {
                self.recorded += 1;
                return;
            }
            Op::LockAll(_) => {
                self.populated = None;
                return;
            }
            Op::Map(map) if map.flags & POPULATES != 0 => &map.pages,
            Op::Advise { pages, advice, .. } if MADV_POPULATE.contains(advice) => pages,
            Op::Lock { pages, .. } => pages,
            _ => return,
        };
        // A length can be any number.
        let most = u64::MAX / PAGE_BYTES;
        self.populated = self.populated.map(|known| known.saturating_add(pages.end - pages.start).min(most));
    }

    /// Of the faults charged to the program and to the children it waited for, those that neither were recorded nor
    /// follow from a call; 0 if they are few, or if the check is not possible.
    pub fn unseen(&self, charged: u64) -> u64 {
        let Some(populated) = self.populated else { return 0 };
        let known = self.charged_before.saturating_add(self.recorded).saturating_add(populated);
        let unseen = charged.saturating_sub(known);
        if unseen < UNSEEN_MIN.max(charged / UNSEEN_SHARE_MIN) { 0 } else { unseen }
    }
}

#[cfg(test)]
mod tests {
    use hksim_memory_trace::TouchKind;

    use super::*;

    #[test]
    fn what_calls_populate_is_no_deficit() {
        let mut check = FaultCheck::new(40);
        for page in 0..1000 {
            check.see(&Op::Touch { page, kind: TouchKind::Write });
        }
        assert_eq!((check.unseen(1045), check.unseen(2045)), (0, 1005));
        check.see(&Op::Advise { pages: 2000..3000, advice: 23, errno: 0 });
        assert_eq!((check.unseen(2045), check.unseen(3045)), (0, 1005));
        check.see(&Op::LockAll(2));
        assert_eq!(check.unseen(1 << 40), 0, "every mapping may be populated");
    }
}
