//! `random_mixed`: each cycle draws a random slot. It frees the slot's block, or allocates one if the slot is empty.

use super::program::{EventBuilder, Program};
use super::random::Xorshift32;
use crate::error::TraceError;
use crate::event::{AllocCall, InitialTouch, ObjectId, Op, ThreadId};
use serde::{Deserialize, Serialize};

/// Parameters of `random_mixed`. Blocks still in slots at the end are not freed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RandomMixed {
    /// Cycles of the main part, above 0; each produces one event.
    pub cycles: u64,
    /// Number of slots, above 0.
    pub ws: u32,
    /// Seed of the random numbers, above 0.
    pub seed: u32,
    /// Smallest request in bytes.
    pub min: u32,
    /// Largest request in bytes.
    pub max: u32,
    /// Cycles before the main part, on the same slots but with other random numbers. The mark `main` follows them.
    pub warmup: u64,
}

impl Default for RandomMixed {
    fn default() -> Self {
        RandomMixed { cycles: 1_000_000, ws: 256, seed: 42, min: 16, max: 1039, warmup: 0 }
    }
}

/// Added to the seed for the warm-up, modulo 2^32.
const WARMUP_SEED: u32 = 0xDEAD_BEEF;

impl RandomMixed {
    pub(super) fn program(&self) -> Result<RandomMixedProgram, TraceError> {
        let bad =
            |parameter, value, remedy| TraceError::BadParameter { workload: "random-mixed", parameter, value, remedy };
        if self.cycles == 0 {
            return Err(bad("cycles", 0, "must be at least 1"));
        }
        if self.ws == 0 || self.ws > SLOTS_MAX {
            return Err(bad("ws", self.ws as u64, "must be from 1 to 268435456 slots"));
        }
        if self.min > self.max {
            return Err(bad("min", self.min as u64, "must not be above max"));
        }
        let main = Xorshift32::new(self.seed).ok_or_else(|| bad("seed", 0, "must be at least 1"))?;
        let warm = match Xorshift32::new(self.seed.wrapping_add(WARMUP_SEED)) {
            Some(warm) => warm,
            None if self.warmup == 0 => main.clone(),
            None => {
                let remedy = "cannot be used with a warm-up, whose random numbers would all be 0; use another seed";
                return Err(bad("seed", self.seed as u64, remedy));
            }
        };
        let mut program = RandomMixedProgram {
            parameters: self.clone(),
            slots: vec![EMPTY; self.ws as usize],
            random: warm.clone(),
            warm,
            main,
            warmup_left: 0,
            cycles_left: 0,
        };
        program.reset();
        Ok(program)
    }
}

/// The slots then take 1 GiB.
const SLOTS_MAX: u32 = 1 << 28;
const EMPTY: u32 = u32::MAX;
const THREAD: ThreadId = ThreadId(0);

pub(super) struct RandomMixedProgram {
    parameters: RandomMixed,
    /// Object id of each slot.
    slots: Vec<u32>,
    /// The current random state, and the initial states of the warm-up and the main part.
    random: Xorshift32,
    warm: Xorshift32,
    main: Xorshift32,
    warmup_left: u64,
    cycles_left: u64,
}

impl Program for RandomMixedProgram {
    const STEP_EVENTS_MAX: usize = 1;
    const MARK_NAMES: &[&str] = &["main"];

    #[inline]
    fn step(&mut self, builder: &mut EventBuilder) -> bool {
        if self.warmup_left > 0 {
            self.warmup_left -= 1;
            if self.warmup_left > 0 {
                self.cycle(builder);
            } else {
                self.random = self.main.clone();
                builder.write(THREAD, Op::Mark { name: 0 });
            }
            return true;
        }
        if self.cycles_left == 0 {
            return false;
        }
        self.cycles_left -= 1;
        self.cycle(builder);
        true
    }

    fn reset(&mut self) {
        self.slots.fill(EMPTY);
        self.cycles_left = self.parameters.cycles;
        if self.parameters.warmup > 0 {
            self.warmup_left = self.parameters.warmup.saturating_add(1); // the last step writes the mark
            self.random = self.warm.clone();
        } else {
            self.warmup_left = 0;
            self.random = self.main.clone();
        }
    }
}

impl RandomMixedProgram {
    #[inline]
    fn cycle(&mut self, builder: &mut EventBuilder) {
        let drawn = self.random.next();
        let slot = &mut self.slots[(drawn % self.parameters.ws) as usize];
        if *slot != EMPTY {
            builder.free(THREAD, ObjectId(*slot));
            *slot = EMPTY;
        } else {
            let span = self.parameters.max as u64 - self.parameters.min as u64 + 1;
            let size = self.parameters.min as u64 + drawn as u64 % span;
            *slot = builder.alloc(THREAD, size, 0, AllocCall::Malloc, InitialTouch::FirstByte).0;
        }
    }
}
