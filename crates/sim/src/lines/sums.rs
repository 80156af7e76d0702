//! Sums over the end of a list of small numbers that change.

/// Numbers of a block, and blocks of a section.
const FANOUT: usize = 16;

/// A list of `N` numbers up to 64, with the sums of its blocks and sections.
#[derive(Clone)]
pub(super) struct Sums<const N: usize> {
    numbers: Box<[[u8; FANOUT]]>,
    blocks: Box<[[u16; FANOUT]]>,
    sections: Box<[u32]>,
}

impl<const N: usize> Sums<N> {
    /// Zeros.
    pub(super) fn new() -> Sums<N> {
        Sums {
            numbers: vec![[0; FANOUT]; N / FANOUT].into(),
            blocks: vec![[0; FANOUT]; N / FANOUT / FANOUT].into(),
            sections: vec![0; N / FANOUT / FANOUT].into(),
        }
    }

    /// A number.
    pub(super) fn number(&self, at: usize) -> u32 {
        self.numbers[at / FANOUT][at % FANOUT].into()
    }

    /// Adds to a number.
    #[inline(always)]
    pub(super) fn add(&mut self, at: usize, increment: u32) {
        let (block, section) = (at / FANOUT, at / FANOUT / FANOUT);
        self.numbers[block][at % FANOUT] += increment as u8;
        self.blocks[section][block % FANOUT] += increment as u16;
        self.sections[section] += increment;
    }

    /// Subtracts from a number.
    #[inline(always)]
    pub(super) fn subtract(&mut self, at: usize, decrement: u32) {
        let (block, section) = (at / FANOUT, at / FANOUT / FANOUT);
        self.numbers[block][at % FANOUT] -= decrement as u8;
        self.blocks[section][block % FANOUT] -= decrement as u16;
        self.sections[section] -= decrement;
    }

    /// The sum of the numbers after number `at`.
    #[inline(always)]
    pub(super) fn after(&self, at: usize) -> u32 {
        let (block, section) = (at / FANOUT, at / FANOUT / FANOUT);
        let blocks = self.blocks[section][block % FANOUT + 1..].iter().map(|&sum| u32::from(sum));
        after_in_block(&self.numbers[block], at % FANOUT)
            + blocks.sum::<u32>()
            + self.sections[section + 1..].iter().sum::<u32>()
    }

    /// Sets all numbers to zero.
    pub(super) fn clear(&mut self) {
        self.numbers.fill([0; FANOUT]);
        self.blocks.fill([0; FANOUT]);
        self.sections.fill(0);
    }
}

/// The sum of the numbers of a block after number `at`, eight at a time.
#[inline(always)]
fn after_in_block(numbers: &[u8; FANOUT], at: usize) -> u32 {
    const EVERY_OTHER: u128 = u128::MAX / 0xffff * 0xff;
    let after = u128::from_le_bytes(*numbers) >> (8 * at) >> 8;
    let pairs = (after & EVERY_OTHER) + (after >> 8 & EVERY_OTHER);
    let fours = (pairs as u64) + (pairs >> 64) as u64;
    (fours.wrapping_mul(0x0001_0001_0001_0001) >> 48) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_a_plain_list() {
        const N: usize = 1024;
        let (mut sums, mut plain) = (Sums::<N>::new(), [0; N]);
        let mut state = 0x5EED_usize;
        for _ in 0..3000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (at, number) = (state >> 40 & (N - 1), (state >> 20 & 63) as u32 + 1);
            sums.subtract(at, plain[at]);
            sums.add(at, number);
            plain[at] = number;
            let from = state >> 50 & (N - 1);
            assert_eq!(sums.after(from), plain[from + 1..].iter().sum::<u32>(), "after {from}");
            assert_eq!(sums.number(from), plain[from]);
        }
        sums.clear();
        assert_eq!(sums.after(0), 0);
    }
}
