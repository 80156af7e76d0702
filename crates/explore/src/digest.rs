//! Digests of inputs: equal inputs have equal digests, on all machines and in all builds.
//!
//! FNV-1a of 64 bits. It detects mixed-up files, not forgeries.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The digest of a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// The digest of some inputs as JSON.
    pub fn of(inputs: &Value) -> Digest {
        Digest::of_bytes(inputs.to_string().as_bytes())
    }

    /// The digest of bytes.
    pub fn of_bytes(bytes: &[u8]) -> Digest {
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
        Digest(format!("{hash:016x}"))
    }

    /// The digest of several digests, in their order.
    pub fn of_all(digests: &[Digest]) -> Digest {
        let text: String = digests.iter().map(|digest| digest.0.clone() + "\n").collect();
        Digest::of_bytes(text.as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_published_test_vectors() {
        // From the reference of FNV-1a, 64 bits.
        for (text, digest) in [("", "cbf29ce484222325"), ("a", "af63dc4c8601ec8c"), ("foobar", "85944171f73967e8")] {
            assert_eq!(Digest::of_bytes(text.as_bytes()).to_string(), digest);
        }
    }
}
