//! A journal of finished rows, so that an interrupted sweep resumes.
//!
//! A text file with one JSON object per line. The first line names the sweep by the digest of its inputs. Each other line
//! has a row's number, the digest of its inputs, and the row. A line that was not written completely is ignored and
//! overwritten: it can only be the last one.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digest::Digest;

/// Version of the format.
const FORMAT: u32 = 1;

/// Why a journal cannot be used.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("{}: cannot {what}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The file is not a journal.
    #[error("{}: not a journal of `sweep --resume`; name a new file", .0.display())]
    NotAJournal(PathBuf),
    /// The journal of another sweep.
    #[error("{}: the journal of another sweep (traces, flags or version differ); remove it or name another file", .0.display())]
    OtherSweep(PathBuf),
    /// Another process has the journal open.
    #[error("{}: another sweep is using this journal; wait for its end, or name another file", .0.display())]
    InUse(PathBuf),
    /// A line before the last one is damaged.
    #[error("{}:{line}: damaged; remove the line to simulate its row again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A row has no JSON form.
    #[error("a row cannot be written as JSON")]
    Row(#[source] serde_json::Error),
}

/// The first line.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    hksim_journal: u32,
    sweep: Digest,
}

/// A finished row.
#[derive(Debug, Serialize, Deserialize)]
struct Entry<R> {
    row: usize,
    inputs: Digest,
    report: R,
}

/// A journal that is open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// The digest of each row's inputs.
    rows: Vec<Digest>,
}

impl Journal {
    /// Opens the journal of a sweep whose rows have these inputs; creates it if it does not exist. Also returns the finished
    /// rows.
    ///
    /// # Errors
    /// The file is not this sweep's journal, or cannot be read or written.
    pub fn open<R: DeserializeOwned>(
        path: &Path,
        rows: Vec<Digest>,
    ) -> Result<(Journal, BTreeMap<usize, R>), JournalError> {
        let io = |what| move |source| JournalError::Io { path: path.to_path_buf(), what, source };
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(io("open"))?;
        // The lock ends with the process. File systems without locks cannot detect a second process.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(JournalError::InUse(path.to_path_buf()));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(io("read"))?;
        // Anything after the last line break was cut off.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let head = Head { hksim_journal: FORMAT, sweep: Digest::of_all(&rows) };
        let finished = finished(path, &text, whole, &head, &rows)?;
        // Only now is it certain that the file is a journal.
        file.set_len(whole as u64).map_err(io("write"))?;
        file.seek(SeekFrom::Start(whole as u64)).map_err(io("write"))?;
        let mut journal = Journal { path: path.to_path_buf(), file, rows };
        if whole == 0 {
            journal.append(&head)?;
        }
        Ok((journal, finished))
    }

    /// Adds a finished row.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add<R: Serialize>(&mut self, row: usize, report: &R) -> Result<(), JournalError> {
        let inputs = self.rows[row].clone();
        self.append(&Entry { row, inputs, report })
    }

    /// Appends a line with a single write, so that a kill leaves at most the last line incomplete.
    fn append<T: Serialize>(&mut self, line: &T) -> Result<(), JournalError> {
        let mut text = serde_json::to_vec(line).map_err(JournalError::Row)?;
        text.push(b'\n');
        let io = |source| JournalError::Io { path: self.path.clone(), what: "write", source };
        self.file.write_all(&text).map_err(io)
    }
}

/// The finished rows in the first `whole` bytes of a journal's text.
fn finished<R: DeserializeOwned>(
    path: &Path,
    text: &[u8],
    whole: usize,
    head: &Head,
    rows: &[Digest],
) -> Result<BTreeMap<usize, R>, JournalError> {
    let not_a_journal = || JournalError::NotAJournal(path.to_path_buf());
    let other_sweep = || JournalError::OtherSweep(path.to_path_buf());
    let mut finished = BTreeMap::new();
    let mut lines = text[..whole].split_inclusive(|&byte| byte == b'\n').enumerate();
    let Some((_, first)) = lines.next() else {
        return if is_cut_head(text) { Ok(finished) } else { Err(not_a_journal()) };
    };
    let found: Head = serde_json::from_slice(first).map_err(|_| not_a_journal())?;
    if found != *head {
        return Err(other_sweep());
    }
    for (number, line) in lines {
        let damaged = |source| JournalError::Damaged { path: path.to_path_buf(), line: number + 1, source };
        let entry: Entry<R> = serde_json::from_slice(line).map_err(damaged)?;
        if rows.get(entry.row) != Some(&entry.inputs) {
            return Err(other_sweep());
        }
        finished.insert(entry.row, entry.report);
    }
    Ok(finished)
}

/// Whether a text without a line break is the start of a first line that was cut off.
fn is_cut_head(text: &[u8]) -> bool {
    const START: &[u8] = b"{\"hksim_journal\":";
    let length = text.len().min(START.len());
    text[..length] == START[..length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn digests(names: &[&str]) -> Vec<Digest> {
        names.iter().map(|name| Digest::of_bytes(name.as_bytes())).collect()
    }

    fn open(path: &Path, names: &[&str]) -> Result<BTreeMap<usize, String>, String> {
        Journal::open(path, digests(names)).map(|(_, rows)| rows).map_err(|why| why.to_string())
    }

    #[test]
    fn finished_rows_come_back_whatever_the_point_of_the_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("j");
        let names = ["a", "b", "c"];
        let (mut journal, _) = Journal::open::<String>(&path, digests(&names)).expect("a new journal");
        journal.add(2, &"two\nlines").expect("a row");
        journal.add(0, &"zero").expect("a row");
        drop(journal);
        let whole = fs::read(&path).expect("the journal");
        let ends: Vec<usize> =
            whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).expect("a cut journal");
            let rows = open(&path, &names).unwrap_or_else(|why| panic!("cut at {cut}: {why}"));
            let expected = ends[1..].iter().filter(|end| **end <= cut).count();
            assert_eq!(rows.len(), expected, "cut at {cut}");
            assert!(rows.get(&2).is_none_or(|row| row == "two\nlines"));
            // A row that is added after the cut is read back, too.
            let (mut journal, _) = Journal::open::<String>(&path, digests(&names)).expect("the journal");
            journal.add(1, &"one").expect("a row");
            assert!(open(&path, &names).expect_err("in use").contains("another sweep is using this journal"));
            drop(journal);
            assert_eq!(open(&path, &names).expect("rows").len(), expected + 1, "cut at {cut}");
        }
    }

    #[test]
    fn other_files_and_other_sweeps_are_refused_and_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("j");
        open(&path, &["a", "b"]).expect("a new journal");
        assert!(open(&path, &["a", "c"]).expect_err("another sweep").contains("the journal of another sweep"));
        for text in ["notes\n", "{\"rows\":[]}\n", "hello"] {
            fs::write(&path, text).expect("a file");
            assert!(open(&path, &["a"]).expect_err(text).contains("not a journal"), "{text}");
            assert_eq!(fs::read_to_string(&path).expect("the file"), text);
        }
        let damaged = format!("{{\"hksim_journal\":1,\"sweep\":\"{}\"}}\nx\n", Digest::of_all(&digests(&["a"])));
        fs::write(&path, damaged).expect("a file");
        assert!(open(&path, &["a"]).expect_err("damaged").contains("j:2: damaged"));
    }
}
