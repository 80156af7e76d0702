//! The names of an image's marks.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::encoding::{MARK_GOES_ON, Record};

/// Maximum number of distinct names, because a program that keeps inventing names would fill the memory.
const NAMES_MAX: usize = 65_535;
/// Replaces all names beyond that number.
const FURTHER_NAME: &str = "(one of too many names)";

/// Names numbered in the order in which they first appear.
#[derive(Debug, Default)]
pub struct MarkNames {
    numbers: Mutex<HashMap<String, u32>>,
}

impl MarkNames {
    /// The number of a name.
    pub fn number(&self, name: &str) -> u32 {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let name = if numbers.len() < NAMES_MAX || numbers.contains_key(name) { name } else { FURTHER_NAME };
        let next = numbers.len() as u32;
        *numbers.entry(name.to_string()).or_insert(next)
    }

    /// All names, by number.
    pub fn names(&self) -> Vec<String> {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<(u32, String)> = numbers.iter().map(|(name, number)| (*number, name.clone())).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }
}

/// Joins the pieces of one thread's marks.
#[derive(Debug, Default)]
pub struct MarkPieces {
    bytes: Vec<u8>,
}

impl MarkPieces {
    /// The whole name, once its last piece has come. Bytes that are not UTF-8 are replaced.
    pub fn add(&mut self, record: &Record) -> Option<String> {
        let (bytes, used) = record.mark_bytes();
        self.bytes.extend_from_slice(bytes.get(..used).unwrap_or_default());
        if record.align_log2 & MARK_GOES_ON != 0 && self.bytes.len() < crate::control::MARK_BYTES_MAX {
            return None;
        }
        let name = String::from_utf8_lossy(&self.bytes).into_owned();
        self.bytes.clear();
        Some(name)
    }
}
