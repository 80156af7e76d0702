//! The dynamic section of a module that the dynamic linker has loaded: the symbols that it defines, and the slots
//! through which it calls functions of other modules.
//!
//! Everything is read from memory, so the module's file may be gone. The memory is that of this process or of another.

use core::ffi::CStr;

/// Memory that may belong to another process.
pub trait Memory {
    /// Fills `into` from `address` on; false if not all of it can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// The word at `address`.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

// Constants of the ELF format.
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_DEBUG: u64 = 21;
const DT_JMPREL: u64 = 23;
const DT_PLTRELSZ: u64 = 2;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_RELACOUNT: u64 = 0x6fff_fff9;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;
const RELOCATION_BYTES: u64 = 24;
const SYMBOL_BYTES: u64 = 24;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
/// Maximum number of entries of a dynamic section; linkers write some 40.
const ENTRIES_MAX: u64 = 1024;
/// Maximum number of symbols with one hash, against damaged tables.
const CHAIN_MAX: usize = 100_000;
/// Longest name that is compared, in bytes; the end is included.
const NAME_BYTES: usize = 64;

/// The parts of a dynamic section, as addresses in the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DynamicSection {
    bias: u64,
    symbols: u64,
    names: u64,
    calls: u64,
    calls_bytes: u64,
    relocations: u64,
    relocations_bytes: u64,
    /// Relocations at the start of `relocations` that name no symbol.
    relative: u64,
    hash: u64,
    gnu_hash: u64,
    /// Where the dynamic linker describes the loaded modules to debuggers (`struct r_debug`); 0 outside the program.
    pub debug: u64,
}

impl DynamicSection {
    /// The section at `address` of the module with this load bias; `None` if it cannot be read.
    pub fn read(memory: &impl Memory, bias: u64, address: u64) -> Option<Self> {
        let mut section = Self { bias, ..Self::default() };
        // The dynamic linker adds the bias to the addresses, unless the section is read-only.
        let moved = |value: u64| if value < bias { value.wrapping_add(bias) } else { value };
        for entry in 0..ENTRIES_MAX {
            let at = address + entry * 16;
            let (tag, value) = (memory.word(at)?, memory.word(at + 8)?);
            match tag {
                0 => return Some(section),
                DT_SYMTAB => section.symbols = moved(value),
                DT_STRTAB => section.names = moved(value),
                DT_JMPREL => section.calls = moved(value),
                DT_PLTRELSZ => section.calls_bytes = value,
                DT_RELA => section.relocations = moved(value),
                DT_RELASZ => section.relocations_bytes = value,
                DT_RELACOUNT => section.relative = value,
                DT_HASH => section.hash = moved(value),
                DT_GNU_HASH => section.gnu_hash = moved(value),
                DT_DEBUG => section.debug = value,
                _ => {}
            }
        }
        None
    }

    /// Calls `each` with the address of each slot that holds, or will hold, the address of a function in `names`, and
    /// with the index of the name.
    pub fn slots(&self, memory: &impl Memory, names: &[&CStr], each: &mut dyn FnMut(u64, usize)) {
        let skipped = self.relative.saturating_mul(RELOCATION_BYTES).min(self.relocations_bytes);
        let tables = [(self.calls, self.calls_bytes), (self.relocations + skipped, self.relocations_bytes - skipped)];
        for (start, bytes) in tables {
            for at in (0..bytes / RELOCATION_BYTES).map(|index| start + index * RELOCATION_BYTES) {
                let (Some(offset), Some(info)) = (memory.word(at), memory.word(at + 8)) else {
                    break;
                };
                if !matches!(info & 0xffff_ffff, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                    continue;
                }
                if let Some(index) = self.index_of_name(memory, info >> 32, names) {
                    each(self.bias.wrapping_add(offset), index);
                }
            }
        }
    }

    fn index_of_name(&self, memory: &impl Memory, symbol: u64, names: &[&CStr]) -> Option<usize> {
        let name = memory.word(self.symbols + symbol * SYMBOL_BYTES)? & 0xffff_ffff;
        let mut first = [0; 2];
        if !memory.read(self.names + name, &mut first) {
            return None;
        }
        names.iter().position(|wanted| wanted.to_bytes().starts_with(&first) && self.is_named(memory, name, wanted))
    }

    /// Whether the name at this offset of the names is `wanted`.
    fn is_named(&self, memory: &impl Memory, name: u64, wanted: &CStr) -> bool {
        let wanted = wanted.to_bytes_with_nul();
        let mut bytes = [0; NAME_BYTES];
        bytes.get_mut(..wanted.len()).is_some_and(|bytes| memory.read(self.names + name, bytes) && *bytes == *wanted)
    }

    /// The address of the function or variable `name`, if the module defines one; the first of its versions.
    pub fn symbol(&self, memory: &impl Memory, name: &CStr) -> Option<u64> {
        if self.gnu_hash == 0 { self.symbol_in_list(memory, name) } else { self.symbol_by_hash(memory, name) }
    }

    fn symbol_by_hash(&self, memory: &impl Memory, name: &CStr) -> Option<u64> {
        let half = |at: u64| memory.word(at & !7).map(|word| (word >> ((at & 4) * 8)) as u32);
        let (buckets, first) = (half(self.gnu_hash)?, half(self.gnu_hash + 4)?);
        let filter_words = half(self.gnu_hash + 8)?;
        let hash =
            name.to_bytes().iter().fold(5381_u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
        let table = self.gnu_hash + 16 + u64::from(filter_words) * 8;
        let chains = table + u64::from(buckets) * 4;
        let start = half(table + u64::from(hash.checked_rem(buckets)?) * 4)?;
        if start < first {
            return None;
        }
        for index in (start..=u32::MAX).take(CHAIN_MAX) {
            let found = half(chains + u64::from(index - first) * 4)?;
            if found | 1 == hash | 1
                && let Some(address) = self.symbol_at(memory, u64::from(index), name)
            {
                return Some(address);
            }
            if found & 1 != 0 {
                return None;
            }
        }
        None
    }

    /// [`Self::symbol`] for modules with only the older hash table, whose length is that of the symbols.
    fn symbol_in_list(&self, memory: &impl Memory, name: &CStr) -> Option<u64> {
        let symbols = memory.word(self.hash)? >> 32;
        (1..symbols).find_map(|index| self.symbol_at(memory, index, name))
    }

    /// The address of the symbol with this index, if it is defined and has that name.
    fn symbol_at(&self, memory: &impl Memory, index: u64, name: &CStr) -> Option<u64> {
        let at = self.symbols + index * SYMBOL_BYTES;
        let (head, value) = (memory.word(at)?, memory.word(at + 8)?);
        let (kind, section) = ((head >> 32) as u8 & 0xf, (head >> 48) as u16);
        let is_it =
            matches!(kind, STT_OBJECT | STT_FUNC) && section != 0 && self.is_named(memory, head & 0xffff_ffff, name);
        is_it.then(|| self.bias.wrapping_add(value))
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    /// This process's memory.
    struct Own;

    impl Memory for Own {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            // SAFETY: the tests read loaded modules only.
            unsafe { core::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len()) };
            true
        }
    }

    #[repr(C)]
    struct LinkMap {
        bias: u64,
        name: *const libc::c_char,
        section: u64,
    }

    /// The dynamic section of the C library, or of the program.
    fn section(name: &CStr) -> DynamicSection {
        // SAFETY: the handle of a loaded module points to its `struct link_map`.
        let map = unsafe {
            let name = if name.is_empty() { core::ptr::null() } else { name.as_ptr() };
            let handle = libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_NOLOAD);
            &*handle.cast::<LinkMap>()
        };
        DynamicSection::read(&Own, map.bias, map.section).expect("a dynamic section")
    }

    #[test]
    fn functions_have_the_addresses_that_the_dynamic_linker_finds() {
        let section = section(c"libc.so.6");
        for name in [c"malloc", c"calloc", c"realloc", c"free", c"fork", c"posix_memalign", c"dlopen", c"dlerror"] {
            // SAFETY: the name is a C string.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as u64;
            assert_eq!(section.symbol(&Own, name), Some(expected), "{name:?}");
        }
        assert_eq!(section.symbol(&Own, c"mallocs"), None);
        assert_eq!(section.symbol(&Own, c"hksim_no_such_function"), None);
    }

    #[test]
    fn slots_hold_the_addresses_of_their_functions() {
        let names = [c"getauxval", c"posix_memalign", c"free"];
        // SAFETY: the names are C strings.
        let addresses = names.map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as u64);
        let mut found = 0;
        section(c"").slots(&Own, &names, &mut |slot, index| {
            // A lazy slot points into the program itself.
            let held = Own.word(slot).expect("readable");
            let here = slots_hold_the_addresses_of_their_functions as *const () as u64;
            assert!(held == addresses[index] || held.abs_diff(here) < 1 << 32, "{:?}: {held:#x}", names[index]);
            found += 1;
        });
        assert!(found > 0, "the program frees memory");
    }
}
