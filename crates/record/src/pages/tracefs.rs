//! The kernel's page-fault tracepoints, which report whether a fault was a read or a write.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use libc::{c_int, c_long};

/// A tracepoint of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its id for `perf_event_open`.
    pub id: u64,
    /// Offset of the faulting address in its data, in bytes.
    pub address_at: usize,
    /// Offset of the instruction's address.
    pub instruction_at: usize,
    /// Offset of the processor's error code.
    pub error_at: usize,
}

/// The tracepoints of faults in user mode, and of faults in system calls (such as `read` into a fresh buffer).
const NAMES: [&CStr; 2] = [c"events/exceptions/page_fault_user/format", c"events/exceptions/page_fault_kernel/format"];
const MOUNTED_AT: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The two tracepoints; `None` if they are not accessible (not root).
pub fn fault_tracepoints() -> Option<[Tracepoint; 2]> {
    let mounted = MOUNTED_AT.iter().filter(|place| Path::new(place).join("events").is_dir());
    let folder = mounted.filter_map(|place| File::open(place).ok().map(OwnedFd::from)).next().or_else(unmounted)?;
    let [user, kernel] = NAMES.map(|name| parse(&read(&folder, name)?));
    Some([user?, kernel?])
}

/// A private instance of tracefs for this process, for systems on which it is not mounted.
fn unmounted() -> Option<OwnedFd> {
    const CREATE: c_long = 6;
    const CLOSE_ON_EXEC: c_long = 1;
    let owned = |fd: c_long| {
        // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as c_int) })
    };
    // SAFETY: the name is a C string; the other calls take numbers and null pointers only.
    unsafe {
        let context = owned(libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), CLOSE_ON_EXEC))?;
        let fd = c_long::from(context.as_raw_fd());
        let nothing = std::ptr::null::<u8>();
        if libc::syscall(libc::SYS_fsconfig, fd, CREATE, nothing, nothing, 0 as c_long) != 0 {
            return None;
        }
        owned(libc::syscall(libc::SYS_fsmount, fd, CLOSE_ON_EXEC, 0 as c_long))
    }
}

fn read(folder: &OwnedFd, name: &CStr) -> Option<String> {
    // SAFETY: the name is a C string; nothing else owns the new descriptor.
    let file = unsafe {
        let fd = libc::openat(folder.as_raw_fd(), name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        (fd >= 0).then(|| File::from_raw_fd(fd))?
    };
    let mut text = String::new();
    file.take(1 << 16).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Parses the kernel's description of a tracepoint's data.
fn parse(format: &str) -> Option<Tracepoint> {
    let id = format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
    let field = |name: &str| {
        let line = format.lines().find(|line| line.contains(&format!(" {name};")))?;
        let number = |key: &str| line.split(key).nth(1)?.split(';').next()?.parse::<usize>().ok();
        number("offset:").filter(|_| number("size:") == Some(8))
    };
    Some(Tracepoint { id, address_at: field("address")?, instruction_at: field("ip")?, error_at: field("error_code")? })
}

#[cfg(test)]
mod tests {
    use super::{Tracepoint, parse};

    #[test]
    fn a_tracepoint_description_is_parsed() {
        let text = "name: page_fault_user\nID: 190\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:unsigned long address;\toffset:8;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long ip;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long error_code;\toffset:24;\tsize:8;\tsigned:0;\n";
        let wanted = Tracepoint { id: 190, address_at: 8, instruction_at: 16, error_at: 24 };
        assert_eq!(parse(text), Some(wanted));
        assert_eq!(parse("ID: 3\n"), None);
    }
}
