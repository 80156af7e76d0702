//! Maps a frame to its entry in the snapshot: a table for frames of the reservation, a hash table for all others.

use std::io;

use hksim_linux_probe::resident::Resident;

/// The index. Frames are numbered from address 0, 2 MiB each.
pub(crate) struct FrameIndex {
    first: u64,
    /// Entry + 1 of each frame of the reservation; 0 if the frame has no entry.
    table: Resident<u32>,
    /// Frame + 1 in the high half and the entry in the low half; 0 is an empty slot. The length is a power of two, or
    /// 0.
    hash: Resident<u64>,
    hashed: usize,
}

impl FrameIndex {
    /// An index for a reservation of `frames` frames and at most `others_max` frames outside it (0 or a power of two).
    pub(crate) fn new(frames: usize, others_max: usize) -> io::Result<FrameIndex> {
        Ok(FrameIndex {
            first: 0,
            table: Resident::zeroed(frames)?,
            hash: Resident::zeroed(2 * others_max)?,
            hashed: 0,
        })
    }

    /// Sets the first frame of the reservation.
    pub(crate) fn locate(&mut self, first: u64) {
        self.first = first;
    }

    /// The index of a frame in the table, if it is in the reservation.
    pub(crate) fn in_table(&self, frame: u64) -> Option<usize> {
        let at = frame.checked_sub(self.first)? as usize;
        (at < self.table.len()).then_some(at)
    }

    /// The slot of a frame's entry, or the slot where it would be stored.
    fn slot_of(&self, frame: u64) -> Option<usize> {
        let mask = self.hash.len().checked_sub(1)?;
        let mut slot = (frame.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        // At most half of the slots are used.
        while self.hash[slot] != 0 && self.hash[slot] >> 32 != frame + 1 {
            slot = (slot + 1) & mask;
        }
        Some(slot)
    }

    /// A frame's entry.
    pub(crate) fn get(&self, frame: u64) -> Option<usize> {
        match self.in_table(frame) {
            Some(at) => (self.table[at] as usize).checked_sub(1),
            None => {
                let found = self.hash[self.slot_of(frame)?];
                (found != 0).then_some(found as u32 as usize)
            }
        }
    }

    /// Sets the entry of a new frame. False if the index is full.
    pub(crate) fn set(&mut self, frame: u64, entry: usize) -> bool {
        if let Some(at) = self.in_table(frame) {
            self.table[at] = entry as u32 + 1;
            return true;
        }
        match self.slot_of(frame) {
            Some(slot) if 2 * (self.hashed + 1) <= self.hash.len() => {
                self.hash[slot] = (frame + 1) << 32 | entry as u64;
                self.hashed += 1;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_inside_and_outside_the_reservation_have_separate_entries() {
        let mut index = FrameIndex::new(10, 64).unwrap();
        index.locate(1000);
        let others = (0..64u64).map(|n| 0x3FF_0000 + n * n);
        let frames: Vec<u64> = (1000..1010).chain(others).collect();
        for (entry, &frame) in frames.iter().enumerate() {
            assert_eq!(index.get(frame), None);
            assert!(index.set(frame, entry), "frame {frame}");
        }
        for (entry, &frame) in frames.iter().enumerate() {
            assert_eq!(index.get(frame), Some(entry), "frame {frame}");
        }
        assert!(!index.set(7, 99), "it is half full");
        assert_eq!(index.get(7), None);
        assert!(!FrameIndex::new(10, 0).unwrap().set(99, 1));
    }
}
