//! Allocator functions by name.

use crate::event::{AllocCall, InitialTouch, ReallocCall};
use crate::resolve::RawOp;

/// What a named function does, and the order of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `(size)`.
    Alloc(AllocCall),
    /// `calloc(n, size)`.
    Calloc,
    /// `(alignment, size)`: aligned_alloc, memalign, and posix_memalign without its first argument.
    Aligned(AllocCall),
    /// `(size, alignment)`: C++'s aligned operator new.
    AlignedNew,
    /// `realloc(old, size)`.
    Realloc,
    /// `reallocarray(old, n, size)`.
    Reallocarray,
    /// `(block)`, possibly with more arguments.
    Free,
    /// `malloc_usable_size(block)`.
    UsableSize,
}

/// log2 of the alignment of valloc and pvalloc: the page size.
const PAGE_LOG2: u8 = 12;

impl Function {
    /// The function with this C name or mangled C++ operator name.
    pub fn named(name: &str) -> Option<Function> {
        Some(match name {
            "malloc" | "__builtin_new" | "__builtin_vec_new" => Function::Alloc(AllocCall::Malloc),
            "calloc" => Function::Calloc,
            "realloc" => Function::Realloc,
            "reallocarray" => Function::Reallocarray,
            "posix_memalign" => Function::Aligned(AllocCall::PosixMemalign),
            "aligned_alloc" => Function::Aligned(AllocCall::AlignedAlloc),
            "memalign" => Function::Aligned(AllocCall::Memalign),
            "valloc" => Function::Alloc(AllocCall::Valloc),
            "pvalloc" => Function::Alloc(AllocCall::Pvalloc),
            "malloc_usable_size" => Function::UsableSize,
            "free" | "cfree" | "free_sized" | "free_aligned_sized" | "__builtin_delete" | "__builtin_vec_delete" => {
                Function::Free
            }
            _ => return Function::operator(name),
        })
    }

    /// operator new (`_Znw`, `_Zna`, with a size of 64 bits `m` or 32 bits `j`) and operator delete (`_Zdl`, `_Zda`).
    fn operator(name: &str) -> Option<Function> {
        if name.starts_with("_ZdlPv") || name.starts_with("_ZdaPv") {
            return Some(Function::Free);
        }
        let rest = name.strip_prefix("_Znw").or(name.strip_prefix("_Zna"))?;
        let rest = rest.strip_prefix(['m', 'j'])?;
        match rest {
            "" | "RKSt9nothrow_t" => Some(Function::Alloc(AllocCall::Malloc)),
            "St11align_val_t" | "St11align_val_tRKSt9nothrow_t" => Some(Function::AlignedNew),
            _ => None,
        }
    }

    /// Number of leading arguments that [`Function::op`] needs.
    pub fn arguments(self) -> usize {
        match self {
            Function::Alloc(_) | Function::Free | Function::UsableSize => 1,
            Function::Calloc | Function::Aligned(_) | Function::AlignedNew | Function::Realloc => 2,
            Function::Reallocarray => 3,
        }
    }

    /// The call with these arguments. `result` is the returned block, or 0 if the call failed. It is ignored for
    /// functions that return no block.
    ///
    /// # Errors
    /// An alignment above 2^63.
    pub fn op(self, arguments: [u64; 3], result: u64) -> Result<RawOp, &'static str> {
        let [first, second, third] = arguments;
        let alloc = |size, align_log2, call| RawOp::Alloc {
            address: result,
            size,
            align_log2,
            call,
            initial_touch: InitialTouch::None,
        };
        let resize =
            |size, call| RawOp::Realloc { old: first, new: result, size, call, initial_touch: InitialTouch::None };
        Ok(match self {
            Function::Alloc(call @ (AllocCall::Valloc | AllocCall::Pvalloc)) => alloc(first, PAGE_LOG2, call),
            Function::Alloc(call) => alloc(first, 0, call),
            Function::Calloc => alloc(first.saturating_mul(second), 0, AllocCall::Calloc),
            Function::Aligned(call) => alloc(second, align_log2(first)?, call),
            Function::AlignedNew => alloc(first, align_log2(second)?, AllocCall::AlignedAlloc),
            Function::Realloc => resize(second, ReallocCall::Realloc),
            Function::Reallocarray => resize(second.saturating_mul(third), ReallocCall::Reallocarray),
            Function::Free => RawOp::Free { address: first },
            Function::UsableSize => RawOp::UsableSize { address: first },
        })
    }
}

/// log2 of an alignment, which is rounded up to a power of two. Allocators that accept other values do the same.
pub(crate) fn align_log2(align: u64) -> Result<u8, &'static str> {
    align.max(1).checked_next_power_of_two().map(|align| align.ilog2() as u8).ok_or("the alignment is above 2^63")
}
