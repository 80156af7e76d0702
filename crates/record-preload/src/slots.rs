//! The slots of the loaded modules through which the program calls functions that the recorder replaces. An attached
//! recorder writes its own functions into them, and the former values back.
//!
//! All of this happens in callbacks of `dl_iterate_phdr`, so no module can be unloaded meanwhile, and two threads do not
//! change slots at the same time.

use core::ffi::{CStr, c_int};
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use libc::{Elf64_Phdr, c_void, dl_phdr_info, size_t};

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::dynamic_section::{DynamicSection, Memory};

use crate::attachment::Slot;
use crate::{real, sys};

const PT_GNU_RELRO: u32 = 0x6474_e552;
/// Maximum number of slots whose former values are kept. Further slots get the function's address back instead of that
/// of the code that looks it up at the first call.
const KEPT_MAX: usize = 1 << 16;

/// Former values of the changed slots, in the order of the changes; null before the first.
static KEPT: AtomicPtr<Slot> = AtomicPtr::new(null_mut());
static KEPT_USED: AtomicUsize = AtomicUsize::new(0);

/// A function that the recorder replaces.
pub struct Replaced {
    /// Its name.
    pub name: &'static CStr,
    /// The recorder's function.
    pub by: *const c_void,
    /// The program's function; 0 if it has none, or before [`Slots::find`].
    pub function: AtomicU64,
}

// SAFETY: `by` is the address of a function.
unsafe impl Sync for Replaced {}

impl Replaced {
    /// Whether a slot contains the recorder's function.
    fn is_in(&self, value: u64) -> bool {
        value == self.by as u64
    }
}

/// What the slots that `hksim` redirected contain, and what they contained before.
#[derive(Clone, Copy)]
pub struct Redirected<'a> {
    /// First address of the instructions to which they lead.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The slots.
    pub slots: &'a [Slot],
}

impl Redirected<'_> {
    /// The value that the slot at `address` had, if it contains `value` because it was redirected.
    fn former(&self, address: u64, value: u64) -> Option<u64> {
        let slot = || self.slots.iter().find(|slot| slot.address == address).map(|slot| slot.value);
        if (self.start..self.end).contains(&value) { slot() } else { None }
    }
}

/// The memory of this process.
struct Own;

impl Memory for Own {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        // SAFETY: only parts of loaded modules are read, during `dl_iterate_phdr`: no module is unloaded meanwhile.
        unsafe { core::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len()) };
        true
    }
}

/// What happens to the slots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// They get the recorder's functions.
    Replace,
    /// They get their former values.
    Restore,
}

/// All slots of the process.
pub struct Slots<'a> {
    /// The functions, and their names in the same order.
    pub functions: &'static [Replaced],
    pub names: &'static [&'static CStr],
    /// Slots that lead to `hksim`'s instructions.
    pub redirected: Redirected<'a>,
    /// Whether a slot whose function is not looked up yet would get the program's function. Not so in a library with an
    /// allocator of its own, which only the dynamic linker knows.
    pub lazy: bool,
}

/// Argument of the callbacks.
struct Walk<'a> {
    slots: &'a Slots<'a>,
    change: Change,
    /// Slots that contain one of the recorder's functions after the walk.
    replaced: usize,
    /// Former values that were kept before the walk.
    known: usize,
    /// Where the search for a former value begins.
    next: usize,
}

impl Slots<'_> {
    /// Looks up the program's functions.
    pub fn find(&self) {
        for replaced in self.functions {
            replaced.function.store(real::find(replaced.name) as u64, Ordering::Relaxed);
        }
    }

    /// Writes the recorder's functions into all slots that contain the program's. Returns the number of slots that
    /// contain one of the recorder's functions.
    pub fn replace(&self) -> usize {
        self.walk(Change::Replace)
    }

    /// Writes the former values into all slots that contain a function of the recorder.
    pub fn restore(&self) {
        self.walk(Change::Restore);
        KEPT_USED.store(0, Ordering::Relaxed);
    }

    fn walk(&self, change: Change) -> usize {
        let mut walk = Walk { slots: self, change, replaced: 0, known: kept().len(), next: 0 };
        // SAFETY: the callback takes a Walk, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut walk).cast()) };
        walk.replaced
    }
}

/// The search for the definition of a function.
struct Search<'a> {
    name: &'a CStr,
    address: u64,
    /// Whether `address` is a stub of the executable.
    is_stub: bool,
}

/// The function `name` that `dlsym` found at `address`. An executable at a fixed address has a stub for each function
/// whose address it takes, and `dlsym` finds the stub. It jumps through a slot, so the recorder's function in that slot
/// would call itself.
pub fn without_stub(name: &CStr, address: u64) -> u64 {
    let mut search = Search { name, address, is_stub: false };
    // SAFETY: the callback takes a Search, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_for), (&raw mut search).cast()) };
    search.address
}

/// The first module is the executable; the others follow in the order in which they are searched.
unsafe extern "C" fn look_for(info: *mut dl_phdr_info, _size: size_t, search: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and the pointer it was given.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    // SAFETY: `dlpi_phnum` headers are at `dlpi_phdr`.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let module = LoadedModule::new(info.dlpi_addr, headers);
    let section = module.section.and_then(|at| DynamicSection::read(&Own, module.bias, at));
    let defined = section.and_then(|section| section.symbol(&Own, search.name));
    if !search.is_stub {
        search.is_stub = defined.is_none() && module.contains(search.address);
        return c_int::from(!search.is_stub);
    }
    if module.contains(look_for as *const () as u64) {
        return 0;
    }
    search.address = defined.unwrap_or(search.address);
    c_int::from(defined.is_some())
}

unsafe extern "C" fn visit(info: *mut dl_phdr_info, _size: size_t, walk: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and the pointer it was given.
    let (info, walk) = unsafe { (&*info, &mut *walk.cast::<Walk<'_>>()) };
    // SAFETY: `dlpi_phnum` headers are at `dlpi_phdr`.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let module = LoadedModule::new(info.dlpi_addr, headers);
    if module.contains(visit as *const () as u64) {
        return 0;
    }
    // SAFETY: the name is null or a C string.
    let is_program = info.dlpi_name.is_null() || unsafe { *info.dlpi_name } == 0;
    walk.module(&module, is_program);
    0
}

impl Walk<'_> {
    fn module(&mut self, module: &LoadedModule, is_program: bool) {
        let Some(section) = module.section.and_then(|at| DynamicSection::read(&Own, module.bias, at)) else {
            return;
        };
        let mut is_open = false;
        section.slots(&Own, self.slots.names, &mut |address, index| {
            let Some(replaced) = self.slots.functions.get(index) else {
                return;
            };
            if !address.is_multiple_of(8) || !module.contains(address) {
                return;
            }
            // SAFETY: the slot is an aligned word of a loaded module, which other threads only read.
            let slot = unsafe { AtomicU64::from_ptr(address as *mut u64) };
            let value = slot.load(Ordering::Relaxed);
            let new = match self.change {
                Change::Replace => self.replacement(module, replaced, address, value, is_program),
                Change::Restore => self.former(replaced, address, value),
            };
            let Some(new) = new else {
                self.replaced += usize::from(replaced.is_in(value));
                return;
            };
            if module.is_protected(address) && !is_open {
                is_open = module.protect(libc::PROT_READ | libc::PROT_WRITE);
                if !is_open {
                    return;
                }
            }
            slot.store(new, Ordering::Release);
            self.replaced += usize::from(replaced.is_in(new));
        });
        if is_open {
            module.protect(libc::PROT_READ);
        }
    }

    /// The recorder's function for a slot with this value; `None` if the slot stays as it is.
    fn replacement(
        &self,
        module: &LoadedModule,
        replaced: &Replaced,
        address: u64,
        value: u64,
        is_program: bool,
    ) -> Option<u64> {
        let former = self.slots.redirected.former(address, value);
        let before = former.unwrap_or(value);
        if replaced.is_in(before) {
            return former;
        }
        let function = replaced.function.load(Ordering::Relaxed);
        let is_lazy = (self.slots.lazy || is_program) && module.contains(before);
        if function == 0 || (before != function && !is_lazy) {
            return former;
        }
        keep(Slot { address, value: before }, self.known);
        Some(replaced.by as u64)
    }

    /// The former value of a slot with this value; `None` if it contains no function of the recorder.
    fn former(&mut self, replaced: &Replaced, address: u64, value: u64) -> Option<u64> {
        let former = self.slots.redirected.former(address, value);
        if !replaced.is_in(former.unwrap_or(value)) {
            return former;
        }
        let kept = kept();
        // The slots are usually restored in the order in which they were changed.
        let (before, after) = kept.split_at(self.next.min(kept.len()));
        let mut all = after.iter().chain(before).enumerate();
        let Some((distance, slot)) = all.find(|(_, slot)| slot.address == address) else {
            return Some(replaced.function.load(Ordering::Relaxed));
        };
        self.next = (self.next + distance + 1) % kept.len().max(1);
        Some(slot.value)
    }
}

/// Keeps a former value. One of the first `known` values may be that of a slot at the same address, in a module that is
/// gone; it is replaced.
fn keep(slot: Slot, known: usize) {
    let mut all = KEPT.load(Ordering::Relaxed);
    if all.is_null() {
        all = sys::map_unbacked(KEPT_MAX * size_of::<Slot>()).cast();
        KEPT.store(all, Ordering::Relaxed);
    }
    let used = KEPT_USED.load(Ordering::Relaxed);
    let earlier = kept().iter().take(known).position(|kept| kept.address == slot.address);
    let index = earlier.unwrap_or(used);
    if all.is_null() || index == KEPT_MAX {
        return;
    }
    // SAFETY: the mapping holds that many slots, and only one thread at a time uses them.
    unsafe { all.add(index).write(slot) };
    KEPT_USED.store(used.max(index + 1), Ordering::Relaxed);
}

fn kept() -> &'static [Slot] {
    match KEPT.load(Ordering::Relaxed) {
        kept if kept.is_null() => &[],
        // SAFETY: these slots are written, and the caller is the only one that may change them.
        kept => unsafe { slice::from_raw_parts(kept, KEPT_USED.load(Ordering::Relaxed)) },
    }
}

/// A module as the dynamic linker lists it.
struct LoadedModule<'a> {
    bias: u64,
    headers: &'a [Elf64_Phdr],
    /// Address of its dynamic section.
    section: Option<u64>,
    /// The pages that are read-only after the dynamic linker has filled them: first address, and the one after the last.
    protected: (u64, u64),
}

impl<'a> LoadedModule<'a> {
    fn new(bias: u64, headers: &'a [Elf64_Phdr]) -> Self {
        let find = |kind| headers.iter().find(|header| header.p_type == kind);
        let page = |address: u64| bias.wrapping_add(address) & !(PAGE_BYTES - 1);
        let protected = find(PT_GNU_RELRO)
            .map_or((0, 0), |header| (page(header.p_vaddr), page(header.p_vaddr.wrapping_add(header.p_memsz))));
        let section = find(libc::PT_DYNAMIC).map(|header| bias.wrapping_add(header.p_vaddr));
        Self { bias, headers, section, protected }
    }

    fn contains(&self, address: u64) -> bool {
        self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
            let start = self.bias.wrapping_add(header.p_vaddr);
            (start..start.saturating_add(header.p_memsz)).contains(&address)
        })
    }

    fn is_protected(&self, address: u64) -> bool {
        (self.protected.0..self.protected.1).contains(&address)
    }

    fn protect(&self, protection: c_int) -> bool {
        sys::protect(self.protected.0, (self.protected.1 - self.protected.0) as usize, protection)
    }
}
