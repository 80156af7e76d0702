//! Direct system calls, because libc's wrappers are cancellation points and the program may interpose them. A call is
//! made only if the program's own filters allow it.

use core::arch::naked_asm;
use core::ffi::CStr;

use libc::{c_int, c_long, c_void};

use crate::filters::{self, Call, Section};

/// A type that can be passed to the kernel as a word.
trait Word {
    fn word(self) -> u64;
}

macro_rules! words {
    ($($type:ty),*) => {
        $(impl Word for $type {
            #[inline(always)]
            fn word(self) -> u64 {
                self as u64
            }
        })*
    };
}

words!(c_long, u64, usize);

impl<T> Word for *const T {
    #[inline(always)]
    fn word(self) -> u64 {
        self as u64
    }
}

impl<T> Word for *mut T {
    #[inline(always)]
    fn word(self) -> u64 {
        self as u64
    }
}

/// Makes a system call, given its number and up to six words. Returns the same as libc's `syscall`, and sets errno.
macro_rules! call {
    ($number:expr $(, $word:expr)* $(,)?) => {
        system_call($number, &six([$(Word::word($word)),*]))
    };
}

fn six<const N: usize>(given: [u64; N]) -> [u64; 6] {
    let mut words = [0; 6];
    words[..N].copy_from_slice(&given);
    words
}

/// Makes a call if the program's filters allow it.
///
/// # Safety
/// As for the call itself.
unsafe fn system_call(number: c_long, words: &[u64; 6]) -> c_long {
    let instruction = instruction_after_call as *const () as u64;
    if !filters::allow(|| Call::new(number, instruction, words)) {
        set_errno(libc::EPERM);
        return -1;
    }
    // SAFETY: by the caller's promise.
    unsafe { system_call_unfiltered(number, words) }
}

/// Makes a call without checking the program's filters.
///
/// # Safety
/// As for the call itself.
unsafe fn system_call_unfiltered(number: c_long, words: &[u64; 6]) -> c_long {
    const ERRORS: core::ops::Range<c_long> = -4095..0;
    // SAFETY: by the caller's promise; the six words are valid.
    let result = unsafe { enter_kernel(number, words) };
    if ERRORS.contains(&result) {
        set_errno(-result as c_int);
        return -1;
    }
    result
}

/// The recorder's only system-call instruction. There is only one because a filter may check its address.
#[allow(named_asm_labels)] // A naked function is emitted once, so its label is unique; Rust 1.88 warns anyway.
#[unsafe(naked)]
unsafe extern "C" fn enter_kernel(number: c_long, words: &[u64; 6]) -> c_long {
    naked_asm!(
        "mov rax, rdi",
        "mov r11, rsi",
        "mov rdi, [r11]",
        "mov rsi, [r11 + 8]",
        "mov rdx, [r11 + 16]",
        "mov r10, [r11 + 24]",
        "mov r8, [r11 + 32]",
        "mov r9, [r11 + 40]",
        "syscall",
        ".globl hksim_after_system_call",
        ".hidden hksim_after_system_call",
        "hksim_after_system_call:",
        "ret",
    )
}

unsafe extern "C" {
    /// The instruction after the system call. The kernel reports its address as that of the call.
    #[link_name = "hksim_after_system_call"]
    fn instruction_after_call();
}

/// Preserves the program's errno across the recorder's system calls.
pub struct Errno(c_int);

impl Errno {
    /// Saves errno.
    pub fn save() -> Self {
        Self(get_errno())
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

/// Blocks signals in the calling thread until this value is dropped, if the thread's filters allow that.
pub struct SignalsBlocked {
    /// The previous mask; `None` if signals are not blocked.
    before: Option<u64>,
    _section: Section,
}

/// Bytes of the kernel's signal set.
const SIGNAL_SET_BYTES: c_long = 8;

impl SignalsBlocked {
    /// Blocks all signals that can be blocked. If the program's filters forbid blocking signals, handlers may still
    /// run.
    pub fn new() -> Self {
        let section = Section::begin();
        let (all, mut before) = (u64::MAX, 0_u64);
        let how = libc::SIG_SETMASK as c_long;
        // SAFETY: both sets have the length that is passed to the kernel.
        let result = unsafe { call!(libc::SYS_rt_sigprocmask, how, &raw const all, &raw mut before, SIGNAL_SET_BYTES) };
        Self { before: (result == 0).then_some(before), _section: section }
    }

    /// Whether signals are blocked.
    pub fn are_blocked(&self) -> bool {
        self.before.is_some()
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let Some(before) = &self.before else {
            return;
        };
        let how = libc::SIG_SETMASK as c_long;
        let words = [how as u64, (&raw const *before) as u64, 0, SIGNAL_SET_BYTES as u64, 0, 0];
        // Unchecked, because the installation of a filter waits until this section ends.
        // SAFETY: the set has the length that is passed to the kernel.
        unsafe { system_call_unfiltered(libc::SYS_rt_sigprocmask, &words) };
    }
}

/// The calling thread's errno.
pub fn get_errno() -> c_int {
    // SAFETY: the location is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub fn set_errno(value: c_int) {
    // SAFETY: the location is valid for the calling thread.
    unsafe { *libc::__errno_location() = value }
}

/// Process id of the caller; `None` if its filters forbid the call.
pub fn pid() -> Option<u32> {
    // SAFETY: no arguments.
    u32::try_from(unsafe { call!(libc::SYS_getpid) }).ok()
}

/// Process id of the caller's parent; 0 if it is in another namespace, or filters forbid the call.
pub fn parent_pid() -> u32 {
    // SAFETY: no arguments.
    u32::try_from(unsafe { call!(libc::SYS_getppid) }).unwrap_or(0)
}

/// Result of `PR_GET_THP_DISABLE`; 0 if the kernel does not support it. A system-call filter may forbid the call, so a
/// process with a filter reads /proc instead. /proc reports the value 3 (except advised memory) as 0.
pub fn thp_disable() -> u32 {
    let mut text = [0; 4096];
    let used = read_file(c"/proc/self/status", &mut text);
    let status = text.get(..used).unwrap_or_default();
    if !has_line(status, b"Seccomp:\t0\n") {
        return u32::from(has_line(status, b"THP_enabled:\t0\n"));
    }
    let (option, none) = (libc::PR_GET_THP_DISABLE as c_long, 0 as c_long);
    // SAFETY: touches no memory.
    let result = unsafe { call!(libc::SYS_prctl, option, none, none, none, none) };
    u32::try_from(result).unwrap_or(0)
}

fn has_line(text: &[u8], line: &[u8]) -> bool {
    text.windows(line.len()).any(|window| window == line)
}

/// The caller's personality according to /proc; 0, the default, if /proc does not show it. (A filter is more likely to
/// forbid the system call than the read.)
pub fn personality() -> u32 {
    let mut text = [0; 16];
    let used = read_file(c"/proc/self/personality", &mut text);
    let digits = text.get(..used).and_then(|text| core::str::from_utf8(text).ok()).unwrap_or_default();
    u32::from_str_radix(digits.trim_ascii_end(), 16).unwrap_or(0)
}

/// Reads the start of a file; returns the bytes read, 0 on failure.
fn read_file(path: &CStr, into: &mut [u8]) -> usize {
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return 0;
    }
    let used = read(fd, into);
    close(fd);
    used
}

/// Kernel thread id of the caller; 0 if its filters forbid the call.
pub fn tid() -> u32 {
    // SAFETY: no arguments.
    u32::try_from(unsafe { call!(libc::SYS_gettid) }).unwrap_or(0)
}

/// Whether thread `tid` of this process has ended. Never true for a running thread.
pub fn has_ended(tid: u32) -> bool {
    let Some(pid) = pid() else {
        return false;
    };
    // SAFETY: signal 0 only checks whether the thread exists; no thread has id 0.
    let result = unsafe { call!(libc::SYS_tgkill, c_long::from(pid), c_long::from(tid), 0 as c_long) };
    result != 0 && get_errno() == libc::ESRCH
}

/// Opens the file whose zero-terminated path is `path`; negative on failure.
///
/// # Safety
/// `path` ends with a zero byte.
pub unsafe fn open(path: *const u8, flags: c_int) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { open_in(libc::AT_FDCWD, path, flags) }
}

/// As [`open`], with relative paths resolved in `directory`.
///
/// # Safety
/// As for [`open`].
pub unsafe fn open_in(directory: c_int, path: *const u8, flags: c_int) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { call!(libc::SYS_openat, directory as c_long, path, flags as c_long, 0o600 as c_long) as c_int }
}

/// Renames a file within `directory`.
///
/// # Safety
/// Both names end with a zero byte.
pub unsafe fn rename_in(directory: c_int, from: *const u8, to: *const u8) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { call!(libc::SYS_renameat, directory as c_long, from, directory as c_long, to) == 0 }
}

/// Removes a file of `directory`.
///
/// # Safety
/// `path` ends with a zero byte.
pub unsafe fn remove_in(directory: c_int, path: *const u8) {
    // SAFETY: by the caller's promise.
    unsafe { call!(libc::SYS_unlinkat, directory as c_long, path, 0 as c_long) };
}

/// Closes a descriptor of the recorder.
pub fn close(fd: c_int) {
    // SAFETY: closing a descriptor touches no memory.
    unsafe { call!(libc::SYS_close, fd as c_long) };
}

/// A close-on-exec copy of `fd`, numbered `least` or higher; negative on failure.
pub fn duplicate_from(fd: c_int, least: c_int) -> c_int {
    // SAFETY: touches no memory.
    unsafe { call!(libc::SYS_fcntl, fd as c_long, libc::F_DUPFD_CLOEXEC as c_long, least as c_long) as c_int }
}

/// Reads up to `bytes.len()` bytes; 0 at the end or on failure.
pub fn read(fd: c_int, bytes: &mut [u8]) -> usize {
    // SAFETY: the buffer is valid for its length.
    let got = unsafe { call!(libc::SYS_read, fd as c_long, bytes.as_mut_ptr(), bytes.len()) };
    usize::try_from(got).unwrap_or(0)
}

/// Reads the start of a file without checking the program's filters; returns the bytes read, 0 on failure.
pub fn read_unfiltered(path: &CStr, into: &mut [u8]) -> usize {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    // SAFETY: a C string, and a buffer that is valid for its length.
    unsafe {
        let fd = system_call_unfiltered(libc::SYS_openat, &six([libc::AT_FDCWD as u64, path.as_ptr() as u64, flags]));
        if fd < 0 {
            return 0;
        }
        let place = into.as_mut_ptr() as u64;
        let bytes = system_call_unfiltered(libc::SYS_read, &six([fd as u64, place, into.len() as u64]));
        system_call_unfiltered(libc::SYS_close, &six([fd as u64]));
        usize::try_from(bytes).unwrap_or(0)
    }
}

/// Whether the calling thread can read the word at `address`. To find out, it passes `address` as a signal set, with a
/// request that the kernel rejects only after it has copied the set.
pub fn is_readable(address: u64) -> bool {
    let _errno = Errno::save();
    const NO_REQUEST: c_long = -1;
    let nowhere = core::ptr::null_mut::<c_void>();
    // SAFETY: the kernel checks the address, and changes nothing for an unknown request.
    unsafe { call!(libc::SYS_rt_sigprocmask, NO_REQUEST, address, nowhere, SIGNAL_SET_BYTES) };
    get_errno() == libc::EINVAL
}

/// Reads the target of a symbolic link; returns its length in bytes, 0 on failure.
pub fn read_link(path: &CStr, into: &mut [u8]) -> usize {
    // SAFETY: a C string, and a buffer that is valid for its length.
    let got =
        unsafe { call!(libc::SYS_readlinkat, libc::AT_FDCWD as c_long, path.as_ptr(), into.as_mut_ptr(), into.len()) };
    usize::try_from(got).unwrap_or(0)
}

/// Device and inode of an open file; `None` if `fd` is not open.
pub fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: stat is plain data; the kernel fills it.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let result = call!(libc::SYS_fstat, fd as c_long, &raw mut stat);
        (result == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

/// Whether the process may create a file of `end` bytes. Growing it past RLIMIT_FSIZE would raise SIGXFSZ, which ends
/// the program.
pub fn may_grow_to(end: u64) -> bool {
    // SAFETY: rlimit is plain data; the kernel fills it.
    unsafe {
        let mut limit: libc::rlimit64 = core::mem::zeroed();
        let nothing = core::ptr::null::<c_void>();
        let result = call!(libc::SYS_prlimit64, 0 as c_long, libc::RLIMIT_FSIZE as c_long, nothing, &raw mut limit);
        result == 0 && end <= limit.rlim_cur
    }
}

/// Writes all of `bytes` at `offset`; false if any of it could not be written.
pub fn write_all_at(fd: c_int, mut bytes: &[u8], mut offset: u64) -> bool {
    if !may_grow_to(offset.saturating_add(bytes.len() as u64)) {
        return false;
    }
    while !bytes.is_empty() {
        // SAFETY: the slice is valid for its length.
        let wrote = unsafe { call!(libc::SYS_pwrite64, fd as c_long, bytes.as_ptr(), bytes.len(), offset as c_long) };
        match usize::try_from(wrote) {
            Ok(0) => return false,
            Ok(wrote) => {
                bytes = bytes.get(wrote..).unwrap_or_default();
                offset += wrote as u64;
            }
            Err(_) if get_errno() == libc::EINTR => {}
            Err(_) => return false,
        }
    }
    true
}

/// Writes `first` and `second`, one after the other, at `offset`; false if any of it could not be written.
///
/// Reserves the space first, which halves ext4's time per page. One call writes both parts, so that no page is written in
/// two pieces. A failed reservation is ignored: the result is that of the write.
pub fn write_both_at(fd: c_int, first: &[u8], second: &[u8], offset: u64) -> bool {
    let bytes = first.len() + second.len();
    if !may_grow_to(offset.saturating_add(bytes as u64)) {
        return false;
    }
    let part = |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let parts = [part(first), part(second)];
    // SAFETY: reserving touches no memory; both slices are valid for their lengths, and are only read. The last
    // argument is the offset's high half, which only 32-bit kernels use.
    let wrote = unsafe {
        call!(libc::SYS_fallocate, fd as c_long, 0 as c_long, offset, bytes);
        call!(libc::SYS_pwritev, fd as c_long, parts.as_ptr(), parts.len(), offset as c_long, 0 as c_long)
    };
    let wrote = usize::try_from(wrote).unwrap_or(0);
    if wrote == bytes {
        return true;
    }
    let (first, second) = match wrote.checked_sub(first.len()) {
        Some(of_second) => (&first[..0], second.get(of_second..).unwrap_or_default()),
        None => (first.get(wrote..).unwrap_or_default(), second),
    };
    let offset = offset + wrote as u64;
    write_all_at(fd, first, offset) && write_all_at(fd, second, offset + first.len() as u64)
}

/// Reserves space for `bytes` bytes at `offset` of the file, so that no store through a mapping can hit a full disk
/// (SIGBUS). If the file system cannot reserve space, writes zeros.
pub fn reserve(fd: c_int, offset: u64, bytes: usize) -> bool {
    if !may_grow_to(offset.saturating_add(bytes as u64)) {
        return false;
    }
    // SAFETY: touches no memory.
    let result = unsafe { call!(libc::SYS_fallocate, fd as c_long, 0 as c_long, offset, bytes) };
    if result == 0 {
        return true;
    }
    if get_errno() != libc::EOPNOTSUPP && get_errno() != libc::ENOSYS {
        return false;
    }
    let zeros = [0_u8; 4096];
    (0..bytes).step_by(zeros.len()).all(|at| write_all_at(fd, &zeros, offset + at as u64))
}

/// The system calls that allocate chunks and thread buffers, with the arguments that a filter can check.
pub fn calls_for_chunks(fd: c_int) -> [Call; 8] {
    const BYTES: u64 = 4096;
    let (fd, writable) = (fd as u64, (libc::PROT_READ | libc::PROT_WRITE) as u64);
    let (shared, private) = (libc::MAP_SHARED as u64, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64);
    let no_fd = -1_i64 as u64;
    let place = instruction_after_call as *const () as u64;
    [
        (libc::SYS_gettid, [0; 6]),
        (libc::SYS_fstat, [fd, 0, 0, 0, 0, 0]),
        (libc::SYS_prlimit64, [0, libc::RLIMIT_FSIZE as u64, 0, 0, 0, 0]),
        (libc::SYS_fallocate, [fd, 0, 0, BYTES, 0, 0]),
        (libc::SYS_pwritev, [fd, 0, 2, 0, 0, 0]),
        (libc::SYS_mmap, [0, BYTES, writable, shared, fd, 0]),
        (libc::SYS_mmap, [0, BYTES, writable, private, no_fd, 0]),
        (libc::SYS_madvise, [0, BYTES, libc::MADV_WIPEONFORK as u64, 0, 0, 0]),
    ]
    .map(|(number, words)| Call::new(number, place, &words))
}

/// Maps `bytes` of the file at `offset`, shared and writable; null on failure.
pub fn map_shared(fd: c_int, offset: u64, bytes: usize) -> *mut c_void {
    map(fd, offset, bytes, libc::MAP_SHARED)
}

/// As [`map_shared`], in place of an earlier mapping of the recorder at `at` that has the same size; null for none.
pub fn map_shared_at(at: *mut c_void, fd: c_int, offset: u64, bytes: usize) -> *mut c_void {
    map_as(at, fd, offset, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
}

/// Maps the first `bytes` of the file, shared and read-only, in place of an earlier mapping as [`map_shared_at`]; null on
/// failure.
pub fn map_to_read_at(at: *mut c_void, fd: c_int, bytes: usize) -> *mut c_void {
    map_as(at, fd, 0, bytes, libc::PROT_READ, libc::MAP_SHARED)
}

/// Replaces a mapping of the recorder by memory that is zero, and that takes no space until it is used. Threads that still
/// use the mapping notice nothing but the zeros.
pub fn replace_by_zeros(memory: *mut c_void, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    map_as(memory, -1, 0, bytes, libc::PROT_READ | libc::PROT_WRITE, flags);
}

/// Fresh private memory that a forked child finds zeroed; null on failure.
pub fn map_wiped_on_fork(bytes: usize) -> *mut c_void {
    let memory = map_private(bytes);
    if memory.is_null() {
        return memory;
    }
    // SAFETY: the range was just mapped.
    let result = unsafe { call!(libc::SYS_madvise, memory, bytes, libc::MADV_WIPEONFORK as c_long) };
    if result == 0 {
        return memory;
    }
    unmap(memory, bytes);
    core::ptr::null_mut()
}

/// Fresh private memory; null on failure.
pub fn map_private(bytes: usize) -> *mut c_void {
    map(-1, 0, bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
}

fn map(fd: c_int, offset: u64, bytes: usize, flags: c_int) -> *mut c_void {
    map_as(core::ptr::null_mut(), fd, offset, bytes, libc::PROT_READ | libc::PROT_WRITE, flags)
}

fn map_as(at: *mut c_void, fd: c_int, offset: u64, bytes: usize, protection: c_int, flags: c_int) -> *mut c_void {
    let flags = if at.is_null() { flags } else { flags | libc::MAP_FIXED };
    let (protection, flags) = (protection as c_long, flags as c_long);
    // SAFETY: without an address the kernel chooses one, so the new mapping does not affect existing memory. The callers
    // pass only addresses of the recorder's own mappings, of the same size.
    let address = unsafe { call!(libc::SYS_mmap, at, bytes, protection, flags, fd as c_long, offset) };
    if address == -1 { core::ptr::null_mut() } else { address as *mut c_void }
}

/// Changes the protection of whole pages of a loaded module; false on failure.
pub fn protect(start: u64, bytes: usize, protection: c_int) -> bool {
    // SAFETY: the callers make pages writable, and read-only again as they were before.
    unsafe { call!(libc::SYS_mprotect, start, bytes, protection as c_long) == 0 }
}

/// Whether another process holds a lock on the open file (`F_OFD_SETLK`); true if the answer is unknown.
pub fn is_locked(fd: c_int) -> bool {
    // SAFETY: plain data; the kernel reads and fills it.
    unsafe {
        let mut lock: libc::flock = core::mem::zeroed();
        lock.l_type = libc::F_WRLCK as i16;
        let result = call!(libc::SYS_fcntl, fd as c_long, libc::F_OFD_GETLK as c_long, &raw mut lock);
        result != 0 || lock.l_type != libc::F_UNLCK as i16
    }
}

/// Fresh private memory without a swap reservation (`MAP_NORESERVE`); null on failure.
pub fn map_unbacked(bytes: usize) -> *mut c_void {
    map(-1, 0, bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE)
}

/// Reserves unused addresses at `start` for pages of 4 KiB; false on failure.
pub fn reserve_at(start: usize, bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let none = libc::PROT_NONE as c_long;
    // SAFETY: a mapping that replaces none touches no existing memory.
    let address = unsafe { call!(libc::SYS_mmap, start, bytes, none, flags as c_long, -1 as c_long, 0 as c_long) };
    if address != start as c_long {
        // A kernel that does not support the flag may have chosen another address.
        if address != -1 {
            unmap(address as *mut c_void, bytes);
        }
        return false;
    }
    // SAFETY: the range was just mapped. A kernel without huge pages refuses, and needs no advice.
    unsafe { call!(libc::SYS_madvise, start, bytes, libc::MADV_NOHUGEPAGE as c_long) };
    true
}

/// Makes reserved addresses readable and writable.
pub fn make_accessible(start: *mut c_void, bytes: usize) -> bool {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as c_long;
    // SAFETY: the callers pass parts of their own reservation.
    unsafe { call!(libc::SYS_mprotect, start, bytes, protection) == 0 }
}

/// Returns the memory of pages to the kernel; they read as zeros afterwards.
pub fn give_back(start: *mut c_void, bytes: c_long) {
    // SAFETY: the callers pass pages of their own that nothing refers to.
    unsafe { call!(libc::SYS_madvise, start, bytes, libc::MADV_DONTNEED as c_long) };
}

/// An ioctl; negative on failure.
///
/// # Safety
/// `argument` is valid for the request.
pub unsafe fn control(fd: c_int, request: u64, argument: *mut c_void) -> c_long {
    // SAFETY: by the caller's promise.
    unsafe { call!(libc::SYS_ioctl, fd as c_long, request, argument) }
}

/// Unmaps memory of the recorder.
pub fn unmap(memory: *mut c_void, bytes: usize) {
    // SAFETY: the callers pass whole separate mappings that nothing refers to.
    unsafe { call!(libc::SYS_munmap, memory, bytes) };
}
