//! `tiny_hot`: blocks of one size, allocated and freed in a tight loop.

use super::program::{EventBuilder, Program};
use crate::error::TraceError;
use crate::event::{AllocCall, InitialTouch, ThreadId};
use serde::{Deserialize, Serialize};

/// Parameters of `tiny_hot`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TinyHot {
    /// Number of allocations, each followed by its free; above 0.
    pub cycles: u64,
    /// Requested bytes; the first byte is written.
    pub size: u32,
}

impl Default for TinyHot {
    fn default() -> Self {
        TinyHot { cycles: 1_000_000, size: 64 }
    }
}

impl TinyHot {
    pub(super) fn program(&self) -> Result<TinyHotProgram, TraceError> {
        if self.cycles == 0 {
            let (parameter, remedy) = ("cycles", "must be at least 1");
            return Err(TraceError::BadParameter { workload: "tiny-hot", parameter, value: 0, remedy });
        }
        Ok(TinyHotProgram { parameters: self.clone(), cycles_left: self.cycles })
    }
}

pub(super) struct TinyHotProgram {
    parameters: TinyHot,
    cycles_left: u64,
}

impl Program for TinyHotProgram {
    const STEP_EVENTS_MAX: usize = 2;
    const MARK_NAMES: &[&str] = &[];

    #[inline]
    fn step(&mut self, builder: &mut EventBuilder) -> bool {
        if self.cycles_left == 0 {
            return false;
        }
        self.cycles_left -= 1;
        let thread = ThreadId(0);
        let object = builder.alloc(thread, self.parameters.size as u64, 0, AllocCall::Malloc, InitialTouch::FirstByte);
        builder.free(thread, object);
        true
    }

    fn reset(&mut self) {
        self.cycles_left = self.parameters.cycles;
    }
}
