//! Frames that may hold only part of a huge page, because `mremap` moved the other part to another frame.
//!
//! When such a huge page is split, pages change in all its frames, not only in the frame of the system call.

use std::io;
use std::ops::Range;

use crate::extents::Extents;
use crate::page_snapshot::FRAME_PAGES;

const FRAME: u64 = FRAME_PAGES as u64;

/// The set of such frames. It may contain frames that no longer hold part of a huge page.
pub(crate) struct SplitFolios {
    pages: Extents,
}

impl SplitFolios {
    /// An empty set for a reservation of `frames` frames, in which all moves take place.
    pub(crate) fn new(frames: usize) -> io::Result<SplitFolios> {
        // Ranges do not touch; the reservation may begin inside a frame.
        Ok(SplitFolios { pages: Extents::new((frames + 1).div_ceil(2))? })
    }

    /// Notes a move of pages.
    pub(crate) fn moved(&mut self, from: Range<u64>, to: Range<u64>) {
        let stay_in_one_frame = from.start % FRAME == to.start % FRAME && !self.pages.overlaps(&from);
        self.add_cut(&from);
        if stay_in_one_frame {
            self.add_cut(&to);
        } else {
            self.pages.add(to.start / FRAME * FRAME..to.end.next_multiple_of(FRAME));
        }
    }

    /// Adds the frames that the range covers only in part.
    fn add_cut(&mut self, pages: &Range<u64>) {
        for boundary in [pages.start, pages.end] {
            if !boundary.is_multiple_of(FRAME) {
                self.pages.add(boundary / FRAME * FRAME..boundary.next_multiple_of(FRAME));
            }
        }
    }

    /// Removes the frames of a range whose pages are gone.
    pub(crate) fn forget(&mut self, pages: &Range<u64>) {
        let whole = pages.start.next_multiple_of(FRAME)..pages.end / FRAME * FRAME;
        if !whole.is_empty() {
            self.pages.remove(whole);
        }
    }

    /// Whether a page of the range may belong to a huge page in several frames.
    pub(crate) fn overlaps(&self, pages: &Range<u64>) -> bool {
        self.pages.overlaps(pages)
    }

    /// The number of ranges of pages in the set.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// One of these ranges.
    pub(crate) fn get(&self, at: usize) -> Range<u64> {
        self.pages.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(split_folios: &SplitFolios) -> Vec<Range<u64>> {
        (0..split_folios.len())
            .map(|at| split_folios.get(at))
            .map(|pages| pages.start / FRAME..pages.end / FRAME)
            .collect()
    }

    #[test]
    fn frames_divided_by_a_move_are_added() {
        let mut split_folios = SplitFolios::new(100).unwrap();
        split_folios.moved(0..4 * FRAME, 10 * FRAME..14 * FRAME);
        assert_eq!(frames(&split_folios), [], "whole huge pages were moved");
        split_folios.moved(10 * FRAME..14 * FRAME + 256, 20 * FRAME..24 * FRAME + 256);
        assert_eq!(frames(&split_folios), [14..15, 24..25], "one huge page was divided");
        split_folios.moved(24 * FRAME..25 * FRAME, 30 * FRAME..31 * FRAME);
        assert_eq!(frames(&split_folios), [14..15, 24..25, 30..31], "a part of it was moved again");
    }

    #[test]
    fn a_move_to_a_different_offset_in_a_frame_adds_all_target_frames() {
        let mut split_folios = SplitFolios::new(100).unwrap();
        split_folios.moved(0..3 * FRAME, 10 * FRAME + 256..13 * FRAME + 256);
        assert_eq!(frames(&split_folios), vec![10..14]);
        split_folios.forget(&(10 * FRAME + 1..12 * FRAME));
        assert_eq!(frames(&split_folios), [10..11, 12..14], "part of the first frame is left");
        assert!(
            split_folios.overlaps(&(13 * FRAME..13 * FRAME + 1)) && !split_folios.overlaps(&(11 * FRAME..12 * FRAME))
        );
    }
}
