//! glibc's heap introspection (`mallinfo`, `malloc_info`, `mallopt`), for this allocator. Without it, programs would
//! query glibc's unused heap.

use std::ffi::{c_int, c_ulong};
use std::fmt::Write;

use hksim_native::process::{self, HeapInfo};

/// Parameters of glibc's `mallopt` (`malloc.h`): `M_MXFAST`, and `M_ARENA_MAX` to `M_TRIM_THRESHOLD`.
const PARAMETERS: [std::ops::RangeInclusive<c_int>; 2] = [1..=1, -8..=-1];
/// Bytes that every output of `malloc_info` fits into.
const TEXT_BYTES: usize = 1024;

/// `mallinfo2`. SuperSlabs count as `arena`, huge blocks as mappings (`hblks`, `hblkhd`).
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let info = process::heap_info();
    libc::mallinfo2 {
        arena: info.superslab_bytes as usize,
        ordblks: 1,
        smblks: 0,
        hblks: info.huge_blocks as usize,
        hblkhd: info.huge_bytes as usize,
        usmblks: 0,
        fsmblks: 0,
        uordblks: info.used_bytes as usize,
        fordblks: info.free_bytes() as usize,
        keepcost: info.kept_bytes as usize,
    }
}

/// The old `mallinfo`: the same numbers, truncated to 32 bits as in glibc.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> libc::mallinfo {
    let info = mallinfo2();
    libc::mallinfo {
        arena: info.arena as c_int,
        ordblks: info.ordblks as c_int,
        smblks: info.smblks as c_int,
        hblks: info.hblks as c_int,
        hblkhd: info.hblkhd as c_int,
        usmblks: info.usmblks as c_int,
        fsmblks: info.fsmblks as c_int,
        uordblks: info.uordblks as c_int,
        fordblks: info.fordblks as c_int,
        keepcost: info.keepcost as c_int,
    }
}

/// `malloc_stats`: writes the statistics that `hksim run --stats text` writes at exit.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    process::write_statistics();
}

/// `malloc_trim`: returns unused memory to the kernel. The padding is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_padding: usize) -> c_int {
    c_int::from(process::trim())
}

/// `mallopt`: accepts glibc's parameters and ignores them. The environment sets the policy.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, _value: c_int) -> c_int {
    c_int::from(PARAMETERS.iter().any(|range| range.contains(&parameter)))
}

/// A text buffer, stored inline, because allocating would change the numbers.
struct Text {
    bytes: [u8; TEXT_BYTES],
    used: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.used..self.used + text.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}

/// `malloc_info`: glibc's XML, with one heap. Returns `EINVAL` for options other than 0.
///
/// # Safety
/// `stream` is open for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut libc::FILE) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    let info: HeapInfo = process::heap_info();
    let mut text = Text { bytes: [0; TEXT_BYTES], used: 0 };
    if info.xml(&mut text).is_err() {
        return -1;
    }
    // SAFETY: the buffer has `text.used` bytes; the caller guarantees the stream.
    let written = unsafe { libc::fwrite(text.bytes.as_ptr().cast(), 1, text.used, stream) };
    if written == text.used { 0 } else { -1 }
}

// glibc's structure has ten fields of this type.
const _: () = assert!(size_of::<libc::mallinfo2>() == 10 * size_of::<c_ulong>());
