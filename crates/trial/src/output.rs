//! What a program writes, as far as two runs can be compared.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::thread::{self, JoinHandle};

/// Bytes kept of the end of what is written, for messages.
const TAIL_BYTES: usize = 400;

/// The content of a stream: its length and a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Content {
    bytes: u64,
    hash: u64,
}

/// A stream that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) content: Content,
    tail: Vec<u8>,
}

impl Stream {
    /// Reads a stream to its end, in a thread.
    pub(crate) fn read(mut from: impl Read + Send + 'static) -> JoinHandle<io::Result<Stream>> {
        thread::spawn(move || {
            let (mut hasher, mut bytes, mut tail) = (DefaultHasher::new(), 0, Vec::new());
            let mut buffer = vec![0; 64 << 10];
            loop {
                let part = match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(part) => &buffer[..part],
                    Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                    Err(why) => return Err(why),
                };
                // The hash of a stream does not depend on the parts in which it arrives.
                hasher.write(part);
                bytes += part.len() as u64;
                tail.extend_from_slice(part);
                tail.drain(..tail.len().saturating_sub(TAIL_BYTES));
            }
            Ok(Stream { content: Content { bytes, hash: hasher.finish() }, tail })
        })
    }

    /// The last line that is not empty.
    pub(crate) fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.tail);
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_string)
    }
}

/// What a row wrote in all its runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents(BTreeSet<Content>);

impl Contents {
    pub(crate) fn add(&mut self, content: Content) {
        self.0.insert(content);
    }

    /// Whether each run wrote the same.
    pub(crate) fn is_constant(&self) -> bool {
        self.0.len() < 2
    }

    /// Whether all runs wrote what those of the first row wrote; `None` if those differ among themselves.
    pub(crate) fn equal_to(&self, first: &Contents) -> Option<bool> {
        first.is_constant().then(|| self == first)
    }

    /// How they differ from what the first row always wrote.
    pub(crate) fn difference(&self, first: &Contents) -> String {
        let (Some(own), Some(other)) = (self.0.first(), first.0.first()) else { return "there is none".to_string() };
        match (self.is_constant(), own.bytes == other.bytes) {
            (false, _) => "it differs from run to run".to_string(),
            (true, true) => format!("other content in {} bytes", own.bytes),
            (true, false) => format!("{} bytes instead of {}", own.bytes, other.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(of: &'static str) -> Content {
        Stream::read(of.as_bytes()).join().expect("no panic").expect("read").content
    }

    fn contents(of: &[&'static str]) -> Contents {
        Contents(of.iter().map(|text| content(text)).collect())
    }

    /// Gives a byte at a time.
    struct Slowly(&'static [u8]);

    impl Read for Slowly {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            (to[0], self.0) = (*first, rest);
            Ok(1)
        }
    }

    #[test]
    fn the_content_does_not_depend_on_how_it_arrives() {
        let slowly = Stream::read(Slowly(b"one\ntwo\n\n")).join().expect("no panic").expect("read");
        assert_eq!(slowly.content, content("one\ntwo\n\n"));
        assert_ne!(slowly.content, content("one\ntwo\n"));
        assert_eq!(slowly.last_line().as_deref(), Some("two"));
    }

    #[test]
    fn a_row_is_blamed_only_if_the_first_repeats_itself() {
        let first = contents(&["a"]);
        assert_eq!(contents(&["a"]).equal_to(&first), Some(true));
        assert_eq!(contents(&["a", "b"]).equal_to(&first), Some(false));
        assert_eq!(contents(&["a", "b"]).difference(&first), "it differs from run to run");
        assert_eq!(contents(&["b"]).difference(&first), "other content in 1 bytes");
        assert_eq!(contents(&["bc"]).difference(&first), "2 bytes instead of 1");
        assert_eq!(contents(&["a"]).equal_to(&contents(&["a", "b"])), None);
    }
}
