//! Traces of bursts: blocks of a class are allocated and freed again, in random order.

use std::path::Path;

use hksim_testkit::Random;
use hksim_trace::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ThreadId};
use hksim_trace::header::{Clock, Footer, Header, Origin, TouchSource};
use hksim_trace::hkt::TraceWriter;
use hksim_trace::ids::ObjectIds;

use crate::LARGE;

/// The request that makes the library begin to count.
const START_BYTES: u64 = 31337;
/// Bursts of each class.
const BURSTS: usize = 8;

pub struct Workload<'a> {
    /// The classes of the blocks, by index.
    pub classes: &'a [u64],
    pub random: &'a mut Random,
}

impl Workload<'_> {
    pub fn events(self) -> Vec<Op> {
        let Workload { classes, random } = self;
        let (mut ids, mut events) = (ObjectIds::new(), Vec::new());
        events.push(allocation(&mut ids, START_BYTES));
        let mut bursts: Vec<u64> = classes.iter().flat_map(|&class| [class; BURSTS]).collect();
        shuffle(&mut bursts, random);
        for class in bursts {
            let (count, least, most) = match class {
                LARGE => (3 + random.below(12), 40_000, 400_000),
                // At least 512 KiB, so that a burst fills slabs.
                _ => {
                    let bytes = 16 << class;
                    ((40 + random.below(120)).max((1 << 19) / bytes), bytes / 2 + 1, bytes)
                }
            };
            let mut live: Vec<ObjectId> = Vec::new();
            for _ in 0..count {
                events.push(allocation(&mut ids, least + random.below(most - least + 1)));
                live.extend(events.last().and_then(Op::object));
            }
            shuffle(&mut live, random);
            for object in live {
                ids.release(object);
                events.push(Op::Free { object });
            }
        }
        events
    }
}

/// Writes events of one thread to a file.
pub fn write(path: &Path, events: &[Op]) {
    let origin = Origin::Imported { format: "test".into(), file: "test".into() };
    let header = Header::new(origin, TouchSource::Assumed, Clock::PerEvent);
    let mut writer = TraceWriter::create(path, &header).expect("a trace");
    for (at, &op) in events.iter().enumerate() {
        writer.push(&Event::new(at as u64 * Clock::EVENT_NS, ThreadId(0), op)).expect("a valid event");
    }
    writer.finish(&Footer::default()).expect("a trace");
}

pub fn allocation(ids: &mut ObjectIds, size: u64) -> Op {
    let (object, call) = (ids.allocate().expect("an id"), AllocCall::Malloc);
    Op::Alloc { object, size, align_log2: 0, call, initial_touch: InitialTouch::None }
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u64 + 1) as usize);
    }
}
