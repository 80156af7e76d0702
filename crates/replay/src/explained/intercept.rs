//! Intercepts the system calls on mappings that any code of this process makes, without another process and without
//! rights: a seccomp filter raises SIGSYS instead of the call, and the handler makes the call itself.

use std::arch::global_asm;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, c_long, c_ushort, c_void, sock_filter, sock_fprog};

/// A call before it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intercepted {
    pub(crate) number: c_long,
    pub(crate) arguments: [u64; 6],
    /// The instruction after that of the call.
    pub(crate) instruction: u64,
    pub(crate) stack_pointer: u64,
}

/// What makes a call, and returns its result.
pub(crate) type Handler = fn(&Intercepted) -> c_long;

/// The intercepted calls: those that map, unmap, purge or populate memory.
const NUMBERS: [c_long; 9] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_remap_file_pages,
];

/// The [`Handler`], as an address.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

// The only place whose calls the filter lets through: number and six arguments of the C convention, moved to the
// registers of the kernel's.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".text",
    ".hidden hksim_replay_call",
    ".hidden hksim_replay_call_end",
    ".globl hksim_replay_call",
    ".globl hksim_replay_call_end",
    "hksim_replay_call:",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, [rsp + 8]",
    "syscall",
    "hksim_replay_call_end:",
    "ret",
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".text",
    ".hidden hksim_replay_call",
    ".hidden hksim_replay_call_end",
    ".globl hksim_replay_call",
    ".globl hksim_replay_call_end",
    "hksim_replay_call:",
    "mov x8, x0",
    "mov x0, x1",
    "mov x1, x2",
    "mov x2, x3",
    "mov x3, x4",
    "mov x4, x5",
    "mov x5, x6",
    "svc #0",
    "hksim_replay_call_end:",
    "ret",
);

unsafe extern "C" {
    fn hksim_replay_call(number: c_long, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> c_long;
    static hksim_replay_call_end: u8;
}

/// Makes a call that is not intercepted. Errors are negative.
///
/// # Safety
/// As for the call itself.
pub(crate) unsafe fn call(number: c_long, [a, b, c, d, e, f]: [u64; 6]) -> c_long {
    // SAFETY: guaranteed by the caller.
    unsafe { hksim_replay_call(number, a, b, c, d, e, f) }
}

/// Intercepts calls from now on, in all threads.
///
/// # Errors
/// The kernel refuses the filter.
pub(crate) fn intercept(handler: Handler) -> io::Result<()> {
    HANDLER.store(handler as usize, Ordering::Release);
    // SAFETY: a valid action with an empty mask; the handler is of the form that SA_SIGINFO asks for.
    let handled = unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_call as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut())
    };
    checked(handled.into())?;
    // SAFETY: numbers only.
    checked(c_long::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }))?;
    let filter = filter((&raw const hksim_replay_call_end).addr() as u64);
    let program = sock_fprog { len: filter.len() as c_ushort, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, whose length is given.
    checked(unsafe {
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    })
}

fn checked(result: c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        // With TSYNC, the number of a thread that has another filter.
        1.. => Err(io::Error::other("another thread has a system-call filter of its own")),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_call(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the interrupted context, which nothing else uses.
    let (intercepted, result) = unsafe { interrupted(&mut *context.cast::<libc::ucontext_t>()) };
    // SAFETY: stored by `intercept` before the filter was installed, and a `Handler`.
    let handler = unsafe { std::mem::transmute::<usize, Handler>(HANDLER.load(Ordering::Acquire)) };
    *result = handler(&intercepted);
}

/// The call in an interrupted context, and the register of its result.
#[cfg(target_arch = "x86_64")]
fn interrupted(context: &mut libc::ucontext_t) -> (Intercepted, &mut c_long) {
    let registers = &mut context.uc_mcontext.gregs;
    let register = |number: c_int| registers[number as usize] as u64;
    let numbers = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
    let intercepted = Intercepted {
        number: register(libc::REG_RAX) as c_long,
        arguments: numbers.map(register),
        instruction: register(libc::REG_RIP),
        stack_pointer: register(libc::REG_RSP),
    };
    (intercepted, &mut registers[libc::REG_RAX as usize])
}

#[cfg(target_arch = "aarch64")]
fn interrupted(context: &mut libc::ucontext_t) -> (Intercepted, &mut c_long) {
    let machine = &mut context.uc_mcontext;
    let intercepted = Intercepted {
        number: machine.regs[8] as c_long,
        arguments: std::array::from_fn(|at| machine.regs[at]),
        instruction: machine.pc,
        stack_pointer: machine.sp,
    };
    // SAFETY: an unsigned register, written as a signed number of the same size.
    (intercepted, unsafe { &mut *(&raw mut machine.regs[0]).cast::<c_long>() })
}

/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const INSTRUCTION_AT: u32 = 8;
/// `AUDIT_ARCH_*` of this program's own calls.
const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };

/// Traps [`NUMBERS`], unless the instruction is before `passes`.
fn filter(passes: u64) -> Vec<sock_filter> {
    let statement = |code: u32, k| sock_filter { code: code as c_ushort, jt: 0, jf: 0, k };
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let give = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    let jump = |k, jt, jf| sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as c_ushort, jt, jf, k };
    let count = NUMBERS.len() as u8;
    // The results are at the end: first "allow", then "trap".
    let mut program = vec![
        load(ARCHITECTURE_AT),
        jump(ARCHITECTURE, 0, count + 5),
        load(INSTRUCTION_AT),
        jump(passes as u32, 0, 2),
        load(INSTRUCTION_AT + 4),
        jump((passes >> 32) as u32, count + 1, 0),
        load(NUMBER_AT),
    ];
    program.extend(NUMBERS.iter().zip((1..=count).rev()).map(|(&number, left)| jump(number as u32, left, 0)));
    program.extend([give(libc::SECCOMP_RET_ALLOW), give(libc::SECCOMP_RET_TRAP)]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel would, for the statements used here.
    fn action(program: &[sock_filter], architecture: u32, number: u32, instruction: u64) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let statement = program[at];
            at += 1;
            match u32::from(statement.code) {
                0x20 => {
                    word = match statement.k {
                        NUMBER_AT => number,
                        ARCHITECTURE_AT => architecture,
                        INSTRUCTION_AT => instruction as u32,
                        _ => (instruction >> 32) as u32,
                    }
                }
                0x15 => at += usize::from(if word == statement.k { statement.jt } else { statement.jf }),
                0x06 => return statement.k,
                code => panic!("statement {code:#x}"),
            }
        }
    }

    #[test]
    fn only_memory_calls_of_other_code_are_trapped() {
        let passes = 0x7f00_1234_5678;
        let program = filter(passes);
        let (trap, allow) = (libc::SECCOMP_RET_TRAP, libc::SECCOMP_RET_ALLOW);
        for number in 0..600 {
            let expected = if NUMBERS.contains(&c_long::from(number)) { trap } else { allow };
            let number = number as u32;
            assert_eq!(action(&program, ARCHITECTURE, number, 1), expected, "{number}");
            for near in [passes ^ 1, passes ^ 1 << 32] {
                assert_eq!(action(&program, ARCHITECTURE, number, near), expected, "{number} elsewhere");
            }
            assert_eq!(action(&program, ARCHITECTURE, number, passes), allow, "{number} of the handler");
            assert_eq!(action(&program, 0x4000_0003, number, 1), allow, "a 32-bit call");
        }
    }
}
