//! Calls in the code of a file: which function the instruction before a return address calls. The stack also has return
//! addresses of calls that are over.

use std::ops::Range;

use object::{Object, ObjectSection};

/// The code of a file.
#[derive(Debug, Default)]
pub(crate) struct Code {
    start: u64,
    bytes: Vec<u8>,
}

impl Code {
    /// The section `.text` of a file; nothing if it cannot be read.
    pub(crate) fn of(path: &str) -> Code {
        let bytes = std::fs::read(path).unwrap_or_default();
        let file = object::File::parse(&*bytes).ok();
        let section = file.as_ref().and_then(|file| file.section_by_name(".text"));
        let code =
            section.and_then(|section| Some(Code { start: section.address(), bytes: section.data().ok()?.into() }));
        code.unwrap_or_default()
    }

    fn before(&self, address: u64, bytes: u64) -> Option<&[u8]> {
        let end = address.checked_sub(self.start)?;
        let range: Range<usize> = end.checked_sub(bytes)? as usize..end as usize;
        self.bytes.get(range)
    }

    /// The function in this code that the instruction before a return address calls directly; `None` for other calls, such
    /// as those by a pointer or to another file.
    pub(crate) fn target(&self, return_address: u64) -> Option<u64> {
        let target = if cfg!(target_arch = "aarch64") {
            let word = u32::from_le_bytes(self.before(return_address, 4)?.try_into().ok()?);
            let offset = i64::from((word << 6) as i32 >> 6) * 4;
            (word >> 26 == 0b10_0101).then(|| (return_address - 4).wrapping_add_signed(offset))?
        } else {
            let [0xe8, offset @ ..] = self.before(return_address, 5)? else { return None };
            let offset = i32::from_le_bytes(<[u8; 4]>::try_from(offset).ok()?);
            return_address.wrapping_add_signed(offset.into())
        };
        let is_here = target >= self.start && target - self.start < self.bytes.len() as u64;
        is_here.then_some(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn direct_calls_within_the_code_have_a_target() {
        let mut bytes = vec![0x90; 32];
        bytes[8..13].copy_from_slice(&[0xe8, 0x03, 0, 0, 0]);
        bytes[16..21].copy_from_slice(&[0xe8, 0, 0x10, 0, 0]);
        bytes[24..26].copy_from_slice(&[0xff, 0xd0]);
        let code = Code { start: 0x1000, bytes };
        assert_eq!(code.target(0x100d), Some(0x1010));
        assert_eq!(code.target(0x1015), None, "another file's");
        assert_eq!(code.target(0x101a), None, "by a pointer");
        assert_eq!(code.target(0x1002), None);
        assert_eq!(code.target(0x2000), None);
    }
}
