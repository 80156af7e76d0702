//! Mutations for tests that run the fuzz targets without a nightly toolchain.

/// The same as `-max_len` in fuzz/run.sh.
pub const INPUT_BYTES_MAX: usize = 16_384;

/// A seed with one to eight random changes: flipped bits, changed bytes, boundary values, and pieces that are removed,
/// repeated or copied from another seed. `below(end)` returns a random number below `end`.
pub fn mutated(below: &mut dyn FnMut(u64) -> u64, seeds: &[Vec<u8>]) -> Vec<u8> {
    const BYTES: &[u8] = b"\0\x7F\x80\xFF \n09-x";
    const EDGES: [u64; 7] = [0, 1, u64::MAX, 1 << 31, 1 << 32, 1 << 47, 1 << 63];
    let mut input = seeds[below(seeds.len() as u64) as usize].clone();
    for _ in 0..=below(8) {
        if input.is_empty() {
            input.push(0);
        }
        let at = below(input.len() as u64) as usize;
        let end = (at + 1 + below(64) as usize).min(input.len());
        match below(9) {
            0 => input[at] ^= 1 << below(8),
            1 => input[at] = below(256) as u8,
            2 => input[at] = BYTES[below(BYTES.len() as u64) as usize],
            3 => {
                let edge = EDGES[below(EDGES.len() as u64) as usize].to_le_bytes();
                let bytes = (end - at).min(8);
                input[at..at + bytes].copy_from_slice(&edge[..bytes]);
            }
            4 => {
                let digits = input[at..end].iter_mut().filter(|byte| byte.is_ascii_digit());
                digits.for_each(|byte| *byte = b"0123456789"[below(10) as usize]);
            }
            5 => drop(input.drain(at..end)),
            6 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            7 => {
                let other = &seeds[below(seeds.len() as u64) as usize];
                let from = below(other.len() as u64) as usize;
                let piece = other[from..].iter().take(256).copied();
                input.splice(at..end, piece);
            }
            _ => input.truncate(at),
        }
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}
