//! Tracks which bytes of a live object were accessed.

use crate::event::{Access, InitialTouch};
use std::ops::Range;

/// The range from the first to the last byte of an object that was written, and the same for reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Touched {
    written: Option<(u64, u64)>,
    read: Option<(u64, u64)>,
}

impl Touched {
    /// Adds an access.
    pub(super) fn access(&mut self, bytes: Range<u64>, access: Access) {
        if bytes.is_empty() {
            return;
        }
        let known = match access {
            Access::Write => &mut self.written,
            Access::Read => &mut self.read,
        };
        let (from, to) = known.unwrap_or((bytes.start, bytes.end));
        *known = Some((from.min(bytes.start), to.max(bytes.end)));
    }

    /// Adds the initial touch of an allocation.
    pub(super) fn allocated(&mut self, size: u64, initial_touch: InitialTouch) {
        match initial_touch {
            InitialTouch::FirstByte => self.access(0..size.min(1), Access::Write),
            _ => self.at_once(0..size, initial_touch),
        }
    }

    /// Adds a resize: drops the removed bytes, and adds the initial touch of the added bytes.
    pub(super) fn resized(&mut self, old: u64, new: u64, initial_touch: InitialTouch) {
        self.clip(new);
        self.at_once(old..new, initial_touch);
    }

    /// Adds an initial touch of the whole range. Bytes read and then written count as written.
    fn at_once(&mut self, bytes: Range<u64>, initial_touch: InitialTouch) {
        match initial_touch.whole() {
            InitialTouch::All | InitialTouch::ReadThenWrite => self.access(bytes, Access::Write),
            InitialTouch::Read => self.access(bytes, Access::Read),
            InitialTouch::None | InitialTouch::FirstByte | InitialTouch::Watched | InitialTouch::PerPage(_) => (),
        }
    }

    fn clip(&mut self, size: u64) {
        for known in [&mut self.written, &mut self.read] {
            *known = known.map(|(from, to)| (from, to.min(size))).filter(|(from, to)| from < to);
        }
    }

    /// The accesses that bring the object's pages into the same state. A read of written pages changes nothing, so it
    /// is left out.
    pub(super) fn accesses(&self) -> impl Iterator<Item = (Range<u64>, Access)> {
        let within = |(from, to): (u64, u64)| self.written.is_some_and(|(first, last)| first <= from && to <= last);
        let read = self.read.filter(|&read| !within(read)).map(|read| (read, Access::Read));
        let written = self.written.map(|written| (written, Access::Write));
        written.into_iter().chain(read).map(|((from, to), access)| (from..to, access))
    }
}
