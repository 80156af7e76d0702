//! A real, idle child that is forked during a replay.
//!
//! The child inherits only the heap and the program's code, but no stack and no data. Therefore the fork does not
//! write-protect the parent's other memory, and all faults that it causes are on the heap.

use std::io;

use hksim_linux_probe::maps::Maps;

/// A child that sleeps and has no open files. It is killed and reaped when dropped, and it dies with its parent.
#[derive(Debug)]
pub(crate) struct IdleChild(libc::pid_t);

impl IdleChild {
    /// Forks the child. Call [`keep_apart`] first.
    pub(crate) fn fork() -> io::Result<IdleChild> {
        let got: i64;
        let parent = std::process::id();
        // SAFETY: in the parent, only the named registers are clobbered. The child never leaves these instructions. It
        // requests a signal at its parent's death, exits if the parent has already died, closes its files, and sleeps.
        // It touches neither stack nor data, which it does not have. System calls preserve r8.
        unsafe {
            std::arch::asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "mov eax, {prctl}",
                "mov edi, {pdeathsig}",
                "mov esi, {kill}",
                "syscall",
                "mov eax, {getppid}",
                "syscall",
                "cmp eax, r8d",
                "jne 4f",
                "mov eax, {close_range}",
                "xor edi, edi",
                "mov esi, -1",
                "xor edx, edx",
                "syscall",
                "3:",
                "mov eax, {pause}",
                "syscall",
                "jmp 3b",
                "4:",
                "mov eax, {exit_group}",
                "xor edi, edi",
                "syscall",
                "2:",
                prctl = const libc::SYS_prctl,
                pdeathsig = const libc::PR_SET_PDEATHSIG,
                kill = const libc::SIGKILL,
                getppid = const libc::SYS_getppid,
                close_range = const libc::SYS_close_range,
                pause = const libc::SYS_pause,
                exit_group = const libc::SYS_exit_group,
                inlateout("rax") libc::SYS_fork => got,
                in("r8d") parent,
                lateout("rcx") _, lateout("r11") _, lateout("rdi") _, lateout("rsi") _, lateout("rdx") _,
                options(nostack),
            );
        }
        if got < 0 { Err(io::Error::from_raw_os_error(-got as i32)) } else { Ok(IdleChild(got as libc::pid_t)) }
    }
}

impl Drop for IdleChild {
    fn drop(&mut self) {
        // SAFETY: the child is ours and was not yet reaped, so its process id is still valid.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// The live children of a replay.
#[derive(Debug)]
pub(crate) struct Children {
    alive: Vec<(u32, IdleChild)>,
    /// Why a child could not be forked.
    refused: Option<String>,
}

impl Children {
    /// Maximum number of live children. More would put too much load on the machine.
    const MAX: usize = 256;

    /// An empty set. Its full capacity is allocated here, because a replay must not allocate.
    pub(crate) fn none() -> Children {
        Children { alive: Vec::with_capacity(Children::MAX), refused: None }
    }

    /// Forks the child with this number. Call [`keep_apart`] first.
    pub(crate) fn fork(&mut self, number: u32) {
        if self.alive.len() == Children::MAX {
            self.refused
                .get_or_insert_with(|| format!("more than {} children are alive at the same time", Children::MAX));
            return;
        }
        match IdleChild::fork() {
            Ok(child) => self.alive.push((number, child)),
            Err(why) => {
                self.refused.get_or_insert_with(|| format!("cannot fork a child here: {why}"));
            }
        }
    }

    /// Ends a child.
    pub(crate) fn exit(&mut self, number: u32) {
        self.alive.retain(|&(child, _)| child != number);
    }

    /// Why the replay forked fewer children than requested, if it did.
    pub(crate) fn why_fewer(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

/// Excludes all memory except the heap and code from children that are forked from now on.
///
/// # Errors
/// `/proc/self/maps` cannot be read.
pub(crate) fn keep_apart(heap_start: u64, heap_bytes: u64) -> io::Result<()> {
    leave_rseq();
    let maps = Maps::read()?;
    let heap = heap_start as usize..(heap_start + heap_bytes) as usize;
    for map in maps.iter() {
        if !map.is_executable && !heap.contains(&map.start) {
            // The kernel refuses this for its own mappings (such as the vDSO), which nothing writes to.
            // SAFETY: the advice only affects what a child inherits.
            unsafe { libc::madvise(map.start as *mut libc::c_void, map.bytes, libc::MADV_DONTFORK) };
        }
    }
    Ok(())
}

/// Unregisters the area that glibc registered for this thread's restartable sequences. The kernel writes to the area
/// whenever it migrates the thread, and it would kill the child, which does not inherit the area.
fn leave_rseq() {
    /// Size of the first version of `struct rseq`, which glibc registers; the flag to unregister it; and its signature
    /// on x86.
    const AREA_BYTES: usize = 32;
    const UNREGISTER: libc::c_int = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    // SAFETY: only looks up a symbol. If glibc defines it, it is a `ptrdiff_t` that never changes.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>().as_ref() };
    // glibc before 2.35 registers nothing.
    let Some(&offset) = offset else { return };
    let thread: usize;
    // SAFETY: the first word of a thread's control block is its own address, in the x86-64 ABI.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly, preserves_flags)) };
    let area = thread.wrapping_add_signed(offset);
    // SAFETY: the kernel only forgets the address. It refuses a repeated call and an area of a different size.
    unsafe { libc::syscall(libc::SYS_rseq, area, AREA_BYTES, UNREGISTER, SIGNATURE) };
}
