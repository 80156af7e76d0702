//! The memory of another process, read and written by address. The process is not stopped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use crate::PAGE_BYTES;
use crate::dynamic_section::Memory;

/// The memory of a process.
#[derive(Debug)]
pub struct ProcessMemory(File);

impl ProcessMemory {
    /// Opens the memory of process `pid`, as long as it executes the same program.
    ///
    /// # Errors
    /// There is no such process, or this process has no right to trace it.
    pub fn open(pid: u32) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).map(Self)
    }

    /// Writes bytes, also to memory that the process itself can only read.
    ///
    /// # Errors
    /// The memory is not mapped, or the kernel forbids it.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }

    /// A view that reads each page once. For memory that does not change meanwhile.
    pub fn read_once(&self) -> PagesReadOnce<'_> {
        PagesReadOnce { memory: self, pages: RefCell::default() }
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.0.read_exact_at(into, address).is_ok()
    }
}

/// Memory of a process, of which each page is read once.
#[derive(Debug)]
pub struct PagesReadOnce<'a> {
    memory: &'a ProcessMemory,
    /// By address; empty if the page cannot be read.
    pages: RefCell<HashMap<u64, Vec<u8>>>,
}

impl Memory for PagesReadOnce<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let mut pages = self.pages.borrow_mut();
        let (mut at, mut rest) = (address, into);
        while !rest.is_empty() {
            let offset = (at % PAGE_BYTES) as usize;
            let page = pages.entry(at - offset as u64).or_insert_with(|| {
                let mut page = vec![0; PAGE_BYTES as usize];
                if self.memory.read(at - offset as u64, &mut page) { page } else { Vec::new() }
            });
            let (now, later) = rest.split_at_mut(rest.len().min(PAGE_BYTES as usize - offset));
            let Some(bytes) = page.get(offset..offset + now.len()) else {
                return false;
            };
            now.copy_from_slice(bytes);
            at = at.wrapping_add(now.len() as u64);
            rest = later;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_across_pages_and_written() {
        let bytes: Vec<u8> = (0..3 * PAGE_BYTES as u32).map(|number| (number % 251) as u8).collect();
        let memory = ProcessMemory::open(std::process::id()).expect("this process");
        let once = memory.read_once();
        for (at, length) in [(0, 1), (4000, 200), (100, 9000)] {
            let (mut direct, mut paged) = (vec![0; length], vec![0; length]);
            let address = bytes[at..].as_ptr() as u64;
            assert!(memory.read(address, &mut direct) && once.read(address, &mut paged));
            assert_eq!((&direct[..], &paged[..]), (&bytes[at..at + length], &bytes[at..at + length]));
        }
        assert!(!memory.read(16, &mut [0; 8]) && !once.read(16, &mut [0; 8]), "nothing is mapped there");
        static PLACE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        memory.write(PLACE.as_ptr() as u64, &2_u64.to_ne_bytes()).expect("writable");
        assert_eq!(PLACE.load(std::sync::atomic::Ordering::SeqCst), 2);
    }
}
