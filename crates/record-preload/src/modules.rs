//! The program and its shared objects, as loaded by the dynamic linker.

use core::ffi::{CStr, c_int};
use core::mem::{MaybeUninit, transmute};
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use libc::{Elf64_Ehdr, Elf64_Phdr, c_char, c_void, dl_phdr_info, size_t};

use hksim_linux_probe::PAGE_BYTES;

use crate::{real, site, sys};

/// `_dl_find_object`, if glibc has it (2.35): it takes no lock.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Incremented when objects are unloaded, which invalidates cached information about addresses.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Number of unloaded objects at the last check.
static GONE: AtomicU64 = AtomicU64::new(0);

// Constants of the ELF format.
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_R: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
/// Bytes of a note's header: lengths of name and content, kind.
const NOTE_BYTES: usize = 12;

/// A loaded object.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// Load bias: address in the process minus address in the file.
    pub bias: u64,
    /// Address of `.eh_frame_hdr`; 0 if there is none.
    pub eh_frame_hdr: u64,
    /// Its path in the dynamic linker's list: empty for the program, null if unknown.
    pub name: *const c_char,
}

/// glibc's `struct dl_find_object`.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: u64,
    map_end: u64,
    link_map: *const LinkMap,
    eh_frame: u64,
    reserved: [u64; 8],
}

/// The public fields at the start of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    addr: u64,
    name: *const c_char,
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int;

/// Looks up `_dl_find_object`; may allocate.
pub fn begin() {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(found, Ordering::Release);
}

/// A number below 2^16 that changes when objects are unloaded.
#[inline(always)]
pub fn generation() -> u64 {
    u64::from(GENERATION.load(Ordering::Acquire) & 0xffff)
}

/// The object that contains `address`; `None` for code that is not in a file.
pub fn find(address: u64) -> Option<Module> {
    let function = FIND_OBJECT.load(Ordering::Acquire);
    if function.is_null() {
        return find_slowly(address);
    }
    let mut found = MaybeUninit::<Found>::zeroed();
    // SAFETY: the function has this type; on success it fills the result, whose link map is valid as long as the
    // object is loaded, that is while a frame of it is on the stack.
    unsafe {
        let function = transmute::<*mut c_void, FindObject>(function);
        if function(address as *mut c_void, found.as_mut_ptr()) != 0 {
            return None;
        }
        let found = found.assume_init();
        let map = found.link_map.as_ref()?;
        let (start, end) = (found.map_start, found.map_end);
        Some(Module { start, end, bias: map.addr, eh_frame_hdr: found.eh_frame, name: map.name })
    }
}

/// Argument and result of the `dl_iterate_phdr` callback.
struct Search {
    address: u64,
    found: Option<Module>,
}

/// [`find`] for glibc before 2.35. Takes the dynamic linker's lock; the caller holds no lock of the recorder.
#[cold]
fn find_slowly(address: u64) -> Option<Module> {
    let mut search = Search { address, found: None };
    // SAFETY: the callback takes a Search, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(compare), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn compare(info: *mut dl_phdr_info, _size: size_t, search: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and the pointer it was given.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    // SAFETY: `dlpi_phnum` headers are at `dlpi_phdr`.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let (mut start, mut end, mut eh_frame_hdr) = (u64::MAX, 0, 0);
    for header in headers {
        let at = info.dlpi_addr.wrapping_add(header.p_vaddr);
        match header.p_type {
            libc::PT_LOAD => (start, end) = (start.min(at & !(PAGE_BYTES - 1)), end.max(at + header.p_memsz)),
            PT_GNU_EH_FRAME => eh_frame_hdr = at,
            _ => {}
        }
    }
    if !(start..end).contains(&search.address) {
        return 0;
    }
    search.found = Some(Module { start, end, bias: info.dlpi_addr, eh_frame_hdr, name: info.dlpi_name });
    1
}

impl Module {
    /// Its program headers in memory.
    fn headers(&self) -> &'static [Elf64_Phdr] {
        let is_large = self.end.saturating_sub(self.start) >= PAGE_BYTES;
        // SAFETY: the first page of a loaded object is mapped and readable.
        let at_start = if is_large { unsafe { headers_at(self.start) } } else { None };
        // If there are gaps between segments, glibc reports each segment as an object. The start of the file is then
        // not at `start`.
        at_start.or_else(|| headers_at_bias(self.bias)).or_else(|| headers_of_program(self.bias)).unwrap_or_default()
    }

    /// The loaded bytes from `address` to the end of its segment.
    pub fn bytes_from(&self, address: u64) -> &[u8] {
        let end_of = |header: &Elf64_Phdr| self.bias.wrapping_add(header.p_vaddr).wrapping_add(header.p_filesz);
        let segments = self.headers().iter().filter(|header| header.p_type == libc::PT_LOAD);
        let holds = |header: &&Elf64_Phdr| {
            (self.bias.wrapping_add(header.p_vaddr)..end_of(header)).contains(&address) && header.p_flags & PF_R != 0
        };
        let Some(end) = segments.clone().find(holds).map(end_of) else {
            return &[];
        };
        // SAFETY: the segment is loaded and readable up to its end.
        unsafe { slice::from_raw_parts(address as *const u8, (end - address) as usize) }
    }

    /// Its GNU build id; empty if it has none.
    pub fn build_id(&self) -> &[u8] {
        for header in self.headers().iter().filter(|header| header.p_type == libc::PT_NOTE) {
            let bytes = self.bytes_from(self.bias.wrapping_add(header.p_vaddr));
            let mut rest = bytes.get(..header.p_filesz as usize).unwrap_or_default();
            while let Some(note) = rest.get(..NOTE_BYTES) {
                let word = |at: usize| u32::from_le_bytes([note[at], note[at + 1], note[at + 2], note[at + 3]]);
                let (name, content, kind) = (word(0) as usize, word(4) as usize, word(8));
                let from = NOTE_BYTES + name.next_multiple_of(4);
                let Some(id) = rest.get(from..from.saturating_add(content)) else {
                    break;
                };
                if kind == NT_GNU_BUILD_ID && rest.get(NOTE_BYTES..NOTE_BYTES + 4) == Some(b"GNU\0") {
                    return id;
                }
                let next = (from + content).next_multiple_of((header.p_align as usize).clamp(4, 8));
                rest = rest.get(next..).unwrap_or_default();
            }
        }
        &[]
    }

    /// Its path in the dynamic linker's list.
    pub fn name(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: the dynamic linker's names are C strings that live as long as the object.
        unsafe { CStr::from_ptr(self.name) }
    }
}

/// The program headers of a file whose start is loaded at `start`.
///
/// # Safety
/// The page at `start` is mapped and readable, as long as a frame of its object is on the stack.
unsafe fn headers_at(start: u64) -> Option<&'static [Elf64_Phdr]> {
    // SAFETY: by the caller's promise. A page that begins with ELF's magic holds the file's header. The end of the
    // program headers is checked against the end of the page.
    unsafe {
        let header = &*(start as *const Elf64_Ehdr);
        let bytes = header.e_phoff.checked_add(u64::from(header.e_phnum) * size_of::<Elf64_Phdr>() as u64)?;
        if !header.e_ident.starts_with(b"\x7fELF") || header.e_phoff & 7 != 0 || bytes > PAGE_BYTES {
            return None;
        }
        Some(slice::from_raw_parts((start + header.e_phoff) as *const Elf64_Phdr, usize::from(header.e_phnum)))
    }
}

/// The program headers of a file whose start is loaded at its load bias, as in shared objects.
fn headers_at_bias(bias: u64) -> Option<&'static [Elf64_Phdr]> {
    let is_there = bias != 0 && bias.is_multiple_of(PAGE_BYTES) && sys::is_readable(bias);
    // SAFETY: the page was just found readable, and belongs to an object with a frame on the stack.
    if is_there { unsafe { headers_at(bias) } } else { None }
}

/// The program headers of the program itself, as reported by the kernel, if its load bias is `bias`.
fn headers_of_program(bias: u64) -> Option<&'static [Elf64_Phdr]> {
    // SAFETY: getauxval has no preconditions. The kernel supplies both values, or 0; the headers stay mapped.
    let headers = unsafe {
        let (at, count) = (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM));
        let at = (at as *const Elf64_Phdr).as_ref()?;
        slice::from_raw_parts(at, count as usize)
    };
    let own = headers.iter().find(|header| header.p_type == libc::PT_PHDR)?;
    (bias.wrapping_add(own.p_vaddr) == headers.as_ptr() as u64).then_some(headers)
}

/// `dlclose`: also invalidates cached information about addresses of unloaded objects.
///
/// # Safety
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = real::dlclose() else {
        return -1;
    };
    // SAFETY: by the caller's promise.
    let result = unsafe { real(handle) };
    if site::is_on() {
        note_gone();
    }
    result
}

/// Begins a new generation if objects were unloaded.
#[cold]
fn note_gone() {
    let mut gone = 0_u64;
    // SAFETY: the callback takes a u64, which outlives the call. dlclose has just taken the same lock.
    unsafe { libc::dl_iterate_phdr(Some(read_gone), (&raw mut gone).cast()) };
    if GONE.swap(gone, Ordering::AcqRel) != gone {
        GENERATION.fetch_add(1, Ordering::AcqRel);
    }
}

unsafe extern "C" fn read_gone(info: *mut dl_phdr_info, _size: size_t, gone: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and the pointer it was given.
    unsafe { *gone.cast::<u64>() = (*info).dlpi_subs };
    1
}
