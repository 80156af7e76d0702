//! Rules for finding the caller of a stack frame, computed from `.eh_frame` once per call address.

use core::mem::transmute;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
};

use crate::cache::Cache;
use crate::modules::{self, Module};
use crate::own_stack;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Number of address bits in a cache key; the generation is in the bits above.
const ADDRESS_BITS: u32 = 47;
/// Number of cached rules: 512 KiB.
const RULES_KEPT: usize = 32_768;

static CACHE: Cache<RULES_KEPT> = Cache::new();

/// A rule in one word, from the low bit: base, where rbp is saved, and the two offsets in bytes (30 bits each, signed).
#[derive(Clone, Copy)]
pub struct Rule(u64);

/// Base of the canonical frame address.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(dead_code, reason = "every pattern of three bits is a value")]
pub enum Base {
    /// Unknown; no cached rule has this base.
    Nothing = 0,
    /// rsp.
    Stack,
    /// rbp.
    Frame,
    /// The value stored at rbp plus the offset. Functions that align their stack use this.
    StoredAtFrame,
    /// The kernel's copy of all registers: the return frame of a signal handler.
    Signal,
    /// There is no caller.
    End,
    /// This code has no unwind rules; it may keep a chain of frame pointers.
    Chain,
    /// As `Chain`, in code that is not in a file.
    ChainNoFile,
}

/// Location of the caller's rbp.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Saved {
    /// In rbp.
    Same,
    /// At the canonical frame address plus the offset.
    AtCfa,
    /// At rbp plus the offset.
    AtFrame,
    /// Lost.
    Lost,
}

const SAVED_SHIFT: u32 = 3;
const OFFSET_BITS: u32 = 29;
const BASE_OFFSET_SHIFT: u32 = 5;
const SAVED_OFFSET_SHIFT: u32 = BASE_OFFSET_SHIFT + OFFSET_BITS;

impl Rule {
    fn new(base: Base, saved: Saved, base_offset: i64, saved_offset: i64) -> Self {
        const MASK: u64 = (1 << OFFSET_BITS) - 1;
        let fits = |offset: i64| offset << (64 - OFFSET_BITS) >> (64 - OFFSET_BITS) == offset;
        if !fits(base_offset) || !fits(saved_offset) {
            return Self::bare(Base::Chain);
        }
        Self(
            base as u64
                | (saved as u64) << SAVED_SHIFT
                | (base_offset as u64 & MASK) << BASE_OFFSET_SHIFT
                | (saved_offset as u64 & MASK) << SAVED_OFFSET_SHIFT,
        )
    }

    const fn bare(base: Base) -> Self {
        Self(base as u64)
    }

    /// Base of the canonical frame address.
    #[inline(always)]
    pub fn base(self) -> Base {
        // SAFETY: the type has 8 values, numbered from 0.
        unsafe { transmute::<u8, Base>((self.0 & 7) as u8) }
    }

    /// Location of the caller's rbp.
    #[inline(always)]
    pub fn saved(self) -> Saved {
        // SAFETY: the type has 4 values, numbered from 0.
        unsafe { transmute::<u8, Saved>((self.0 >> SAVED_SHIFT & 3) as u8) }
    }

    /// Bytes from the base to the canonical frame address, or to the word that stores it.
    #[inline(always)]
    pub fn base_offset(self) -> u64 {
        signed(self.0 >> BASE_OFFSET_SHIFT)
    }

    /// Offset in bytes of the saved rbp.
    #[inline(always)]
    pub fn saved_offset(self) -> u64 {
        signed(self.0 >> SAVED_OFFSET_SHIFT)
    }
}

/// The low [`OFFSET_BITS`] as a signed number, sign-extended for wrapping addition.
#[inline(always)]
const fn signed(bits: u64) -> u64 {
    ((bits << (64 - OFFSET_BITS)) as i64 >> (64 - OFFSET_BITS)) as u64
}

/// The rule for the code at `address`.
#[inline(always)]
pub fn of(address: u64, generation: u64) -> Rule {
    let key = address | generation << ADDRESS_BITS;
    match CACHE.get(key) {
        Some(rule) => Rule(rule),
        None => work_out(address, key),
    }
}

#[cold]
#[inline(never)]
fn work_out(address: u64, key: u64) -> Rule {
    // Code that is not in a file may change at any time, so its rules are not cached.
    let Some(module) = modules::find(address) else {
        return Rule::bare(Base::ChainNoFile);
    };
    // The interpreter's context takes several KiB.
    let rule = own_stack::run(|| from_tables(&module, address, &mut Context::new_in()));
    let rule = rule.unwrap_or(Rule::bare(Base::Chain));
    CACHE.put(key, rule.0);
    rule
}

fn from_tables(module: &Module, address: u64, context: &mut Context) -> Option<Rule> {
    let header = EhFrameHdr::new(module.bytes_from(module.eh_frame_hdr), LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame_hdr(module.eh_frame_hdr);
    let header = header.parse(&bases, 8).ok()?;
    let start = header.eh_frame_ptr().direct().ok()?;
    let frames = EhFrame::new(module.bytes_from(start), LittleEndian);
    let bases = bases.set_eh_frame(start);
    let frame = header.table()?.fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset).ok()?;
    if frame.is_signal_trampoline() {
        return Some(Rule::bare(Base::Signal));
    }
    let row = frame.unwind_info_for_address(&frames, &bases, context, address).ok()?;
    from_row(row, &frames)
}

fn from_row(row: &UnwindTableRow<usize, Inline>, frames: &EhFrame<Bytes<'_>>) -> Option<Rule> {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        Some(RegisterRule::Undefined) | None => return Some(Rule::bare(Base::End)),
        Some(_) => return None,
    }
    let (base, base_offset) = match row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => (Base::Stack, *offset),
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => (Base::Frame, *offset),
        CfaRule::RegisterAndOffset { .. } => return None,
        CfaRule::Expression(expression) => (Base::StoredAtFrame, frame_offset(expression, frames, &[DEREF])?),
    };
    let (saved, saved_offset) = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => (Saved::Same, 0),
        Some(RegisterRule::Offset(offset)) => (Saved::AtCfa, offset),
        Some(RegisterRule::Expression(expression)) => (Saved::AtFrame, frame_offset(&expression, frames, &[])?),
        Some(_) => (Saved::Lost, 0),
    };
    Some(Rule::new(base, saved, base_offset, saved_offset))
}

/// DWARF operations: rbp plus a signed number (`BREG_RBP`), and the value stored at an address (`DEREF`).
const BREG_RBP: u8 = 0x76;
const DEREF: u8 = 0x06;

/// The offset in an expression of the form "rbp plus offset", followed by `rest`; `None` for any other expression.
fn frame_offset(expression: &UnwindExpression<usize>, frames: &EhFrame<Bytes<'_>>, rest: &[u8]) -> Option<i64> {
    let bytes = expression.get::<Bytes<'_>, _>(frames).ok()?.0.slice();
    let (&operation, mut bytes) = bytes.split_first()?;
    if operation != BREG_RBP {
        return None;
    }
    let (mut value, mut shift) = (0_i64, 0);
    loop {
        let (&byte, after) = bytes.split_first()?;
        bytes = after;
        value |= i64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            let sign = i64::BITS - shift;
            return (bytes == rest).then_some(value << sign >> sign);
        }
        if shift > 28 {
            return None;
        }
    }
}

/// Storage of the table interpreter's registers. It is inline, because the recorder may not allocate.
struct Inline;

impl UnwindContextStorage<usize> for Inline {
    type Rules = [(Register, RegisterRule<usize>); 32];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

type Context = UnwindContext<usize, Inline>;
