//! Shards: a part of a sweep's rows, for one of several machines, and merging the parts.
//!
//! Rows are dealt like a shuffled deck: row numbers are shuffled with a fixed seed and dealt in turn. So shards differ by at
//! most one row, and no shard gets all rows of one flag's value, whatever the number of shards.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digest::Digest;
use crate::search::Random;

/// The seed of the deck. Changing it changes which rows a shard has.
const DECK_SEED: u64 = 0x6873_6861_7264;

/// One of several parts of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Its number, from 1.
    pub number: u32,
    /// Number of all shards.
    pub of: u32,
}

/// Why a shard is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}`: expected I/N with I from 1 to N, and N at most 10000 (1/4)")]
pub struct ShardError(String);

/// Maximum number of shards.
const SHARDS_MAX: u32 = 10_000;

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Shard, ShardError> {
        let parts = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        let (number, of): (u32, u32) = parts.ok_or_else(|| ShardError(text.to_string()))?;
        let is_valid = (1..=of).contains(&number) && of <= SHARDS_MAX;
        is_valid.then_some(Shard { number, of }).ok_or_else(|| ShardError(text.to_string()))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl Shard {
    /// The numbers of its rows in a sweep of `rows` rows, in increasing order.
    pub fn rows(self, rows: usize) -> Vec<usize> {
        let mut deck: Vec<usize> = (0..rows).collect();
        Random::new(DECK_SEED).shuffle(&mut deck);
        let mut own: Vec<usize> = deck.into_iter().skip(self.number as usize - 1).step_by(self.of as usize).collect();
        own.sort_unstable();
        own
    }
}

/// A shard's part of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Part<R> {
    /// The file, for messages.
    pub file: String,
    /// Which shard it is.
    pub shard: Shard,
    /// The digest of the whole sweep's inputs.
    pub sweep: Digest,
    /// Number of rows of the whole sweep.
    pub rows_total: usize,
    /// Its rows.
    pub rows: Vec<R>,
}

/// Why parts cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MergeError {
    /// There is nothing to merge.
    #[error("no shard to merge")]
    Empty,
    /// Parts of different sweeps.
    #[error("{file} and {first} are shards of different sweeps: traces, flags, profile or version differ")]
    Foreign {
        /// The file that differs.
        file: String,
        /// The first file.
        first: String,
    },
    /// The same shard twice.
    #[error("{file} and {first} are both shard {shard}")]
    Duplicate {
        /// The later file.
        file: String,
        /// The earlier file.
        first: String,
        /// The shard.
        shard: Shard,
    },
    /// A shard is missing.
    #[error("missing: shard {missing}; run the same sweep with --shard {missing} --format json -o FILE")]
    Missing {
        /// The first missing shard.
        missing: Shard,
    },
    /// A part does not have the rows of its shard.
    #[error("{file}: shard {shard} has {found} rows instead of {expected}; the file was changed")]
    Rows {
        /// The file.
        file: String,
        /// The shard.
        shard: Shard,
        /// Rows in the file.
        found: usize,
        /// Rows of the shard.
        expected: usize,
    },
}

/// Merges all shards of a sweep. The rows are in the order of the whole sweep.
///
/// # Errors
/// A part is missing, given twice, or of another sweep.
pub fn merge<R>(parts: Vec<Part<R>>) -> Result<Vec<R>, MergeError> {
    check(&parts)?;
    let mut rows: Vec<(usize, R)> = Vec::new();
    for part in parts {
        let numbers = part.shard.rows(part.rows_total);
        if numbers.len() != part.rows.len() {
            let (found, expected) = (part.rows.len(), numbers.len());
            return Err(MergeError::Rows { file: part.file, shard: part.shard, found, expected });
        }
        rows.extend(numbers.into_iter().zip(part.rows));
    }
    rows.sort_by_key(|&(number, _)| number);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn check<R>(parts: &[Part<R>]) -> Result<(), MergeError> {
    let first = parts.first().ok_or(MergeError::Empty)?;
    for (index, part) in parts.iter().enumerate() {
        if (part.shard.of, &part.sweep, part.rows_total) != (first.shard.of, &first.sweep, first.rows_total) {
            return Err(MergeError::Foreign { file: part.file.clone(), first: first.file.clone() });
        }
        if let Some(twin) = parts[..index].iter().find(|other| other.shard == part.shard) {
            let (file, first) = (part.file.clone(), twin.file.clone());
            return Err(MergeError::Duplicate { file, first, shard: part.shard });
        }
    }
    let of = first.shard.of;
    let missing =
        (1..=of).map(|number| Shard { number, of }).find(|shard| !parts.iter().any(|part| part.shard == *shard));
    missing.map_or(Ok(()), |missing| Err(MergeError::Missing { missing }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(of: u32, rows: usize) -> Vec<Part<usize>> {
        let part = |number| {
            let shard = Shard { number, of };
            Part {
                file: format!("{number}.json"),
                shard,
                sweep: Digest::of_bytes(b"sweep"),
                rows_total: rows,
                rows: shard.rows(rows),
            }
        };
        (1..=of).map(part).collect()
    }

    #[test]
    fn shards_share_all_rows_fairly_and_merge_in_order() {
        for rows in [0, 1, 2, 7, 36, 100] {
            for of in 1..=9 {
                let mut all = parts(of, rows);
                for part in &all {
                    assert!(part.rows.len().abs_diff(rows / of as usize) <= 1, "{rows} rows, shard {}", part.shard);
                }
                all.reverse();
                assert_eq!(merge(all), Ok((0..rows).collect()), "{rows} rows in {of} shards");
            }
        }
    }

    #[test]
    fn no_shard_has_all_rows_of_one_value() {
        // Three values that vary fastest, in three shards: dealing row by row would give each shard one value.
        for number in 1..=3 {
            let rows = Shard { number, of: 3 }.rows(36);
            for value in 0..3 {
                let of_value = rows.iter().filter(|row| *row % 3 == value).count();
                assert!((1..=8).contains(&of_value), "shard {number}, value {value}: {rows:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_merged_is_named() {
        let why = |parts| merge(parts).expect_err("not mergeable").to_string();
        assert_eq!(why(Vec::new()), "no shard to merge");
        let mut missing = parts(3, 10);
        missing.remove(1);
        assert!(why(missing).starts_with("missing: shard 2/3;"));
        let mut twice = parts(3, 10);
        twice.push(Part { file: "copy.json".into(), ..twice[0].clone() });
        assert_eq!(why(twice), "copy.json and 1.json are both shard 1/3");
        let mut foreign = parts(3, 10);
        foreign[2].sweep = Digest::of_bytes(b"other");
        assert!(why(foreign).starts_with("3.json and 1.json are shards of different sweeps"));
        let mut cut = parts(3, 10);
        cut[0].rows.pop();
        assert!(why(cut).starts_with("1.json: shard 1/3 has "));
    }

    #[test]
    fn shards_are_numbered_from_one() {
        assert_eq!("2/3".parse(), Ok(Shard { number: 2, of: 3 }));
        for text in ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/10001"] {
            assert_eq!(text.parse::<Shard>(), Err(ShardError(text.into())));
        }
    }
}
