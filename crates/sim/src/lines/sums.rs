//! Sums over the ends of a list of small numbers that change.

/// Numbers of a block, and blocks of a section.
const FANOUT: usize = 16;

/// A list of `N` numbers up to 64, with the sums of its blocks and sections.
pub(super) struct Sums<const N: usize> {
    numbers: Box<[u8]>,
    blocks: Box<[u16]>,
    sections: Box<[u32]>,
}

impl<const N: usize> Sums<N> {
    /// Zeros.
    pub(super) fn new() -> Sums<N> {
        Sums {
            numbers: vec![0; N].into(),
            blocks: vec![0; N / FANOUT].into(),
            sections: vec![0; N / FANOUT / FANOUT].into(),
        }
    }

    /// Adds to a number.
    #[inline(always)]
    pub(super) fn add(&mut self, at: usize, increment: u32) {
        self.numbers[at] += increment as u8;
        self.blocks[at / FANOUT] += increment as u16;
        self.sections[at / FANOUT / FANOUT] += increment;
    }

    /// Subtracts from a number.
    #[inline(always)]
    pub(super) fn subtract(&mut self, at: usize, decrement: u32) {
        self.numbers[at] -= decrement as u8;
        self.blocks[at / FANOUT] -= decrement as u16;
        self.sections[at / FANOUT / FANOUT] -= decrement;
    }

    /// The sum of the numbers after number `at` and before `end`, from which on all are zero.
    #[inline(always)]
    pub(super) fn between(&self, at: usize, end: usize) -> u32 {
        let (block, section) = (at / FANOUT, at / FANOUT / FANOUT);
        let in_block = &self.numbers[at + 1..((block + 1) * FANOUT).min(end)];
        let in_section =
            &self.blocks[(block + 1).min(end.div_ceil(FANOUT))..((section + 1) * FANOUT).min(end.div_ceil(FANOUT))];
        let rest = &self.sections[section + 1..(end.div_ceil(FANOUT * FANOUT)).max(section + 1)];
        let sum = in_block.iter().map(|&number| u32::from(number)).sum::<u32>();
        sum + in_section.iter().map(|&number| u32::from(number)).sum::<u32>() + rest.iter().sum::<u32>()
    }

    /// Sets all numbers to zero.
    pub(super) fn clear(&mut self) {
        self.numbers.fill(0);
        self.blocks.fill(0);
        self.sections.fill(0);
    }
}
