//! What the kernel says about a process or a thread in `/proc/ID/status`.

use std::fs;
use std::io;
use std::str::FromStr;

/// The text of `/proc/ID/status` at one moment.
#[derive(Clone, Debug)]
pub struct Status(String);

impl From<String> for Status {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Status {
    /// Of a process or thread.
    ///
    /// # Errors
    /// There is none with this id, or the file cannot be read.
    pub fn of(id: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{id}/status"))
    }

    /// Of this process.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_this_process() -> io::Result<Self> {
        Self::read("/proc/self/status")
    }

    fn read(path: &str) -> io::Result<Self> {
        // A process's name need not be UTF-8.
        fs::read(path).map(|text| Self(String::from_utf8_lossy(&text).into_owned()))
    }

    /// What stands after `NAME:`, without blanks at its ends.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// The numbers of a field, up to a word that is none.
    pub fn numbers<T: FromStr>(&self, name: &str) -> impl Iterator<Item = T> {
        self.field(name).unwrap_or_default().split_ascii_whitespace().map_while(|word| word.parse().ok())
    }

    /// The first number of a field.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.numbers(name).next()
    }

    /// A field in kB, in bytes.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        self.number::<u64>(name)?.checked_mul(1024)
    }

    /// The name of the process or thread (`comm`).
    pub fn name(&self) -> &str {
        self.field("Name").unwrap_or_default()
    }

    /// The letter of its state: `R`, `S`, `T`, `Z` and others.
    pub fn state(&self) -> Option<char> {
        self.field("State")?.chars().next()
    }

    /// Whether it has ended, and its parent has not waited for it.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state(), Some('Z' | 'X'))
    }

    /// Whether its first thread has ended, and others run: the kernel then shows nothing of the process's memory under the
    /// process's id.
    pub fn has_lost_first_thread(&self) -> bool {
        self.is_zombie() && self.number::<u32>("Threads").is_some_and(|threads| threads > 1)
    }

    /// Whether it has memory of its own: threads of the kernel and zombies have none.
    pub fn has_memory(&self) -> bool {
        self.field("VmSize").is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = Status::from(
            "Name:\ta b\nState:\tZ (zombie)\nTgid:\t7\nUid:\t0\t1\t2\t3\nVmRSS:\t     500 kB\nThreads:\t2\n"
                .to_string(),
        );
        assert_eq!((status.name(), status.state(), status.is_zombie()), ("a b", Some('Z'), true));
        assert_eq!(
            (status.number("Tgid"), status.number("Threads"), status.number::<u64>("Vm")),
            (Some(7), Some(2), None)
        );
        assert_eq!((status.bytes("VmRSS"), status.has_memory()), (Some(500 << 10), false));
        assert_eq!(status.numbers("Uid").collect::<Vec<u32>>(), [0, 1, 2, 3]);
        assert_eq!(status.numbers("VmRSS").collect::<Vec<u32>>(), [500]);
    }

    #[test]
    fn a_thread_has_the_id_of_its_process() {
        // SAFETY: has no precondition.
        let thread = std::thread::spawn(|| unsafe { libc::gettid() } as u32);
        let own = Status::of_this_process().expect("a status");
        assert_eq!(own.number("Tgid"), Some(std::process::id()));
        assert!(own.has_memory() && !own.is_zombie());
        assert_ne!(thread.join().expect("a thread"), std::process::id());
        assert!(Status::of(u32::MAX).is_err());
    }
}
