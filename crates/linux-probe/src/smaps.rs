//! The mappings of a process, as `/proc/PID/smaps` lists them.

use std::ops::Range;

/// One mapping with its figures, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The addresses.
    pub addresses: Range<u64>,
    /// `rw-p`.
    pub mode: String,
    /// Offset in the file.
    pub offset: u64,
    /// The number of the mapped file; 0 without one.
    pub inode: u64,
    /// The path of the file, a name in brackets, or empty.
    pub name: String,
    /// Resident, without hugetlb pages.
    pub rss_bytes: u64,
    /// Resident, and mapped by another process, too.
    pub shared_bytes: u64,
    /// Resident anonymous memory.
    pub anonymous_bytes: u64,
    /// In huge pages of anonymous memory.
    pub huge_bytes: u64,
    /// Given up with `MADV_FREE`, and not reclaimed yet.
    pub lazy_free_bytes: u64,
    /// Swapped out.
    pub swap_bytes: u64,
    /// The size of its pages: larger than 4 KiB for the hugetlb pool.
    pub page_bytes: u64,
    /// In pages of the hugetlb pool.
    pub hugetlb_bytes: u64,
    /// Locked into memory.
    pub locked_bytes: u64,
    /// Whether the kernel allows a large folio of any size here; `None` if it does not say.
    pub is_thp_eligible: Option<bool>,
    /// The two-letter flags (`VmFlags`).
    pub flags: Vec<[u8; 2]>,
}

impl Mapping {
    /// The size of the address range.
    pub fn bytes(&self) -> u64 {
        self.addresses.end - self.addresses.start
    }

    /// Whether a flag is set: `hg`, `nh`, `ht`, `lo`.
    pub fn has(&self, flag: &[u8; 2]) -> bool {
        self.flags.contains(flag)
    }

    /// Private memory without a file: only it can get transparent huge pages that are not those of a file.
    pub fn is_anonymous(&self) -> bool {
        let is_special = self.name.starts_with("[v") || self.name == "[uprobes]";
        let is_private = self.mode.ends_with('p') && self.inode == 0;
        is_private && !self.is_hugetlb() && !is_special
    }

    /// Of the hugetlb pool.
    pub fn is_hugetlb(&self) -> bool {
        self.has(b"ht")
    }

    /// Whether it can be written.
    pub fn is_writable(&self) -> bool {
        self.mode.as_bytes().get(1) == Some(&b'w')
    }

    /// Whether it can be executed.
    pub fn is_executable(&self) -> bool {
        self.mode.as_bytes().get(2) == Some(&b'x')
    }

    /// Whether it can be neither read nor written nor executed.
    pub fn is_inaccessible(&self) -> bool {
        self.mode.starts_with("---")
    }

    fn set(&mut self, key: &str, value: &str) {
        let bytes = || value.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * 1024;
        match key {
            "Rss" => self.rss_bytes = bytes(),
            "KernelPageSize" => self.page_bytes = bytes(),
            "Shared_Clean" | "Shared_Dirty" => self.shared_bytes += bytes(),
            "Anonymous" => self.anonymous_bytes = bytes(),
            "AnonHugePages" => self.huge_bytes = bytes(),
            "LazyFree" => self.lazy_free_bytes = bytes(),
            "Swap" => self.swap_bytes = bytes(),
            "Shared_Hugetlb" | "Private_Hugetlb" => self.hugetlb_bytes += bytes(),
            "Locked" => self.locked_bytes = bytes(),
            "THPeligible" => self.is_thp_eligible = Some(value.trim() == "1"),
            "VmFlags" => {
                self.flags = value.split_whitespace().filter_map(|flag| flag.as_bytes().try_into().ok()).collect()
            }
            _ => {}
        }
    }
}

/// Parses the text of `smaps`. Lines of later kernels are passed over.
pub fn parse(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some(mapping) = head(line) {
            mappings.push(mapping);
        } else if let (Some(mapping), Some((key, value))) = (mappings.last_mut(), line.split_once(':')) {
            mapping.set(key, value);
        }
    }
    mappings
}

/// Parses a mapping's first line: `START-END MODE OFFSET DEVICE INODE   NAME`.
fn head(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mode = fields.next()?.to_string();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    let name = fields.next().unwrap_or_default().trim().to_string();
    (start < end).then(|| Mapping { addresses: start..end, mode, offset, inode, name, ..Mapping::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_figures_and_flags_are_read() {
        let text = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 [anon:a name: x]\nSize: 4096 kB\nRss: 2052 kB\n\
                    AnonHugePages: 2048 kB\nLazyFree: 4 kB\nPrivate_Hugetlb: 0 kB\nTHPeligible: 1\n\
                    VmFlags: rd wr mr mw me ac hg\n\
                    5000-6000 r-xp 00001000 fe:00 12     /lib/a b.so (deleted)\nRss: 4 kB\nNewFigure: x\nVmFlags: rd ex";
        let [named, code] = &parse(text)[..] else { panic!("two mappings") };
        assert_eq!((named.name.as_str(), named.rss_bytes, named.huge_bytes), ("[anon:a name: x]", 2052 << 10, 2 << 20));
        assert_eq!((named.lazy_free_bytes, named.is_thp_eligible, named.has(b"hg")), (4096, Some(true), true));
        assert!(named.is_anonymous() && named.is_writable() && !named.has(b"nh"));
        assert_eq!((code.name.as_str(), code.inode, code.bytes()), ("/lib/a b.so (deleted)", 12, 4096));
        assert_eq!((named.offset, code.offset), (0, 4096));
        assert!(!code.is_anonymous() && !code.is_writable() && code.is_thp_eligible.is_none());
    }
}
