//! The state of each of the allocator's pages, as the kernel reported it at the last scan.

use std::io;
use std::ops::Range;

use hksim_engine::PageState;
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};

use crate::frame_index::FrameIndex;
use hksim_linux_probe::resident::{Resident, Zeroable};

/// Pages of a frame: the 2 MiB that one page of PTEs maps.
pub(crate) const FRAME_PAGES: usize = (HUGE_PAGE_BYTES / PAGE_BYTES) as usize;

/// The pages of one frame.
pub(crate) type Frame = [Option<PageState>; FRAME_PAGES];

/// A frame without pages.
pub(crate) const ABSENT: Frame = [None; FRAME_PAGES];

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Stored(Frame);

// SAFETY: zero is a valid value: the number of the first state. A frame is completely written before it is read.
unsafe impl Zeroable for Stored {}

/// Frames per piece of memory.
const FRAMES_PER_PIECE: usize = 4096;
const PIECES_MAX: usize = 2048;

/// Pages counted by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts([u64; PageState::ALL.len()]);

impl Counts {
    fn of(frame: &Frame) -> Counts {
        let mut counts = Counts::default();
        frame.iter().flatten().for_each(|&state| counts.0[state as usize] += 1);
        counts
    }

    fn replace(&mut self, before: Counts, after: Counts) {
        for (total, (before, after)) in self.0.iter_mut().zip(before.0.iter().zip(after.0)) {
            *total = *total + after - before;
        }
    }

    /// Pages in a state.
    pub(crate) fn pages(&self, state: PageState) -> u64 {
        self.0[state as usize]
    }

    /// Resident bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let resident = PageState::ALL.into_iter().filter(|state| state.is_resident());
        resident.map(|state| self.pages(state)).sum::<u64>() * PAGE_BYTES
    }
}

/// The snapshot. It has two levels, and uses O(frames ever touched) memory.
pub(crate) struct PageSnapshot {
    index: FrameIndex,
    pieces: Vec<Resident<Stored>>,
    used: usize,
    counts: Counts,
}

impl PageSnapshot {
    /// An empty snapshot for a reservation of `frames` frames and at most `others_max` frames outside it.
    pub(crate) fn new(frames: usize, others_max: usize) -> io::Result<PageSnapshot> {
        let mut pieces = Vec::with_capacity(PIECES_MAX);
        pieces.push(Resident::zeroed(FRAMES_PER_PIECE)?);
        Ok(PageSnapshot { index: FrameIndex::new(frames, others_max)?, pieces, used: 0, counts: Counts::default() })
    }

    /// Sets the first frame of the reservation.
    pub(crate) fn locate(&mut self, first_frame: u64) {
        self.index.locate(first_frame);
    }

    /// The index of a frame in the reservation, if it is in it.
    pub(crate) fn in_reservation(&self, frame: u64) -> Option<usize> {
        self.index.in_table(frame)
    }

    /// Whether a frame ever had a page.
    pub(crate) fn is_known(&self, frame: u64) -> bool {
        self.index.get(frame).is_some()
    }

    /// A frame's pages.
    pub(crate) fn frame(&self, frame: u64) -> &Frame {
        match self.index.get(frame) {
            None => &ABSENT,
            Some(at) => &self.pieces[at / FRAMES_PER_PIECE][at % FRAMES_PER_PIECE].0,
        }
    }

    /// Whether the next new frame needs more memory. If so, call [`PageSnapshot::grow`] first.
    pub(crate) fn is_full(&self) -> bool {
        self.used == self.pieces.len() * FRAMES_PER_PIECE
    }

    /// Allocates more memory, which causes faults of this process.
    pub(crate) fn grow(&mut self) -> io::Result<()> {
        if self.pieces.len() == PIECES_MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.pieces.push(Resident::zeroed(FRAMES_PER_PIECE)?);
        Ok(())
    }

    /// Sets the state of a frame. A new frame that does not fit (see [`PageSnapshot::is_full`]) is omitted; the next
    /// mark's scan then reports a discrepancy.
    pub(crate) fn set(&mut self, frame: u64, after: &Frame) {
        let before = Counts::of(self.frame(frame));
        let at = match self.index.get(frame) {
            Some(at) => at,
            None if self.is_full() || !self.index.set(frame, self.used) => return,
            None => {
                self.used += 1;
                self.used - 1
            }
        };
        self.pieces[at / FRAMES_PER_PIECE][at % FRAMES_PER_PIECE].0 = *after;
        self.counts.replace(before, Counts::of(after));
    }

    /// Marks pages of a frame as absent.
    pub(crate) fn forget(&mut self, frame: u64, pages: Range<usize>) {
        if self.is_known(frame) {
            let mut left = *self.frame(frame);
            left[pages].fill(None);
            self.set(frame, &left);
        }
    }

    /// Number of pages by state.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }
}
