//! Integers of variable length: seven bits per byte, lowest first (LEB128).

/// Appends an unsigned integer.
pub(crate) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a signed integer; small magnitudes are short.
pub(crate) fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put(bytes, (value << 1 ^ value >> 63) as u64);
}

/// Removes an unsigned integer from the front. `None` if the bytes end early or the value has more than 64 bits.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Removes a signed integer from the front.
pub(crate) fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    let value = take(bytes)?;
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_encodings() {
        // The examples of the LEB128 definition in the DWARF standard.
        for (value, stored) in [(2, vec![2]), (127, vec![127]), (128, vec![0x80, 1]), (12857, vec![57 + 0x80, 100])] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(bytes, stored);
        }
        let mut bytes = Vec::new();
        put(&mut bytes, u64::MAX);
        assert_eq!(take(&mut bytes.as_slice()), Some(u64::MAX));
        assert_eq!(bytes.len(), 10);
    }

    #[test]
    fn signed_values_keep_their_sign() {
        for value in [0, -1, 1, 63, -64, 64, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_signed(&mut bytes, value);
            assert_eq!(take_signed(&mut bytes.as_slice()), Some(value));
            assert_eq!(bytes.len() == 1, (-64..64).contains(&value));
        }
    }

    #[test]
    fn damaged_values_are_refused() {
        assert_eq!(take(&mut [0x80u8, 0x80].as_slice()), None, "ends early");
        assert_eq!(take(&mut [0xff; 11].as_slice()), None, "too long");
        assert_eq!(take(&mut [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2].as_slice()), None, "65 bits");
    }
}
