//! The mappings of this process, as `/proc/self/maps` lists them.

use std::io;

/// The list at one moment.
#[derive(Debug)]
pub struct Maps {
    text: String,
}

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Its first address.
    pub start: usize,
    /// Its size.
    pub bytes: usize,
    /// It can be read.
    pub is_readable: bool,
    /// It can be written.
    pub is_writable: bool,
    /// It contains code.
    pub is_executable: bool,
    /// The path of its file, a name in brackets, or empty.
    pub name: &'a str,
}

impl Maps {
    /// Reads the list. Its text may need a new mapping, which the list then lacks.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn read() -> io::Result<Maps> {
        Ok(Maps { text: std::fs::read_to_string("/proc/self/maps")? })
    }

    /// A list that was read before.
    pub fn of_text(text: &str) -> Maps {
        Maps { text: text.to_string() }
    }

    /// The mappings, by address. Allocates nothing.
    pub fn iter(&self) -> impl Iterator<Item = Mapping<'_>> {
        self.text.lines().filter_map(Mapping::parse)
    }
}

impl<'a> Mapping<'a> {
    /// Parses a line: `START-END MODE OFFSET DEVICE INODE   NAME`.
    fn parse(line: &'a str) -> Option<Mapping<'a>> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        let mode = fields.next()?.as_bytes();
        let has = |place: usize, letter: u8| mode.get(place) == Some(&letter);
        let name = fields.nth(3).unwrap_or("").trim();
        let (is_readable, is_writable, is_executable) = (has(0, b'r'), has(1, b'w'), has(2, b'x'));
        Some(Mapping { start, bytes: end.checked_sub(start)?, is_readable, is_writable, is_executable, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_form_are_read() {
        let maps = Maps {
            text: "1000-3000 rw-p 00000000 00:00 0 \n\
                   3000-4000 r-xp 00001000 fe:00 1234                       /lib/a b.so (deleted)\n\
                   ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n\
                   damaged\n2000-1000 r--p 0 0 0\n"
                .into(),
        };
        let found: Vec<_> = maps.iter().map(|map| (map.start, map.bytes, map.is_executable, map.name)).collect();
        let vsyscall = (0xffff_ffff_ff60_0000, 0x1000, true, "[vsyscall]");
        assert_eq!(found, [(0x1000, 0x2000, false, ""), (0x3000, 0x1000, true, "/lib/a b.so (deleted)"), vsyscall]);
        let writable: Vec<_> = maps.iter().map(|map| (map.is_readable, map.is_writable)).collect();
        assert_eq!(writable, [(true, true), (true, false), (false, false)]);
    }

    #[test]
    fn the_stack_of_this_process_is_listed() {
        let here = 0u8;
        let place = (&raw const here).addr();
        let maps = Maps::read().expect("/proc");
        let holds = |map: &Mapping<'_>| (map.start..map.start + map.bytes).contains(&place);
        assert_eq!(maps.iter().filter(|map| holds(map) && map.is_writable).count(), 1);
    }
}
