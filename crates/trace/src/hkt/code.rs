//! Op codes: one byte per event. The op code determines how many values the event takes from each column.

use crate::event::{AllocCall, InitialTouch, ReallocCall};

pub(super) const FREE: u8 = 6; // below: the common allocations
pub(super) const ALLOC: u8 = 7;
pub(super) const REALLOC: u8 = 8;
pub(super) const REALLOC_FREE: u8 = 9;
pub(super) const REALLOC_UNKNOWN: u8 = 10;
pub(super) const FREE_NULL: u8 = 11;
pub(super) const FREE_UNKNOWN: u8 = 12;
pub(super) const USABLE_SIZE: u8 = 13;
pub(super) const ALLOC_FAILED: u8 = 14;
pub(super) const REALLOC_FAILED: u8 = 15;
pub(super) const THREAD_START: u8 = 16;
pub(super) const THREAD_EXIT: u8 = 17;
pub(super) const FORK: u8 = 18;
pub(super) const EXEC: u8 = 19;
pub(super) const MARK: u8 = 20;
pub(super) const TOUCH_READ: u8 = 21;
pub(super) const TOUCH_WRITE: u8 = 22;
pub(super) const MEMORY_POLICY: u8 = 23;
pub(super) const FORK_END: u8 = 24;

/// Call and initial touch of the common allocations, indexed by code.
pub(super) const COMMON: [(AllocCall, InitialTouch); FREE as usize] = [
    (AllocCall::Malloc, InitialTouch::None),
    (AllocCall::Malloc, InitialTouch::FirstByte),
    (AllocCall::Malloc, InitialTouch::All),
    (AllocCall::Calloc, InitialTouch::None),
    (AllocCall::Calloc, InitialTouch::FirstByte),
    (AllocCall::Calloc, InitialTouch::All),
];

/// The code of a common allocation; `None` for all other calls, aligned blocks and all other initial touches.
pub(super) fn common_alloc(call: AllocCall, initial_touch: InitialTouch, align_log2: u8) -> Option<u8> {
    let row = match call {
        AllocCall::Malloc => 0,
        AllocCall::Calloc => 3,
        _ => return None,
    };
    let touch = match initial_touch {
        InitialTouch::None => 0,
        InitialTouch::FirstByte => 1,
        InitialTouch::All => 2,
        _ => return None,
    };
    (align_log2 == 0).then_some(row + touch)
}

/// How many values a run of events takes from each column: 20 bits per column, packed into one word so that one
/// addition sums all columns.
#[derive(Clone, Copy)]
pub(super) struct Takes(u128);

const SIZE: u128 = 1;
const OBJECT: u128 = 1 << 20;
const DETAIL: u128 = 1 << 40;
const NUMBER: u128 = 1 << 60;
const OFFSET: u128 = 1 << 80;
const INVALID: u128 = 1 << 100;

impl Takes {
    /// The sum over these op codes. A chunk has at most 2^14 events, so no field overflows.
    pub(super) fn sum(ops: &[u8]) -> Self {
        // Nearly all events are common. Counting these needs no table.
        let frees = count(ops, |op| op == FREE);
        let others = count(ops, |op| op > FREE);
        let common = SIZE * (ops.len() - frees - others) as u128 + OBJECT * frees as u128;
        if others == 0 {
            return Takes(common);
        }
        Takes(common + ops.iter().filter(|&&op| op > FREE).map(|&op| TAKES[op as usize]).sum::<u128>())
    }

    pub(super) fn sizes(self) -> usize {
        self.field(0)
    }
    pub(super) fn objects(self) -> usize {
        self.field(1)
    }
    pub(super) fn details(self) -> usize {
        self.field(2)
    }
    pub(super) fn numbers(self) -> usize {
        self.field(3)
    }
    pub(super) fn offsets(self) -> usize {
        self.field(4)
    }
    /// Number of bytes that are not an op code.
    pub(super) fn invalid(self) -> usize {
        self.field(5)
    }

    fn field(self, index: u32) -> usize {
        (self.0 >> (20 * index)) as usize & 0xF_FFFF
    }
}

/// Number of op codes of a kind.
#[inline(always)]
fn count(ops: &[u8], is_counted: impl Fn(u8) -> bool) -> usize {
    // Sums of bytes are vectorised, and those of so few cannot overflow.
    let counts = ops.chunks(128).map(|ops| ops.iter().map(|&op| u8::from(is_counted(op))).sum::<u8>());
    counts.map(usize::from).sum()
}

static TAKES: [u128; 256] = {
    let mut table = [INVALID; 256];
    let mut code = 0;
    while code <= FORK_END {
        table[code as usize] = match code {
            FREE | USABLE_SIZE => OBJECT,
            ALLOC | REALLOC_UNKNOWN | ALLOC_FAILED => SIZE + DETAIL,
            REALLOC | REALLOC_FAILED => SIZE + OBJECT + DETAIL,
            REALLOC_FREE => OBJECT + DETAIL,
            FREE_NULL | FREE_UNKNOWN | THREAD_START | THREAD_EXIT | EXEC => 0,
            FORK | MARK => NUMBER,
            MEMORY_POLICY | FORK_END => DETAIL + NUMBER,
            TOUCH_READ | TOUCH_WRITE => OBJECT + OFFSET + NUMBER,
            _ => SIZE, // the common allocations
        };
        code += 1;
    }
    table
};

/// The detail of a call: function in bits 0..4, initial touch in bits 4..8, log2 of the alignment in bits 8..16.
#[derive(Clone, Copy)]
pub(super) struct Detail(pub(super) u16);

impl Detail {
    pub(super) fn of_alloc(call: AllocCall, initial_touch: InitialTouch, align_log2: u8) -> Self {
        Detail(call as u16 | (initial_touch_index(initial_touch) as u16) << 4 | (align_log2 as u16) << 8)
    }

    pub(super) fn of_realloc(call: ReallocCall, initial_touch: InitialTouch) -> Self {
        Detail(call as u16 | (initial_touch_index(initial_touch) as u16) << 4)
    }

    /// The detail of a memory policy: its kind in bits 0..4; bit 4 is set if it was inherited.
    pub(super) fn of_policy(kind: u8, inherited: bool) -> Self {
        Detail(u16::from(kind) | u16::from(inherited) << 4)
    }

    /// The detail of the end of a forked child: bit 0 is set if the child outlives the trace.
    pub(super) fn of_fork_end(outlives: bool) -> Self {
        Detail(u16::from(outlives))
    }

    pub(super) fn outlives(self) -> bool {
        self.0 & 1 == 1
    }

    pub(super) fn policy_kind(self) -> u8 {
        self.0 as u8 & 0xF
    }

    pub(super) fn is_inherited(self) -> bool {
        self.0 >> 4 & 1 == 1
    }

    pub(super) fn alloc_call(self) -> Option<AllocCall> {
        const CALLS: [AllocCall; 9] = [
            AllocCall::Malloc,
            AllocCall::Calloc,
            AllocCall::Realloc,
            AllocCall::Reallocarray,
            AllocCall::PosixMemalign,
            AllocCall::AlignedAlloc,
            AllocCall::Memalign,
            AllocCall::Valloc,
            AllocCall::Pvalloc,
        ];
        CALLS.get(self.0 as usize & 0xF).copied()
    }

    pub(super) fn realloc_call(self) -> Option<ReallocCall> {
        [ReallocCall::Realloc, ReallocCall::Reallocarray].get(self.0 as usize & 0xF).copied()
    }

    pub(super) fn initial_touch(self) -> Option<InitialTouch> {
        InitialTouch::ALL.get(self.0 as usize >> 4 & 0xF).copied()
    }

    pub(super) fn align_log2(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

fn initial_touch_index(initial_touch: InitialTouch) -> u8 {
    match initial_touch.whole() {
        InitialTouch::None | InitialTouch::PerPage(_) => 0,
        InitialTouch::FirstByte => 1,
        InitialTouch::All => 2,
        InitialTouch::Watched => 3,
        InitialTouch::Read => 4,
        InitialTouch::ReadThenWrite => 5,
    }
}
