//! Walks the stack of the calling thread with the program's own unwind tables.
//!
//! Each step applies the rule for its call address to the present stack; nothing is inferred from earlier calls. Tables
//! may be wrong, so a word is read only from memory that is known to be mapped.

use core::arch::naked_asm;
use core::mem::MaybeUninit;
use core::slice;

use hksim_linux_probe::PAGE_BYTES as PAGE;

use crate::stacks::DEPTH_MAX;
use crate::unwind_rules::{self, Base, Saved};
use crate::{arch, modules, sys};

/// First address after user space.
const ADDRESSES_END: u64 = 1 << 47;
/// Maximum number of frames of the recorder itself below the program's.
const OWN_FRAMES_MAX: usize = 16;
/// Largest plausible frame in a chain of frame pointers, in bytes.
const CHAIN_FRAME_MAX: u64 = 1 << 20;
/// How far the stack may reach below its known range, in bytes.
const STACK_STEP_MAX: u64 = 256 << 10;
/// Offset from the stack pointer to the kernel's copy of the registers in a signal frame, in bytes.
const SIGNAL_RBP: u64 = 120;
const SIGNAL_RSP: u64 = 160;
const SIGNAL_RIP: u64 = 168;

/// Call addresses, innermost first. Each is the address of the call instruction's last byte, or of the instruction that
/// a signal interrupted.
pub struct Stack {
    addresses: [MaybeUninit<u64>; DEPTH_MAX],
    depth: usize,
}

impl Stack {
    /// An empty stack.
    #[inline(always)]
    pub const fn new() -> Self {
        Self { addresses: [MaybeUninit::uninit(); DEPTH_MAX], depth: 0 }
    }

    /// The frames.
    #[inline(always)]
    pub fn frames(&self) -> &[u64] {
        // SAFETY: the first `depth` addresses are written, and `depth` never exceeds DEPTH_MAX.
        unsafe { slice::from_raw_parts(self.addresses.as_ptr().cast(), self.depth) }
    }

    /// Adds a frame; there must be fewer than DEPTH_MAX.
    #[inline(always)]
    fn push(&mut self, address: u64) {
        if let Some(place) = self.addresses.get_mut(self.depth) {
            place.write(address);
            self.depth += 1;
        }
    }
}

/// Addresses of the recorder's own code, whose frames are left out.
#[derive(Clone, Copy)]
pub struct Own {
    /// First address.
    pub start: u64,
    /// Number of bytes.
    pub bytes: u64,
}

#[repr(C)]
struct Registers {
    rip: u64,
    rsp: u64,
    rbp: u64,
}

/// Stores the registers with the values that they will have after this function returns.
#[unsafe(naked)]
extern "C" fn capture(registers: &mut Registers) {
    naked_asm!(
        "mov rax, [rsp]",
        "mov [rdi], rax",
        "lea rax, [rsp + 8]",
        "mov [rdi + 8], rax",
        "mov [rdi + 16], rbp",
        "ret",
    )
}

/// Stores up to `depth` of the caller's frames in `stack`, without the recorder's own frames.
#[inline(always)]
pub fn walk(depth: usize, own: Own, stack: &mut Stack) {
    let mut at = Registers { rip: 0, rsp: 0, rbp: 0 };
    capture(&mut at);
    let generation = modules::generation();
    let mut memory = Memory::around(at.rsp);
    // Return address minus 1 is in the call instruction.
    let mut address = at.rip - 1;
    for _ in 0..depth + OWN_FRAMES_MAX {
        if address.wrapping_sub(own.start) >= own.bytes {
            stack.push(address);
            if stack.depth >= depth {
                break;
            }
        }
        let rule = unwind_rules::of(address, generation);
        let Some(next) = memory.step(&at, address, rule) else {
            break;
        };
        at = next;
        address = at.rip.wrapping_sub(u64::from(rule.base() != Base::Signal));
        if address.wrapping_sub(PAGE) >= ADDRESSES_END - PAGE {
            break;
        }
    }
    memory.keep();
}

/// Memory known to be readable: a range of the thread's stack.
struct Memory {
    low: u64,
    high: u64,
}

impl Memory {
    /// The known range of the stack that `rsp` points into.
    #[inline(always)]
    fn around(rsp: u64) -> Self {
        let (low, high) = arch::stack_range();
        let page = rsp & !(PAGE - 1);
        if rsp.wrapping_sub(low) < high.wrapping_sub(low) {
            Self { low, high }
        } else if rsp < low && low - rsp < STACK_STEP_MAX {
            Self { low: page, high }
        } else {
            Self { low: page, high: page + PAGE }
        }
    }

    #[inline(always)]
    fn keep(&self) {
        arch::set_stack_range(self.low, self.high);
    }

    #[inline(always)]
    fn step(&mut self, at: &Registers, address: u64, rule: unwind_rules::Rule) -> Option<Registers> {
        let cfa = match rule.base() {
            Base::Stack => at.rsp.wrapping_add(rule.base_offset()),
            Base::Frame => at.rbp.wrapping_add(rule.base_offset()),
            Base::StoredAtFrame => self.read(at.rbp.wrapping_add(rule.base_offset()))?,
            Base::Signal => return self.step_out_of_signal(at),
            Base::End | Base::Nothing => return None,
            Base::Chain | Base::ChainNoFile => return self.step_by_chain(at, address),
        };
        if cfa <= at.rsp {
            return None;
        }
        let rbp = match rule.saved() {
            Saved::Same => at.rbp,
            Saved::AtCfa => self.read(cfa.wrapping_add(rule.saved_offset()))?,
            Saved::AtFrame => self.read(at.rbp.wrapping_add(rule.saved_offset()))?,
            Saved::Lost => 0,
        };
        Some(Registers { rip: self.read(cfa - 8)?, rsp: cfa, rbp })
    }

    /// Steps from a signal handler to the interrupted code. That code may use another stack, at a higher or lower
    /// address.
    #[cold]
    fn step_out_of_signal(&mut self, at: &Registers) -> Option<Registers> {
        let rip = self.read(at.rsp + SIGNAL_RIP)?;
        let rsp = self.read(at.rsp + SIGNAL_RSP)?;
        Some(Registers { rip, rsp, rbp: self.read(at.rsp + SIGNAL_RBP)? })
    }

    /// Follows the frame pointer, but only if it leads up the stack and to code.
    #[cold]
    fn step_by_chain(&mut self, at: &Registers, address: u64) -> Option<Registers> {
        if at.rbp < at.rsp || at.rbp - at.rsp > CHAIN_FRAME_MAX {
            return None;
        }
        let (rbp, rip) = (self.read(at.rbp)?, self.read(at.rbp + 8)?);
        // The return address must be in a file. Only generated code may be called by other generated code.
        let leads_to_code = modules::find(rip.wrapping_sub(1)).is_some() || modules::find(address).is_none();
        (leads_to_code && rip.wrapping_sub(self.low) >= self.high - self.low).then_some(Registers {
            rip,
            rsp: at.rbp + 16,
            rbp,
        })
    }

    /// The word at `address`; `None` if it is not readable.
    #[inline(always)]
    fn read(&mut self, address: u64) -> Option<u64> {
        if address.wrapping_sub(self.low) > self.high - self.low - 8 {
            self.learn(address)?;
        }
        // SAFETY: the word is in memory of this thread's stack that was found readable.
        Some(unsafe { (address as *const u64).read_unaligned() })
    }

    /// Extends the known range to the word at `address`; `None` if the word is not readable.
    #[cold]
    #[inline(never)]
    fn learn(&mut self, address: u64) -> Option<()> {
        if !address.is_multiple_of(8) || !(PAGE..ADDRESSES_END).contains(&address) {
            return None;
        }
        let page = address & !(PAGE - 1);
        if page < self.high || page - self.high > CHAIN_FRAME_MAX {
            return sys::is_readable(page).then_some(());
        }
        while self.high <= page {
            if !sys::is_readable(self.high) {
                return None;
            }
            self.high += PAGE;
        }
        Some(())
    }
}
