//! Allocator course work: `a ID SIZE`, `r ID SIZE`, `f ID`, one call per line, ids instead of addresses.

use super::lines::Lines;
use crate::error::TraceError;
use crate::event::{AllocCall, Birth, Event, ObjectId, Op, ReallocCall, ThreadId};
use crate::header::{Clock, Quality};
use crate::hkt::TraceWriter;
use crate::ids::ObjectIds;
use std::collections::HashMap;

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Alloc { id: u64, size: u64 },
    Realloc { id: u64, size: u64 },
    Free { id: u64 },
}

const EXPECTED: &str = "expected `a ID SIZE`, `r ID SIZE` or `f ID` with decimal numbers";

pub(super) fn parse(line: &str) -> Result<Call, &'static str> {
    let mut words = line.split_ascii_whitespace();
    let op = words.next();
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or(EXPECTED);
    let call = match op {
        Some("a") => Call::Alloc { id: number()?, size: number()? },
        Some("r") => Call::Realloc { id: number()?, size: number()? },
        Some("f") => Call::Free { id: number()? },
        _ => return Err(EXPECTED),
    };
    if words.next().is_some() { Err(EXPECTED) } else { Ok(call) }
}

/// Converts all lines. One thread; each call takes [`Clock::EVENT_NS`].
pub(super) fn convert(lines: &mut Lines<'_>, writer: &mut TraceWriter) -> Result<Quality, TraceError> {
    let mut program = Program::default();
    let mut time_ns = 0;
    while let Some(line) = lines.next()? {
        let op = parse(line).map_err(String::from).and_then(|call| program.op(call));
        let op = op.map_err(|why| lines.error(why, "mend the line, or name the format with --from"))?;
        if let Some(why) = op.flaw() {
            return Err(lines.error(why, "mend the size"));
        }
        writer.push(&Event::new(time_ns, ThreadId(0), op))?;
        time_ns += Clock::EVENT_NS;
    }
    Ok(program.quality)
}

#[derive(Default)]
struct Program {
    live: HashMap<u64, ObjectId>,
    ids: ObjectIds,
    quality: Quality,
}

impl Program {
    fn op(&mut self, call: Call) -> Result<Op, String> {
        let resize = ReallocCall::Realloc;
        Ok(match call {
            Call::Alloc { id, .. } if self.live.contains_key(&id) => {
                return Err(format!("`a {id}`, but id {id} is still live: free it first or give the block another id"));
            }
            Call::Alloc { id, size } => {
                let object = self.bear(id)?;
                Op::Alloc { object, size, align_log2: 0, call: AllocCall::Malloc, birth: Birth::None }
            }
            Call::Realloc { id, size } => match self.live.get(&id) {
                Some(_) if size == 0 => Op::ReallocFree { object: self.bury(id)?, call: resize },
                Some(&object) => Op::Realloc { object, size, call: resize, birth: Birth::None },
                None => {
                    self.quality.unknown_frees += 1;
                    Op::ReallocUnknown { object: self.bear(id)?, size, call: resize }
                }
            },
            Call::Free { id } if self.live.contains_key(&id) => Op::Free { object: self.bury(id)? },
            Call::Free { .. } => {
                self.quality.unknown_frees += 1;
                Op::FreeUnknown
            }
        })
    }

    fn bear(&mut self, id: u64) -> Result<ObjectId, String> {
        let object = self.ids.allocate().ok_or_else(|| TraceError::TooManyObjects.to_string())?;
        self.live.insert(id, object);
        Ok(object)
    }

    fn bury(&mut self, id: u64) -> Result<ObjectId, String> {
        let object = self.live.remove(&id).ok_or_else(|| format!("id {id} is not live"))?;
        self.ids.release(object);
        Ok(object)
    }
}
