//! Decoded calls, and their replay on real allocators.

use std::ffi::c_void;
use std::ptr;

use hksim_trace::event::Op;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

/// One decoded call: `malloc(bytes)`, or `free` if `bytes` is 0, which random_mixed never requests.
#[derive(Clone, Copy)]
pub struct Call {
    pub object: u32,
    pub bytes: u32,
}

/// The calls of a trace, 8 bytes each, and its number of objects.
pub struct Calls {
    pub calls: Vec<Call>,
    pub objects: usize,
}

impl Calls {
    /// The block of each object: none.
    pub fn empty_table(&self) -> Vec<*mut c_void> {
        vec![ptr::null_mut(); self.objects]
    }
}

/// The two functions of an allocator.
#[derive(Clone, Copy)]
pub struct Malloc {
    pub name: &'static str,
    malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

pub const MALLOCS: [Malloc; 2] = [
    Malloc { name: "mimalloc", malloc: libmimalloc_sys::mi_malloc, free: libmimalloc_sys::mi_free },
    Malloc { name: "glibc", malloc: libc::malloc, free: libc::free },
];

pub fn decode(reader: &mut TraceReader) -> Calls {
    let mut calls = Vec::with_capacity(reader.summary().events as usize);
    while let Some(batch) = reader.next_batch().expect("a complete trace") {
        calls.extend(batch.iter().map(|event| match event.op {
            Op::Alloc { object, size, .. } => Call { object: object.0, bytes: size as u32 },
            Op::Free { object } => Call { object: object.0, bytes: 0 },
            other => unreachable!("random_mixed has no {other:?}"),
        }));
    }
    Calls { calls, objects: reader.summary().objects_peak as usize }
}

/// Performs the calls, then frees the remaining blocks. Heaps stay warm between passes.
pub fn replay(calls: &Calls, live: &mut [*mut c_void], on: Malloc) {
    for &Call { object, bytes } in &calls.calls {
        let block = &mut live[object as usize];
        if bytes == 0 {
            // SAFETY: a live block of this allocator; the trace frees each live block once.
            unsafe { (on.free)(*block) };
            *block = ptr::null_mut();
        } else {
            // SAFETY: `malloc` takes any size, and the block has at least one byte.
            unsafe {
                *block = (on.malloc)(bytes as usize);
                assert!(!block.is_null(), "{} has no memory left", on.name);
                block.cast::<u8>().write_volatile(0xA5);
            }
        }
    }
    for block in live {
        // SAFETY: live blocks, and null, which `free` ignores.
        unsafe { (on.free)(std::mem::replace(block, ptr::null_mut())) };
    }
}
