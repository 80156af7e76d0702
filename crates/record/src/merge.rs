//! The lanes of a process merged by time.
//!
//! Stamps come before a free and after an allocation, so that no address seems to be in use twice. A realloc that moves
//! its block does both: the old block dies and the new one is born somewhere between its two stamps, which lie
//! milliseconds apart where the thread was interrupted. It is placed at its second stamp, when the new address is
//! surely free, or, if the old address is given out again before that, just before it is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hksim_trace::resolve::{RawEvent, RawOp};

use crate::error::RecordError;
use crate::lane_events::{LaneEvent, LaneEvents};

/// Hands the events of all lanes to `each` in order of time; of equal times, the lower lane first.
///
/// # Errors
/// A lane cannot be read, or `each` failed.
pub fn merge<'a>(
    lanes: Vec<LaneEvents<'a>>,
    each: impl FnMut(&RawEvent) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let mut merge = Merge { lanes, order: BinaryHeap::new(), moving: Vec::new(), each };
    for index in 0..merge.lanes.len() {
        merge.note_move(index);
        merge.enqueue(index);
    }
    while let Some(Reverse((time_ns, index))) = merge.order.pop() {
        // A lane whose head was taken early has left an entry behind.
        if merge.head(index).is_some_and(|head| head.raw.time_ns == time_ns) {
            merge.run_lane(index)?;
        }
    }
    Ok(())
}

/// A lane whose head is a realloc that moves its block.
struct Moving {
    lane: usize,
    /// Address it moves away from.
    old: u64,
    /// Its first stamp.
    begun_ns: u64,
}

struct Merge<'a, E> {
    lanes: Vec<LaneEvents<'a>>,
    /// Time and lane of each head.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    moving: Vec<Moving>,
    each: E,
}

impl<E: FnMut(&RawEvent) -> Result<(), RecordError>> Merge<'_, E> {
    fn head(&self, index: usize) -> Option<&LaneEvent> {
        self.lanes.get(index)?.head()
    }

    fn enqueue(&mut self, index: usize) {
        let entry = self.head(index).map(|head| Reverse((head.raw.time_ns, index)));
        self.order.extend(entry);
    }

    /// Notes that the lane's head is a realloc that moves its block, if it is.
    fn note_move(&mut self, index: usize) {
        let Some(&LaneEvent { raw, moving_since_ns: Some(begun_ns) }) = self.head(index) else {
            return;
        };
        if let RawOp::Realloc { old, .. } = raw.op {
            self.moving.push(Moving { lane: index, old, begun_ns });
        }
    }

    /// Emits the lane's events as long as it is ahead of all the others.
    fn run_lane(&mut self, index: usize) -> Result<(), RecordError> {
        while let Some(head) = self.head(index) {
            let key = (head.raw.time_ns, index);
            let next = self.order.peek().map_or((u64::MAX, usize::MAX), |&Reverse(next)| next);
            if next < key {
                self.enqueue(index);
                break;
            }
            self.emit_head(index, key.0)?;
            if let (Some(lane), true) = (self.lanes.get_mut(index), self.moving.is_empty()) {
                lane.run_ahead(next.0, &mut self.each)?;
                self.note_move(index);
            }
        }
        Ok(())
    }

    /// Emits the lane's head, no later than `latest_ns`, after the moves it depends on.
    fn emit_head(&mut self, index: usize, latest_ns: u64) -> Result<(), RecordError> {
        let Some(&LaneEvent { mut raw, .. }) = self.head(index) else {
            return Ok(());
        };
        raw.time_ns = raw.time_ns.min(latest_ns);
        if !self.moving.is_empty() {
            self.moving.retain(|moving| moving.lane != index);
            self.emit_move_away(&raw)?;
        }
        (self.each)(&raw)?;
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.advance()?;
        }
        self.note_move(index);
        Ok(())
    }

    /// Emits the realloc that was moving away from the address that `raw` gives out.
    fn emit_move_away(&mut self, raw: &RawEvent) -> Result<(), RecordError> {
        let Some(address) = born(&raw.op) else {
            return Ok(());
        };
        let moves_away = |moving: &&Moving| moving.old == address && moving.begun_ns <= raw.time_ns;
        if let Some(lane) = self.moving.iter().find(moves_away).map(|moving| moving.lane) {
            self.emit_head(lane, raw.time_ns)?;
            self.enqueue(lane);
        }
        Ok(())
    }
}

/// The address that an event gives out.
fn born(op: &RawOp) -> Option<u64> {
    match *op {
        RawOp::Alloc { address, .. } => Some(address).filter(|&address| address != 0),
        RawOp::Realloc { old, new, .. } => Some(new).filter(|&new| new != 0 && new != old),
        _ => None,
    }
}
