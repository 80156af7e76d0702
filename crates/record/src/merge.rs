//! The lanes of a process merged by time.
//!
//! Stamps come before a free and after an allocation, so that no address seems to be in use twice. A realloc that moves
//! its block does both: the old block dies and the new one is born somewhere between its two stamps, which lie
//! milliseconds apart where the thread was interrupted. It is placed at its second stamp, when the new address is
//! surely free, or, if the old address is given out again before that, just before it is.

use hksim_trace::resolve::{RawEvent, RawOp};

use crate::error::RecordError;
use crate::lane_events::{LaneEvent, LaneEvents};
use crate::tournament::Tournament;

/// Where the events of a process go. A trait, and no closure, so that its way for the commonest events becomes part of
/// the loop that decodes them.
pub trait Taker {
    /// Takes the next event.
    ///
    /// # Errors
    /// Whatever keeps it from going on.
    fn take(&mut self, raw: &RawEvent) -> Result<(), RecordError>;
}

/// Hands the events of all lanes to `each` in order of time; of equal times, the lower lane first.
///
/// # Errors
/// A lane cannot be read, or `each` failed.
pub fn merge(lanes: Vec<LaneEvents<'_>>, each: &mut impl Taker) -> Result<(), RecordError> {
    let order = Tournament::new(lanes.iter().map(LaneEvents::time_ns).collect());
    let mut merge = Merge { lanes, order, moving: Vec::new(), each };
    for index in 0..merge.lanes.len() {
        merge.note_move(index);
    }
    loop {
        let index = merge.order.winner();
        match merge.order.key(index) {
            u64::MAX => return Ok(()),
            _ if merge.moving.is_empty() => merge.run_lane(index)?,
            time_ns => merge.emit_head(index, time_ns)?,
        }
    }
}

/// A lane whose head is a realloc that moves its block.
struct Moving {
    lane: usize,
    /// Address it moves away from.
    old: u64,
    /// Its first stamp.
    begun_ns: u64,
}

struct Merge<'a, 'b, T> {
    lanes: Vec<LaneEvents<'a>>,
    /// Times of the lanes' heads.
    order: Tournament,
    moving: Vec<Moving>,
    each: &'b mut T,
}

impl<T: Taker> Merge<'_, '_, T> {
    fn head(&self, index: usize) -> Option<LaneEvent> {
        self.lanes.get(index)?.head()
    }

    /// Notes that the lane's head is a realloc that moves its block, if it is.
    fn note_move(&mut self, index: usize) {
        let head = self.lanes.get(index).and_then(LaneEvents::moving);
        if let Some((RawOp::Realloc { old, .. }, begun_ns)) = head {
            self.moving.push(Moving { lane: index, old, begun_ns });
        }
    }

    /// Emits the lane's events as long as it is ahead of all the others, up to a realloc that moves its block.
    fn run_lane(&mut self, index: usize) -> Result<(), RecordError> {
        let end_ns = self.order.wins_below();
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.run_ahead(end_ns, self.each)?;
            self.order.set(index, lane.time_ns());
            self.note_move(index);
        }
        Ok(())
    }

    /// Emits the lane's head, no later than `latest_ns`, after the moves it depends on.
    fn emit_head(&mut self, index: usize, latest_ns: u64) -> Result<(), RecordError> {
        let Some(LaneEvent { mut raw, .. }) = self.head(index) else {
            return Ok(());
        };
        raw.time_ns = raw.time_ns.min(latest_ns);
        if !self.moving.is_empty() {
            self.moving.retain(|moving| moving.lane != index);
            self.emit_move_away(&raw)?;
        }
        take_rare(&raw, self.each)?;
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.advance()?;
            self.order.set(index, lane.time_ns());
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
        }
        Ok(())
    }
}

/// Takes an event out of the way of the commonest ones.
#[inline(never)]
pub(super) fn take_rare(raw: &RawEvent, each: &mut impl Taker) -> Result<(), RecordError> {
    each.take(raw)
}

/// The address that an event gives out.
fn born(op: &RawOp) -> Option<u64> {
    match *op {
        RawOp::Alloc { address, .. } => Some(address).filter(|&address| address != 0),
        RawOp::Realloc { old, new, .. } => Some(new).filter(|&new| new != 0 && new != old),
        _ => None,
    }
}
