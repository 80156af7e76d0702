//! Tracepoints of the kernel and the layout of their data, from tracefs.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use libc::{c_int, c_long};

const MOUNTED_AT: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The folder of all tracepoints.
#[derive(Debug)]
pub struct Tracefs(OwnedFd);

/// The kernel's description of a tracepoint.
#[derive(Clone, Debug)]
pub struct Tracepoint {
    /// Its id for `perf_event_open`. Each record of it begins with the lower 16 bits.
    pub id: u64,
    format: String,
}

impl Tracefs {
    /// Opens tracefs, mounted or not. `None` without permission (not root).
    pub fn open() -> Option<Self> {
        let mounted = MOUNTED_AT.iter().filter(|place| Path::new(place).join("events").is_dir());
        mounted.filter_map(|place| File::open(place).ok().map(OwnedFd::from)).next().or_else(unmounted).map(Self)
    }

    /// A tracepoint by the path of its description, such as `events/exceptions/page_fault_user/format`.
    pub fn tracepoint(&self, path: &CStr) -> Option<Tracepoint> {
        Tracepoint::parse(read(&self.0, path)?)
    }
}

impl Tracepoint {
    /// Parses a description.
    pub fn parse(format: String) -> Option<Self> {
        let id = format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
        Some(Self { id, format })
    }

    /// Offset in bytes of a field with elements of 8 bytes in the tracepoint's data.
    pub fn offset_of(&self, field: &str) -> Option<usize> {
        self.place_of(field).filter(|(_, bytes)| *bytes > 0 && bytes % 8 == 0).map(|(offset, _)| offset)
    }

    /// Offset in bytes of a field of 4 bytes in the tracepoint's data.
    pub fn offset_of_int(&self, field: &str) -> Option<usize> {
        self.place_of(field).filter(|(_, bytes)| *bytes == 4).map(|(offset, _)| offset)
    }

    /// Offset and length of a field in bytes.
    fn place_of(&self, field: &str) -> Option<(usize, usize)> {
        let is_named = |line: &&str| line.contains(&format!(" {field};")) || line.contains(&format!(" {field}["));
        let line = self.format.lines().find(is_named)?;
        let number = |key: &str| line.split(key).nth(1)?.split(';').next()?.parse::<usize>().ok();
        Some((number("offset:")?, number("size:")?))
    }
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

#[cfg(test)]
mod tests {
    use super::Tracepoint;

    #[test]
    fn a_tracepoint_description_is_parsed() {
        let text = "name: page_fault_user\nID: 190\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:unsigned long address;\toffset:8;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n";
        let point = Tracepoint::parse(text.to_string()).expect("a description");
        assert_eq!(point.id, 190);
        assert_eq!([point.offset_of("address"), point.offset_of("args")], [Some(8), Some(16)]);
        assert_eq!(point.offset_of("common_pid"), None, "4 bytes");
        assert_eq!([point.offset_of_int("common_pid"), point.offset_of_int("address")], [Some(4), None]);
        assert_eq!(point.offset_of("error_code"), None);
        assert!(Tracepoint::parse("ID: x\n".to_string()).is_none());
    }
}
