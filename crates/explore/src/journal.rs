//! A journal of finished rows, so that an interrupted sweep resumes.
//!
//! A text file. Its first line is a JSON object that names the sweep by the digest of its inputs. Each other line is the
//! CRC-32 of a JSON object, in hexadecimal, and the object: a row's number, the digest of its inputs, and the row. A line
//! that was not written completely is ignored and overwritten: it can only be the last one. Any other damage is an error,
//! never another figure. Lines may be in any order, as rows finish.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::digest::Digest;
use crate::figure_range::{self, ImpossibleFigure};

/// Version of the format.
const FORMAT: u32 = 2;

/// Digits of a line's checksum.
const CRC_DIGITS: usize = 8;

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
    /// A row has a figure that no run can give.
    #[error("{}:{line}: {why}", path.display())]
    Figure {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The figure.
        why: ImpossibleFigure,
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
    /// The journal of another version of hksim.
    #[error("{}: a journal of version {found}, and this hksim writes version {FORMAT}; remove it or name another file", path.display())]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A whole line does not have its checksum.
    #[error("{}:{line}: damaged (its checksum is wrong); remove the line to simulate its row again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// A whole line has its checksum and is not a row.
    #[error("{}:{line}: not a row of this version; remove the journal or name another file", path.display())]
    NotARow {
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
        // Another file, which may be of any length, is not read as a whole.
        let mut text = Vec::new();
        let is_regular = file.metadata().map_err(io("read"))?.is_file();
        if is_regular {
            (&mut file).take(START.len() as u64).read_to_end(&mut text).map_err(io("read"))?;
        }
        if !is_regular || !is_start(&text) {
            return Err(JournalError::NotAJournal(path.to_path_buf()));
        }
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
            let head = serde_json::to_string(&head).map_err(JournalError::Row)?;
            journal.append(head)?;
        }
        Ok((journal, finished))
    }

    /// Adds a finished row.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add<R: Serialize>(&mut self, row: usize, report: &R) -> Result<(), JournalError> {
        let inputs = self.rows[row].clone();
        let json = serde_json::to_string(&Entry { row, inputs, report }).map_err(JournalError::Row)?;
        self.append(format!("{:0CRC_DIGITS$x} {json}", crc32fast::hash(json.as_bytes())))
    }

    /// Appends a line with a single write, so that a kill leaves at most the last line incomplete.
    fn append(&mut self, mut line: String) -> Result<(), JournalError> {
        line.push('\n');
        let io = |source| JournalError::Io { path: self.path.clone(), what: "write", source };
        self.file.write_all(line.as_bytes()).map_err(io)
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
    // A first line that was cut off.
    let Some((_, first)) = lines.next() else { return Ok(finished) };
    let found: Head = serde_json::from_slice(first).map_err(|_| not_a_journal())?;
    if found.hksim_journal != FORMAT {
        return Err(JournalError::OtherVersion { path: path.to_path_buf(), found: found.hksim_journal });
    }
    if found != *head {
        return Err(other_sweep());
    }
    for (number, line) in lines {
        let at = || (path.to_path_buf(), number + 1);
        let not_a_row = |source| {
            let (path, line) = at();
            JournalError::NotARow { path, line, source }
        };
        let Some(json) = checked(line) else {
            let (path, line) = at();
            return Err(JournalError::Damaged { path, line });
        };
        let value: Value = serde_json::from_slice(json).map_err(not_a_row)?;
        figure_range::check(&value).map_err(|why| {
            let (path, line) = at();
            JournalError::Figure { path, line, why }
        })?;
        let entry = Entry::<R>::deserialize(value).map_err(not_a_row)?;
        if rows.get(entry.row) != Some(&entry.inputs) {
            return Err(other_sweep());
        }
        finished.insert(entry.row, entry.report);
    }
    Ok(finished)
}

/// The JSON of a line; `None` if it does not have its checksum.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let (crc, rest) = line.split_at_checked(CRC_DIGITS)?;
    let json = rest.strip_prefix(b" ")?.strip_suffix(b"\n")?;
    let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
    (crc == crc32fast::hash(json)).then_some(json)
}

/// How every journal begins.
const START: &[u8] = b"{\"hksim_journal\":";

/// Whether a text begins as a journal does, as far as it goes.
fn is_start(text: &[u8]) -> bool {
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
    fn no_change_of_a_byte_gives_another_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, names) = (folder.path().join("j"), ["a", "b"]);
        let (mut journal, _) = Journal::open::<String>(&path, digests(&names)).expect("a new journal");
        journal.add(1, &"peak 1835008").expect("a row");
        journal.add(0, &"peak 1838").expect("a row");
        drop(journal);
        let whole = fs::read(&path).expect("the journal");
        let expected = open(&path, &names).expect("rows");
        let (mut refused, mut fewer) = (0, 0);
        let mut try_changed = |changed: &[u8], what: &str| {
            fs::write(&path, changed).expect("a changed journal");
            match open(&path, &names) {
                Ok(rows) => {
                    assert!(rows.iter().all(|(row, text)| expected[row] == *text), "{what}: {rows:?}");
                    fewer += usize::from(rows.len() < expected.len());
                }
                Err(why) => {
                    assert!(
                        ["damaged", "another sweep", "not a journal", "version"].iter().any(|word| why.contains(word)),
                        "{what}: {why}"
                    );
                    refused += 1;
                }
            }
        };
        for at in 0..whole.len() {
            try_changed(&[&whole[..at], &whole[at + 1..]].concat(), &format!("without byte {at}"));
            for bit in [0, 3, 6] {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                try_changed(&changed, &format!("bit {bit} of byte {at}"));
            }
            for byte in [b'\n', b' ', b'0'] {
                try_changed(&[&whole[..at], &[byte], &whole[at..]].concat(), &format!("{byte} before byte {at}"));
            }
        }
        // Only damage after the last line break, or to it, is a line that was cut off.
        assert!(refused > whole.len() * 3 && (1..=12).contains(&fewer), "{refused} refused, {fewer} with fewer rows");
    }

    #[test]
    fn other_files_and_other_sweeps_are_refused_and_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("j");
        open(&path, &["a", "b"]).expect("a new journal");
        assert!(open(&path, &["a", "c"]).expect_err("another sweep").contains("the journal of another sweep"));
        assert!(open(Path::new("/dev/zero"), &["a"]).expect_err("a device").contains("not a journal"));
        for text in ["notes\n", "{\"rows\":[]}\n", "hello"] {
            fs::write(&path, text).expect("a file");
            assert!(open(&path, &["a"]).expect_err(text).contains("not a journal"), "{text}");
            assert_eq!(fs::read_to_string(&path).expect("the file"), text);
        }
        let older = format!("{{\"hksim_journal\":1,\"sweep\":\"{}\"}}\n", Digest::of_all(&digests(&["a"])));
        fs::write(&path, older).expect("a file");
        assert!(open(&path, &["a"]).expect_err("an older one").contains("a journal of version 1"));
    }
}
