//! The page-fault exceptions of this thread, each with the instruction that took it and the top of the stack.

use std::io;

use crate::perf::{self, Request};
use crate::ring::{HEADER_BYTES, RECORD_SAMPLE, Ring};
use crate::traps::{Mode, TrapCounter};

/// Words of the stack in a sample. The string functions of the C library, which zero and copy blocks, have their return
/// address among them.
pub const STACK_WORDS: usize = 8;
const STACK_BYTES: usize = STACK_WORDS * 8;
/// Number of the instruction pointer among the registers of a sample (`arch/*/include/uapi/asm/perf_regs.h`).
const INSTRUCTION_POINTER: u32 = if cfg!(target_arch = "aarch64") { 32 } else { 8 };
/// Bytes of a record: header, address, ABI and one register, size of the stack, the stack, and what of it is valid.
const RECORD_BYTES: usize = HEADER_BYTES + 8 + 16 + 8 + STACK_BYTES + 8;

/// An exception.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrapSample {
    /// The address accessed.
    pub address: u64,
    /// The instruction in user mode: the one that took the exception, or the system call in which it was taken.
    pub instruction: u64,
    /// The stack from the stack pointer on; zeros where it ends.
    pub stack: [u64; STACK_WORDS],
}

/// Samples every exception of this thread. Disabled until its counter is enabled.
#[derive(Debug)]
pub struct TrapSamples {
    counter: TrapCounter,
    ring: Ring,
    mode: Mode,
    drained: u64,
}

impl TrapSamples {
    /// Opens the samples with the largest ring that the kernel grants: those in system calls too if the user may see
    /// them, otherwise only those in user mode.
    ///
    /// # Errors
    /// The kernel refuses the event or the ring.
    pub fn open() -> io::Result<TrapSamples> {
        TrapSamples::in_mode(Mode::All).or_else(|_| TrapSamples::in_mode(Mode::User))
    }

    fn in_mode(mode: Mode) -> io::Result<TrapSamples> {
        let request = Request {
            sample_type: perf::SAMPLE_ADDRESS | perf::SAMPLE_REGISTERS | perf::SAMPLE_STACK,
            flags: mode.flags(),
            registers: 1 << INSTRUCTION_POINTER,
            stack_bytes: STACK_BYTES as u32,
            ..Request::default()
        };
        let counter = TrapCounter::with_samples(&request)?;
        let ring = counter.ring()?;
        Ok(TrapSamples { counter, ring, mode, drained: 0 })
    }

    /// The counter of the same exceptions.
    pub fn counter(&self) -> &TrapCounter {
        &self.counter
    }

    /// Which exceptions are sampled.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Number of samples that fit in the ring.
    pub fn capacity(&self) -> usize {
        self.ring.data_bytes() / RECORD_BYTES
    }

    /// Whether no sample waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.head() == self.ring.tail()
    }

    /// Removes the oldest sample.
    pub fn take(&mut self) -> Option<TrapSample> {
        loop {
            let tail = self.ring.tail();
            if tail >= self.ring.head() {
                return None;
            }
            let header = self.ring.header(tail);
            let sample = (header.kind == RECORD_SAMPLE).then(|| self.sample(tail, header.bytes));
            self.ring.release(tail + header.bytes);
            if sample.is_some() {
                self.drained += 1;
                return sample;
            }
        }
    }

    fn sample(&self, position: u64, bytes: u64) -> TrapSample {
        let mut words = [0u64; (RECORD_BYTES - HEADER_BYTES) / 8];
        for (at, word) in words.iter_mut().enumerate() {
            let offset = (HEADER_BYTES + at * 8) as u64;
            if offset + 8 <= bytes {
                let mut raw = [0; 8];
                self.ring.copy(position + offset, &mut raw);
                *word = u64::from_ne_bytes(raw);
            }
        }
        let [address, abi, rest @ ..] = words;
        // Without an ABI there are no registers.
        let (instruction, rest) = if abi == 0 { (0, &rest[..]) } else { (rest[0], &rest[1..]) };
        let mut sample = TrapSample { address, instruction, ..TrapSample::default() };
        // The size of the stack, the stack, and the number of bytes that could be read.
        let stack_words = (rest[0] as usize / 8).min(STACK_WORDS);
        let valid_words = (rest[1 + stack_words] as usize / 8).min(stack_words);
        sample.stack[..valid_words].copy_from_slice(&rest[1..=valid_words]);
        sample
    }

    /// Exceptions whose sample did not fit into the ring; exact after all waiting ones were removed.
    pub fn lost(&self) -> u64 {
        self.counter.count().saturating_sub(self.drained)
    }
}
