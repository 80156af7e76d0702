//! The allocator's code: which return addresses on a stack are in it.

use std::ops::Range;

use hksim_linux_probe::maps::Maps;

use super::record::Place;

/// Ranges of code that are kept of a file.
const RANGES: usize = 4;

/// The executable ranges of the file that defines `malloc`, and the end of this thread's stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllocatorCode {
    ranges: [Range<u64>; RANGES],
    stack_end: u64,
}

impl AllocatorCode {
    /// The code of the `malloc` that this process uses.
    pub(crate) fn find(maps: &Maps) -> AllocatorCode {
        // SAFETY: looks a name up; the address is not used as a pointer.
        let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) }.addr();
        let here = 0u8;
        let stack = (&raw const here).addr();
        let containing =
            |address: usize| maps.iter().find(move |map| (map.start..map.start + map.bytes).contains(&address));
        let file = containing(malloc).map_or("", |map| map.name);
        let stack_end = containing(stack).map_or(0, |map| (map.start + map.bytes) as u64);
        let mut code = AllocatorCode { stack_end, ..AllocatorCode::default() };
        let executable = maps.iter().filter(|map| map.is_executable && map.name == file);
        for (range, map) in code.ranges.iter_mut().zip(executable) {
            *range = map.start as u64..(map.start + map.bytes) as u64;
        }
        code
    }

    fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    /// Whether an address is one to which a call in the allocator's code returns: the instruction before is a call.
    fn is_return_address(&self, address: u64) -> bool {
        /// Bytes of the longest form of a call.
        const CALL_BYTES_MAX: u64 = 7;
        if !self.contains(address) || !self.contains(address.wrapping_sub(CALL_BYTES_MAX)) {
            return false;
        }
        // SAFETY: both addresses are in one mapping of code, which can be read.
        let before = |bytes: u64| unsafe { ((address - bytes) as *const u8).read_volatile() };
        if cfg!(target_arch = "aarch64") {
            // `bl`, or `blr` of a register.
            return before(1) >> 2 == 0b10_0101 || (before(1), before(2)) == (0xd6, 0x3f);
        }
        // `call rel32`, or `call` of a register or of memory with the lengths that its operand can have.
        let is_indirect = |bytes: u64| before(bytes) == 0xff && before(bytes - 1) >> 3 & 7 == 2;
        before(5) == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(is_indirect)
    }

    /// An instruction with the callers that `words` of its stack show, the innermost first.
    pub(crate) fn place(&self, instruction: u64, words: impl IntoIterator<Item = u64>) -> Place {
        let mut place = Place { instruction, ..Place::default() };
        let callers = words.into_iter().filter(|&word| self.is_return_address(word));
        for (caller, address) in place.callers.iter_mut().zip(callers) {
            *caller = address;
        }
        place
    }

    /// The words of this thread's stack from `pointer` on.
    pub(crate) fn stack_words(&self, pointer: u64) -> impl Iterator<Item = u64> + use<> {
        /// Bytes of the stack that are searched: those of the wrapper of a call and of the functions above it.
        const SEARCHED_BYTES: u64 = 1 << 10;
        let pointer = pointer.next_multiple_of(8);
        let end = self.stack_end.min(pointer + SEARCHED_BYTES);
        // SAFETY: between the stack pointer and the end of the stack, all is mapped.
        (pointer..end).step_by(8).map(|at| unsafe { (at as *const u64).read_volatile() })
    }
}
