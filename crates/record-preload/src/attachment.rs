//! What a recorder hands to a process that already runs: memory with a few instructions, which the process executes at
//! its next call of an allocator function.
//!
//! `hksim` maps this memory into the process and redirects the process's calls to the instructions in it. The first
//! thread that comes along loads the recorder's object, on a stack of its own, and calls [`ENTRY`] with the address of
//! the [`Area`]. Every call goes on to the function that it asked for.
//!
//! This file is compiled into the preloaded object and into `hksim-record`. It uses `core` only.

use core::ffi::CStr;

/// File name of an object that is loaded into a running process.
pub const OBJECT_NAME: &str = "attached.so";
/// The object's function that begins a recording: `extern "C" fn(*mut Area) -> u32`.
pub const ENTRY: &CStr = c"hksim_attach";
/// The object's variable with the address of the [`Area`] that was used last, for the next recorder.
pub const AREA: &CStr = c"hksim_attached_area";

/// `state`: no thread has come along.
pub const WAITING: u32 = 0;
/// `state`: a thread loads the object and begins the recording.
pub const BEGINNING: u32 = 1;
/// `state`: the recording has begun, or cannot begin; `result` has the reason.
pub const BEGUN: u32 = 2;
/// `state`: the object cannot be loaded; `message` has the reason.
pub const NOT_LOADED: u32 = 3;

/// `result`: the recording has begun.
pub const RESULT_RECORDING: u32 = 0;
/// `result`: the process is being recorded already.
pub const RESULT_RECORDED: u32 = 1;
/// `result`: the process cannot open the session.
pub const RESULT_NO_SESSION: u32 = 2;
/// `result`: the process cannot create its log.
pub const RESULT_NO_LOG: u32 = 3;
/// `result`: no call of an allocator function goes through a slot.
pub const RESULT_NO_SLOTS: u32 = 4;

/// The functions whose calls begin a recording.
pub const REDIRECTED: [&CStr; 8] =
    [c"malloc", c"calloc", c"realloc", c"free", c"posix_memalign", c"aligned_alloc", c"memalign", c"fork"];

/// Longest path in bytes, with its end.
pub const PATH_BYTES: usize = 4096;
/// Maximum number of redirected slots.
pub const SLOTS_MAX: usize = 4096;
/// Bytes of the area before its instructions.
pub const AREA_BYTES: usize = (size_of::<Area>()).next_multiple_of(4096);
/// Bytes of the instructions.
pub const CODE_BYTES: usize = 4096;
/// Bytes of the stack, which ends at the end of the mapping.
pub const STACK_BYTES: usize = 256 << 10;
/// Bytes of the whole mapping.
pub const MAPPING_BYTES: usize = AREA_BYTES + CODE_BYTES + STACK_BYTES;

/// A slot of a global offset table, and its value before `hksim` changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Slot {
    /// Its address.
    pub address: u64,
    /// The address of the function, or of the code that looks the function up at the first call.
    pub value: u64,
}

/// The data of an attachment. The instructions use the offsets of the fields, so they are next to each other.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Area {
    /// [`WAITING`] and its like. Only the process writes it after the slots are redirected.
    pub state: u32,
    /// Not 0 if no thread may begin any more.
    pub cancelled: u32,
    /// What [`ENTRY`] returned.
    pub result: u32,
    /// Not 0 if the recording has ended, and no call passes through the object any more.
    pub left: u32,
    /// Number of `slots`.
    pub slots_used: u64,
    /// First address of the dynamic linker, whose own calls do not begin the recording.
    pub loader_start: u64,
    /// Bytes of the dynamic linker.
    pub loader_bytes: u64,
    /// Address of the dynamic linker's `r_debug.r_state`; it is not 0 while the dynamic linker works.
    pub loader_state: u64,
    /// Address of `dlopen`.
    pub dlopen: u64,
    /// Address of `dlsym`.
    pub dlsym: u64,
    /// Address of `dlerror`.
    pub dlerror: u64,
    /// Address of `__errno_location`.
    pub errno_location: u64,
    /// Address of [`ENTRY`]; 0 before the object is loaded.
    pub entry: u64,
    /// All signals.
    pub all_signals: u64,
    /// The thread's signal mask.
    pub signals: u64,
    /// The thread's errno.
    pub errno: u64,
    /// The address after the last byte of the stack.
    pub stack_end: u64,
    /// The addresses of the redirected functions.
    pub functions: [u64; REDIRECTED.len()],
    /// The name in [`ENTRY`].
    pub entry_name: [u8; 32],
    /// Why the object could not be loaded.
    pub message: [u8; 512],
    /// Path of the object.
    pub object: [u8; PATH_BYTES],
    /// Path of the directory of logs.
    pub session: [u8; PATH_BYTES],
    /// The redirected slots.
    pub slots: [Slot; SLOTS_MAX],
}
