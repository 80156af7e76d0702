//! One column of a chunk: fixed-width values in byte planes, with exceptions for the few values that do not fit.
//!
//! All values have the same width, so decoding has no branch per value. A value that is too wide is stored as 0 in the
//! planes. The decoder replaces it afterwards from a list of exceptions.

use super::pack::{ColumnMethods, Packer, PlaneMethod};
use zstd::bulk::Decompressor;

/// An integer type of columns.
pub(super) trait Value: Copy + Default + PartialEq {
    const BYTES: usize;
    fn widen(self) -> u64;
    /// Truncates to the low bytes. Called only with values that fit.
    fn narrow(value: u64) -> Self;
}

macro_rules! value {
    ($($t:ty),*) => {$(
        impl Value for $t {
            const BYTES: usize = size_of::<$t>();
            #[inline]
            fn widen(self) -> u64 { self as u64 }
            #[inline]
            fn narrow(value: u64) -> Self { value as $t }
        }
    )*};
}
value!(u8, u16, u32, u64);

const RAW: u8 = 0;
const ZSTD: u8 = 1;
const CONSTANT: u8 = 2;

/// Stored bytes of one exception before compression: 2 for the position, 8 for the value.
const EXCEPTION_BYTES: usize = 10;

/// Writes columns; its buffers are reused.
pub(super) struct ColumnEncoder {
    packer: Packer,
    fitting: Vec<u64>,
    plane: Vec<u8>,
}

impl ColumnEncoder {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(ColumnEncoder { packer: Packer::new()?, fitting: Vec::new(), plane: Vec::new() })
    }

    /// Appends `values` (at most [`super::CHUNK_EVENTS_MAX`]) to `out`. `methods` remembers the chosen compression
    /// methods for the same column of the next chunk.
    pub(super) fn encode<V: Value>(&mut self, values: &[V], methods: &mut ColumnMethods, out: &mut Vec<u8>) {
        let Width { bytes: width, exceptions } = best_width(values);
        out.extend_from_slice(&(values.len() as u16).to_le_bytes());
        out.extend_from_slice(&(exceptions as u16).to_le_bytes());
        out.push(width as u8);
        if exceptions == 0 {
            return self.planes(width, values, methods, out);
        }
        let too_wide = |value: u64| value >> (8 * width) != 0;
        let mut fitting = std::mem::take(&mut self.fitting);
        fitting.clear();
        fitting.extend(values.iter().map(|value| value.widen()).map(|value| if too_wide(value) { 0 } else { value }));
        self.planes(width, &fitting, methods, out);
        self.fitting = fitting;
        let wide = (0u16..).zip(values).map(|(position, value)| (position, value.widen()));
        let (positions, wide): (Vec<u16>, Vec<u64>) = wide.filter(|&(_, value)| too_wide(value)).unzip();
        self.planes(2, &positions, &mut ColumnMethods::default(), out);
        self.planes(8, &wide, &mut ColumnMethods::default(), out);
    }

    fn planes<V: Value>(&mut self, width: usize, values: &[V], methods: &mut ColumnMethods, out: &mut Vec<u8>) {
        for (byte, method) in methods.0.iter_mut().enumerate().take(width) {
            self.plane.clear();
            self.plane.extend(values.iter().map(|value| (value.widen() >> (8 * byte)) as u8));
            store_plane(&mut self.packer, &self.plane, method, out);
        }
    }
}

/// Stores a plane as a constant, compressed or raw, whichever is shortest. An empty plane takes no bytes.
fn store_plane(packer: &mut Packer, plane: &[u8], method: &mut PlaneMethod, out: &mut Vec<u8>) {
    let Some(&first) = plane.first() else {
        return;
    };
    if plane.iter().fold(0, |differences, &byte| differences | (byte ^ first)) == 0 {
        out.extend_from_slice(&[CONSTANT, first]);
    } else if let Some(packed) = packer.pack(plane, method) {
        out.push(ZSTD);
        out.extend_from_slice(&(packed.len() as u16).to_le_bytes());
        out.extend_from_slice(packed);
    } else {
        out.push(RAW);
        out.extend_from_slice(plane);
    }
}

/// How a column is stored.
struct Width {
    /// 1, 2, 4 or 8.
    bytes: usize,
    /// Number of values that do not fit.
    exceptions: usize,
}

/// The width that needs the fewest bytes before compression.
fn best_width<V: Value>(values: &[V]) -> Width {
    // The OR of all values shows which widths need no exceptions, so few columns need a second pass.
    let all_bits = values.iter().fold(0, |bits, value| bits | value.widen());
    let wider = |bytes: usize| values.iter().map(|value| usize::from(value.widen() >> (8 * bytes) != 0)).sum();
    let mut best = Width { bytes: V::BYTES, exceptions: 0 };
    for bytes in [4, 2, 1].into_iter().filter(|&bytes| bytes < V::BYTES) {
        let exceptions: usize = if all_bits >> (8 * bytes) == 0 { 0 } else { wider(bytes) };
        let stored = |width: &Width| values.len() * width.bytes + width.exceptions * EXCEPTION_BYTES;
        let width = Width { bytes, exceptions };
        if stored(&width) <= stored(&best) {
            best = width;
        }
    }
    best
}

/// Reads columns; its buffers are reused and never grow.
pub(super) struct ColumnDecoder {
    zstd: Decompressor<'static>,
    planes: Vec<u8>,
    positions: Vec<u16>,
}

/// Describes what is wrong with a column.
pub(super) type Flaw = &'static str;

impl ColumnDecoder {
    /// A decoder for columns of at most `values_max` values.
    pub(super) fn new(values_max: usize) -> std::io::Result<Self> {
        Ok(ColumnDecoder {
            zstd: Decompressor::new()?,
            planes: vec![0; 8 * values_max],
            positions: Vec::with_capacity(values_max),
        })
    }

    /// Reads a column from the front of `input` into `values`, whose capacity bounds the count.
    pub(super) fn decode<V: Value>(&mut self, input: &mut &[u8], values: &mut Vec<V>) -> Result<(), Flaw> {
        self.decode_over(input, values, None).map(|_| ())
    }

    /// As [`decode`](Self::decode). `every` is the value that all of `values` have, if that is known. Returns the same
    /// for the new values.
    pub(super) fn decode_over<V: Value>(
        &mut self,
        input: &mut &[u8],
        values: &mut Vec<V>,
        every: Option<V>,
    ) -> Result<Option<V>, Flaw> {
        let count = take_u16(input)? as usize;
        let exceptions = take_u16(input)? as usize;
        let width = take(input, 1)?[0] as usize;
        if count > values.capacity() || 8 * count > self.planes.len() {
            return Err("a column is longer than the chunk");
        }
        if exceptions > count {
            return Err("a column has more exceptions than values");
        }
        if ![1, 2, 4, 8].contains(&width) || width > V::BYTES {
            return Err("a column has an impossible width");
        }
        let constant = if count > 0 { constant(input, width).map(V::narrow) } else { None };
        if constant.is_none() || constant != every {
            values.clear();
        }
        match constant {
            Some(value) => values.resize(count, value),
            None => {
                self.planes(input, width, count)?;
                join(&self.planes[..width * count], count, width, values);
            }
        }
        if exceptions > 0 {
            self.patch(input, exceptions, values)?;
        }
        Ok(constant.filter(|_| exceptions == 0))
    }

    fn patch<V: Value>(&mut self, input: &mut &[u8], exceptions: usize, values: &mut [V]) -> Result<(), Flaw> {
        self.planes(input, 2, exceptions)?;
        self.positions.clear();
        join(&self.planes[..2 * exceptions], exceptions, 2, &mut self.positions);
        self.planes(input, 8, exceptions)?;
        for (i, &position) in self.positions.iter().enumerate() {
            let value = (0..8).fold(0, |value, byte| value | (self.planes[byte * exceptions + i] as u64) << (8 * byte));
            if V::BYTES < 8 && value >> (8 * V::BYTES) != 0 {
                return Err("an exception is too large for its column");
            }
            *values.get_mut(position as usize).ok_or("an exception is outside its column")? = V::narrow(value);
        }
        Ok(())
    }

    /// Reads `width` planes of `count` bytes each, one after another, into `self.planes`.
    fn planes(&mut self, input: &mut &[u8], width: usize, count: usize) -> Result<(), Flaw> {
        if count == 0 {
            return Ok(());
        }
        for plane in self.planes[..width * count].chunks_exact_mut(count) {
            match take(input, 1)?[0] {
                RAW => plane.copy_from_slice(take(input, count)?),
                CONSTANT => plane.fill(take(input, 1)?[0]),
                ZSTD => {
                    let bytes = take_u16(input)? as usize;
                    let packed = take(input, bytes)?;
                    match self.zstd.decompress_to_buffer(packed, plane) {
                        Ok(length) if length == count => (),
                        _ => return Err("a compressed plane is damaged"),
                    }
                }
                _ => return Err("a plane has an unknown encoding"),
            }
        }
        Ok(())
    }
}

/// Joins the bytes of `width` planes into values. There is one branch-free loop per width.
fn join<V: Value>(planes: &[u8], count: usize, width: usize, values: &mut Vec<V>) {
    let plane = |index: usize| &planes[index * count..(index + 1) * count];
    match width {
        1 => values.extend(plane(0).iter().map(|&b0| V::narrow(b0 as u64))),
        2 => values
            .extend(plane(0).iter().zip(plane(1)).map(|(&b0, &b1)| V::narrow(u16::from_le_bytes([b0, b1]) as u64))),
        4 => {
            let halves = plane(0).iter().zip(plane(1)).zip(plane(2).iter().zip(plane(3)));
            values
                .extend(halves.map(|((&b0, &b1), (&b2, &b3))| V::narrow(u32::from_le_bytes([b0, b1, b2, b3]) as u64)));
        }
        _ => values.extend(
            (0..count).map(|i| V::narrow((0..8).fold(0, |value, byte| value | (plane(byte)[i] as u64) << (8 * byte)))),
        ),
    }
}

/// The value of a column whose planes are all constant. Takes the planes from `input`, or nothing if one is not
/// constant.
fn constant(input: &mut &[u8], width: usize) -> Option<u64> {
    let (planes, rest) = input.split_at_checked(2 * width)?;
    let mut value = 0;
    for plane in planes.rchunks_exact(2) {
        if plane[0] != CONSTANT {
            return None;
        }
        value = value << 8 | u64::from(plane[1]);
    }
    *input = rest;
    Some(value)
}

fn take<'a>(input: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], Flaw> {
    let (taken, rest) = input.split_at_checked(bytes).ok_or("a column ends early")?;
    *input = rest;
    Ok(taken)
}

fn take_u16(input: &mut &[u8]) -> Result<u16, Flaw> {
    let bytes = take(input, 2)?;
    Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn round_trip<V: Value + PartialEq + Debug>(values: &[V]) -> usize {
        let mut stored = Vec::new();
        ColumnEncoder::new().unwrap().encode(values, &mut ColumnMethods::default(), &mut stored);
        let mut decoded: Vec<V> = Vec::with_capacity(super::super::CHUNK_EVENTS_MAX);
        let mut input = stored.as_slice();
        let mut decoder = ColumnDecoder::new(super::super::CHUNK_EVENTS_MAX).unwrap();
        decoder.decode(&mut input, &mut decoded).unwrap();
        assert_eq!(decoded, values);
        assert!(input.is_empty());
        stored.len()
    }

    #[test]
    fn every_width_and_the_exceptions_round_trip() {
        round_trip::<u8>(&[]);
        for shift in 0..64 {
            let wide: Vec<u64> = (0..1000u64).map(|i| (u64::MAX - i * i) >> shift).collect();
            round_trip(&wide);
            let mut mixed: Vec<u64> = (0..1000).map(|i| i * 7 % 251).collect();
            mixed[999] = u64::MAX >> shift;
            mixed[0] = 1 << shift;
            round_trip(&mixed);
        }
        round_trip(&[0u32, u32::MAX, 7]);
    }

    #[test]
    fn one_wide_value_does_not_widen_the_column() {
        let mut values = vec![5u64; 16_384];
        values[77] = u64::MAX;
        assert!(round_trip(&values) < 150);
    }
}
