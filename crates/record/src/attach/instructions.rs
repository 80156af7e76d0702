//! The instructions to which a running process's calls are redirected (`attachment.rs`).
//!
//! Each redirected function has an entry of [`ENTRY_BYTES`]. The first thread that enters one, outside the dynamic linker
//! and while the dynamic linker does nothing, loads the object and begins the recording. It does so on the stack of the
//! area, with signals blocked, and restores errno and all registers that carry arguments. Every call then goes on to its
//! function, so these instructions may stay in a slot for ever.

use std::arch::global_asm;
use std::mem::offset_of;

use crate::attachment::{AREA_BYTES, Area, BEGINNING, BEGUN, CODE_BYTES, NOT_LOADED, REDIRECTED};

/// Bytes of the entry of one function.
pub const ENTRY_BYTES: usize = 16;
/// Longest message of the dynamic linker, without its end.
const MESSAGE_BYTES: usize = size_of::<[u8; 512]>() - 1;

global_asm!(
    ".pushsection .rodata.hksim_attach,\"a\",@progbits",
    ".p2align 4",
    "hksim_attach_code:",
    ".set hksim_attach_index, 0",
    ".rept {functions}",
    ".p2align 4",
    "push hksim_attach_index",
    "jmp 2f",
    ".set hksim_attach_index, hksim_attach_index + 1",
    ".endr",
    "2:",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push r8",
    "push r9",
    "push rax",
    "push r10",
    "lea r11, [rip + hksim_attach_code - {area}]",
    "cmp dword ptr [r11 + {state}], 0",
    "jne 8f",
    "cmp dword ptr [r11 + {cancelled}], 0",
    "jne 8f",
    // The return address: the dynamic linker's own calls come while it holds its locks.
    "mov rax, [rsp + 72]",
    "sub rax, [r11 + {loader_start}]",
    "cmp rax, [r11 + {loader_bytes}]",
    "jb 8f",
    "mov rax, [r11 + {loader_state}]",
    "cmp dword ptr [rax], 0",
    "jne 8f",
    "mov edx, {beginning}",
    "xor eax, eax",
    "lock cmpxchg dword ptr [r11 + {state}], edx",
    "jne 8f",
    "push rbx",
    "push rbp",
    "push r12",
    "mov rbp, rsp",
    "mov rbx, r11",
    "mov rsp, [rbx + {stack_end}]",
    "mov eax, {sigprocmask}",
    "mov edi, {set_mask}",
    "lea rsi, [rbx + {all_signals}]",
    "lea rdx, [rbx + {signals}]",
    "mov r10d, 8",
    "syscall",
    "call qword ptr [rbx + {errno_location}]",
    "mov r12, rax",
    "mov eax, [r12]",
    "mov [rbx + {errno}], eax",
    "mov rax, [rbx + {entry}]",
    "test rax, rax",
    "jnz 4f",
    "lea rdi, [rbx + {object}]",
    "mov esi, {now}",
    "call qword ptr [rbx + {dlopen}]",
    "test rax, rax",
    "jz 5f",
    "mov rdi, rax",
    "lea rsi, [rbx + {entry_name}]",
    "call qword ptr [rbx + {dlsym}]",
    "test rax, rax",
    "jz 5f",
    "mov [rbx + {entry}], rax",
    "4:",
    "mov rdi, rbx",
    "call rax",
    "mov [rbx + {result}], eax",
    "mov r10d, {begun}",
    "jmp 7f",
    "5:",
    "call qword ptr [rbx + {dlerror}]",
    "test rax, rax",
    "jz 6f",
    "lea rdi, [rbx + {message}]",
    "mov ecx, {message_bytes}",
    "3:",
    "mov dl, [rax]",
    "mov [rdi], dl",
    "test dl, dl",
    "jz 6f",
    "inc rax",
    "inc rdi",
    "dec ecx",
    "jnz 3b",
    "6:",
    "mov r10d, {not_loaded}",
    "7:",
    "mov eax, [rbx + {errno}]",
    "mov [r12], eax",
    "mov dword ptr [rbx + {state}], r10d",
    "mov eax, {sigprocmask}",
    "mov edi, {set_mask}",
    "lea rsi, [rbx + {signals}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "mov r11, rbx",
    "mov rsp, rbp",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "8:",
    "mov rax, [rsp + 64]",
    "mov rax, [r11 + rax * 8 + {function}]",
    "mov [rsp + 64], rax",
    "pop r10",
    "pop rax",
    "pop r9",
    "pop r8",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop r11",
    "jmp r11",
    "hksim_attach_code_end:",
    ".popsection",
    functions = const REDIRECTED.len(),
    area = const AREA_BYTES,
    state = const offset_of!(Area, state),
    cancelled = const offset_of!(Area, cancelled),
    result = const offset_of!(Area, result),
    loader_start = const offset_of!(Area, loader_start),
    loader_bytes = const offset_of!(Area, loader_bytes),
    loader_state = const offset_of!(Area, loader_state),
    dlopen = const offset_of!(Area, dlopen),
    dlsym = const offset_of!(Area, dlsym),
    dlerror = const offset_of!(Area, dlerror),
    errno_location = const offset_of!(Area, errno_location),
    entry = const offset_of!(Area, entry),
    all_signals = const offset_of!(Area, all_signals),
    signals = const offset_of!(Area, signals),
    errno = const offset_of!(Area, errno),
    stack_end = const offset_of!(Area, stack_end),
    function = const offset_of!(Area, functions),
    entry_name = const offset_of!(Area, entry_name),
    message = const offset_of!(Area, message),
    object = const offset_of!(Area, object),
    message_bytes = const MESSAGE_BYTES,
    beginning = const BEGINNING,
    begun = const BEGUN,
    not_loaded = const NOT_LOADED,
    now = const libc::RTLD_NOW,
    sigprocmask = const libc::SYS_rt_sigprocmask,
    set_mask = const libc::SIG_SETMASK,
);

unsafe extern "C" {
    #[link_name = "hksim_attach_code"]
    static CODE: u8;
    #[link_name = "hksim_attach_code_end"]
    static CODE_END: u8;
}

/// The instructions, to be placed [`AREA_BYTES`] after the start of their [`Area`].
pub fn code() -> &'static [u8] {
    let start = &raw const CODE;
    // SAFETY: the assembly defines both symbols in one section, the second after the first.
    let bytes = unsafe { std::slice::from_raw_parts(start, (&raw const CODE_END).offset_from_unsigned(start)) };
    debug_assert!(bytes.len() <= CODE_BYTES, "the instructions fit their page");
    bytes
}
