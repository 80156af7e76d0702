//! The least that any simulator of an allocator does: a list of free blocks per size class, and a bitmap of touched
//! pages. It has no SuperSlabs, threads, metadata or kernel, so its speed is a limit.

use hksim_trace::hkt::{Batch, CommonCall};

use crate::calls::{Call, Calls};

/// Classes are 16 bytes apart.
const CLASS_SHIFT: u32 = 4;
const PAGE_SHIFT: u32 = 12;

/// The state of the simulator.
pub struct Minimal {
    free: Vec<Vec<u64>>,
    /// By object: its address and class.
    blocks: Vec<(u64, u32)>,
    touched: Vec<u64>,
    top: u64,
    /// First touches of pages.
    pub touches: u64,
}

impl Minimal {
    /// Without live objects, for at most `objects` of them.
    pub fn new(objects: usize) -> Minimal {
        Minimal {
            free: vec![Vec::new(); 1 << 16],
            blocks: vec![(0, 0); objects],
            touched: vec![0; 1 << 16],
            top: 0,
            touches: 0,
        }
    }

    #[inline(always)]
    fn allocate(&mut self, object: u32, bytes: u32) {
        let class = bytes.div_ceil(1 << CLASS_SHIFT);
        let address = self.free[class as usize].pop().unwrap_or_else(|| {
            self.top += u64::from(class) << CLASS_SHIFT;
            self.top - (u64::from(class) << CLASS_SHIFT)
        });
        self.blocks[object as usize] = (address, class);
        let page = address >> PAGE_SHIFT;
        let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
        self.touches += u64::from(self.touched[word] & bit == 0);
        self.touched[word] |= bit;
    }

    #[inline(always)]
    fn free(&mut self, object: u32) {
        let (address, class) = self.blocks[object as usize];
        self.free[class as usize].push(address);
    }

    /// Simulates the events of a batch, all of them common.
    pub fn take(&mut self, batch: &Batch) {
        let mut events = batch.read();
        while events.passed() < batch.len() {
            let mut run = events.common(batch.len());
            for call in run.by_ref() {
                match call {
                    CommonCall::Alloc { object, size, .. } => self.allocate(object.0, size as u32),
                    CommonCall::Free { object } => self.free(object.0),
                }
            }
            events.pass(run);
        }
    }
}

/// Simulates decoded calls. Returns the number of first touches of pages.
pub fn simulate(calls: &Calls) -> u64 {
    let mut minimal = Minimal::new(calls.objects);
    for &Call { object, bytes } in &calls.calls {
        match bytes {
            0 => minimal.free(object),
            bytes => minimal.allocate(object, bytes),
        }
    }
    minimal.touches
}
