//! Registers and stack of a thread at a memory call, from which its callers are found.

/// Number of registers in DWARF's numbering of x86-64, the return address included.
pub const REGISTERS: usize = 17;
/// DWARF numbers of the stack pointer, and of the return address: here the instruction pointer.
pub const STACK_POINTER: usize = 7;
pub const INSTRUCTION_POINTER: usize = 16;
/// DWARF number of rbp.
pub const FRAME_POINTER: usize = 6;

/// Maximum number of bytes of a dump.
pub const STACK_BYTES: u32 = 16 << 10;

/// The registers that a function preserves for its caller, and the instruction pointer: bits in the kernel's numbering
/// (`arch/x86/include/uapi/asm/perf_regs.h`), ascending, with their DWARF numbers. Empty if call stacks are not
/// supported on this processor.
#[cfg(target_arch = "x86_64")]
pub const SAMPLED: &[(u32, usize)] = &[(1, 3), (6, 6), (7, 7), (8, 16), (20, 12), (21, 13), (22, 14), (23, 15)];
#[cfg(not(target_arch = "x86_64"))]
pub const SAMPLED: &[(u32, usize)] = &[];

/// The mask of [`SAMPLED`].
pub fn sampled_mask() -> u64 {
    SAMPLED.iter().map(|(bit, _)| 1 << bit).sum()
}

/// Registers by DWARF number; `None` if the value is not known.
pub type Registers = [Option<u64>; REGISTERS];

/// Registers, and the bytes from the stack pointer on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackDump {
    pub registers: Registers,
    pub bytes: Vec<u8>,
}

/// Why a word cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It lies beyond the end of the dump.
    Beyond,
    /// It is elsewhere.
    Elsewhere,
}

impl StackDump {
    /// The word at an address of the dumped thread.
    pub fn word(&self, address: u64) -> Result<u64, Unreadable> {
        let start = self.registers[STACK_POINTER].ok_or(Unreadable::Elsewhere)?;
        let at = address.checked_sub(start).ok_or(Unreadable::Elsewhere)?;
        let at = usize::try_from(at).map_err(|_| Unreadable::Elsewhere)?;
        let bytes = at.checked_add(8).and_then(|end| self.bytes.get(at..end)).ok_or(Unreadable::Beyond)?;
        Ok(bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
    }
}
