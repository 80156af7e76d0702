//! The lanes of a process merged by time.
//!
//! Stamps come before a free and after an allocation, so that no address seems to be in use twice. A realloc that moves
//! its block does both: the old block dies and the new one is born somewhere between its two stamps, which lie
//! milliseconds apart where the thread was interrupted. It is placed at its second stamp, when the new address is
//! surely free, or, if the old address is given out again before that, just before it is.

use hksim_trace::resolve::{Plain, RawEvent, RawOp};

use crate::error::RecordError;
use crate::gathered::Gathered;
use crate::lane_events::{Extent, LaneEvent, LaneEvents};
use crate::spool_reader::LaneFrames;
use crate::tournament::Tournament;

/// Where the events of a process go.
pub trait Taker {
    /// Takes the next event.
    ///
    /// # Errors
    /// Whatever keeps it from going on.
    fn take(&mut self, raw: &RawEvent) -> Result<(), RecordError>;

    /// Takes the next events, which are common calls.
    ///
    /// # Errors
    /// As for [`Taker::take`].
    fn take_plain(&mut self, calls: &[Plain]) -> Result<(), RecordError> {
        calls.iter().try_for_each(|call| self.take(&call.raw()))
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

/// The lanes of a process, and how far they are merged.
pub struct Merge {
    lanes: Vec<LaneEvents>,
    /// Times of the lanes' heads.
    order: Tournament,
    moving: Vec<Moving>,
    gathered: Gathered,
    /// Rounds of one lane each before calls are gathered again.
    rounds_left: usize,
}

impl Merge {
    /// A merge of no lanes.
    pub fn new() -> Self {
        Self {
            lanes: Vec::new(),
            order: Tournament::new(Vec::new()),
            moving: Vec::new(),
            gathered: Gathered::default(),
            rounds_left: 0,
        }
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Time of the next event, or the least that it can have; `None` at the end.
    pub fn next_ns(&self) -> Option<u64> {
        Some(self.order.key(self.order.winner())).filter(|&time_ns| time_ns != u64::MAX)
    }

    /// Takes the lanes as they are now: those known go on, those new are opened, which `open` does.
    ///
    /// # Errors
    /// A lane cannot be read.
    pub fn extend(
        &mut self,
        lanes: Vec<LaneFrames>,
        extent: Extent,
        mut open: impl FnMut(LaneFrames) -> Result<LaneEvents, RecordError>,
    ) -> Result<(), RecordError> {
        for lane in lanes {
            match self.lanes.binary_search_by_key(&lane.own, LaneEvents::number) {
                Ok(index) => {
                    let events = &mut self.lanes[index];
                    let waited = events.head().is_none();
                    events.extend(lane, extent)?;
                    if waited {
                        self.note_move(index);
                    }
                }
                Err(index) => {
                    let events = open(lane)?;
                    self.moving.iter_mut().filter(|moving| moving.lane >= index).for_each(|moving| moving.lane += 1);
                    self.lanes.insert(index, events);
                    self.note_move(index);
                }
            }
        }
        self.order = Tournament::new(self.lanes.iter().map(LaneEvents::time_ns).collect());
        Ok(())
    }

    /// Hands the events of all lanes before `end_ns` to `each` in order of time; of equal times, the lower lane first.
    ///
    /// # Errors
    /// A lane cannot be read, or `each` failed.
    pub fn run(&mut self, end_ns: u64, each: &mut impl Taker) -> Result<(), RecordError> {
        loop {
            if self.rounds_left > 0 {
                self.rounds_left -= 1;
            } else if self.lanes.len() > 1 && self.moving.is_empty() {
                self.gather(end_ns)?;
                let calls = self.gathered.in_order();
                // To look at all lanes costs more than a few calls are worth.
                if calls.len() < self.lanes.len() {
                    self.rounds_left = self.lanes.len();
                }
                each.take_plain(calls)?;
            }
            let index = self.order.winner();
            match self.order.key(index) {
                time_ns if time_ns >= end_ns => return Ok(()),
                _ if self.moving.is_empty() => self.run_lane(index, end_ns, each)?,
                time_ns => self.emit_head(index, time_ns, each)?,
            }
        }
    }

    /// Gathers common calls of all lanes, up to any other event, to `end_ns`, or as far as they are decoded.
    fn gather(&mut self, end_ns: u64) -> Result<(), RecordError> {
        self.gathered.clear();
        let mut until_ns = end_ns;
        for lane in &mut self.lanes {
            until_ns = until_ns.min(lane.look_ahead()?);
        }
        for index in 0..self.lanes.len() {
            let lane = &mut self.lanes[index];
            let calls = lane.plain_before(until_ns);
            let passed = calls.len();
            if passed > 0 {
                self.gathered.add(calls);
                lane.pass_plain(passed)?;
                self.order.set(index, lane.time_ns());
                self.note_move(index);
            }
        }
        Ok(())
    }

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
    fn run_lane(&mut self, index: usize, end_ns: u64, each: &mut impl Taker) -> Result<(), RecordError> {
        let end_ns = self.order.wins_below().min(end_ns);
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.run_ahead(end_ns, each)?;
            self.order.set(index, lane.time_ns());
            self.note_move(index);
        }
        Ok(())
    }

    /// Emits the lane's head, no later than `latest_ns`, after the moves it depends on.
    fn emit_head(&mut self, index: usize, latest_ns: u64, each: &mut impl Taker) -> Result<(), RecordError> {
        let Some(LaneEvent { mut raw, .. }) = self.head(index) else {
            return Ok(());
        };
        raw.time_ns = raw.time_ns.min(latest_ns);
        if !self.moving.is_empty() {
            self.moving.retain(|moving| moving.lane != index);
            self.emit_move_away(&raw, each)?;
        }
        each.take(&raw)?;
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.advance()?;
            self.order.set(index, lane.time_ns());
        }
        self.note_move(index);
        Ok(())
    }

    /// Emits the realloc that was moving away from the address that `raw` gives out.
    fn emit_move_away(&mut self, raw: &RawEvent, each: &mut impl Taker) -> Result<(), RecordError> {
        let Some(address) = born(&raw.op) else {
            return Ok(());
        };
        let moves_away = |moving: &&Moving| moving.old == address && moving.begun_ns <= raw.time_ns;
        if let Some(lane) = self.moving.iter().find(moves_away).map(|moving| moving.lane) {
            self.emit_head(lane, raw.time_ns, each)?;
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
