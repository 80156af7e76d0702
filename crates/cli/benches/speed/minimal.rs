//! The least that any simulator of an allocator does: a list of free blocks per size class, and a bitmap of touched
//! pages. It has no SuperSlabs, threads, metadata or kernel, so its speed is a limit.

use crate::calls::{Call, Calls};

/// Classes are 16 bytes apart.
const CLASS_SHIFT: u32 = 4;
const PAGE_SHIFT: u32 = 12;

/// Returns the number of first touches of pages.
pub fn simulate(calls: &Calls) -> u64 {
    let mut free: Vec<Vec<u64>> = vec![Vec::new(); 1 << 16];
    let mut blocks: Vec<(u64, u32)> = vec![(0, 0); calls.objects];
    let mut touched = vec![0u64; 1 << 16];
    let (mut top, mut touches) = (0u64, 0);
    for &Call { object, bytes } in &calls.calls {
        let block = &mut blocks[object as usize];
        if bytes == 0 {
            free[block.1 as usize].push(block.0);
            continue;
        }
        let class = bytes.div_ceil(1 << CLASS_SHIFT);
        let address = free[class as usize].pop().unwrap_or_else(|| {
            top += u64::from(class) << CLASS_SHIFT;
            top - (u64::from(class) << CLASS_SHIFT)
        });
        *block = (address, class);
        let page = address >> PAGE_SHIFT;
        let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
        touches += u64::from(touched[word] & bit == 0);
        touched[word] |= bit;
    }
    touches
}
