//! Detects changes of the machine's huge-page modes and limits, by comparing digests of their files.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::FileExt;

use crate::sysfs::{HUGETLB, THP};

/// Bytes that are read of each file. The files are shorter.
const FILE_BYTES: usize = 128;

/// The open files. Reading them allocates nothing.
#[derive(Debug, Default)]
pub struct ModeFiles {
    files: Vec<File>,
}

impl ModeFiles {
    /// Opens the files that this machine has: modes of transparent huge pages by size, defrag, the zero page,
    /// `max_ptes_none`, the hugetlb pool, `max_map_count` and overcommit.
    pub fn open() -> ModeFiles {
        let sizes = fs::read_dir(THP).into_iter().flatten().flatten().map(|entry| entry.path().join("enabled"));
        let named = [
            format!("{THP}/enabled"),
            format!("{THP}/defrag"),
            format!("{THP}/use_zero_page"),
            format!("{THP}/khugepaged/max_ptes_none"),
            format!("{HUGETLB}/nr_hugepages"),
            "/proc/sys/vm/max_map_count".into(),
            "/proc/sys/vm/overcommit_memory".into(),
        ];
        let paths = sizes.chain(named.into_iter().map(Into::into));
        ModeFiles { files: paths.filter_map(|path| File::open(path).ok()).collect() }
    }

    /// A digest of the files' current contents, which changes if any mode or limit does.
    pub fn digest(&self) -> u64 {
        let mut digest = DefaultHasher::new();
        for file in &self.files {
            let mut bytes = [0; FILE_BYTES];
            let filled = file.read_at(&mut bytes, 0).unwrap_or(0);
            digest.write(&bytes[..filled]);
        }
        digest.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_changes_the_digest() {
        let path = std::env::temp_dir().join(format!("hksim-modes-{}", std::process::id()));
        fs::write(&path, "always [madvise] never").expect("a temporary file");
        let files = ModeFiles { files: vec![File::open(&path).expect("the file")] };
        let before = files.digest();
        assert_eq!(files.digest(), before);
        fs::write(&path, "[always] madvise never").expect("a temporary file");
        assert_ne!(files.digest(), before);
        fs::remove_file(&path).expect("the file");
    }
}
