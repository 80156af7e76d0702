//! A program that uses the allocator: threads build maps of strings, and the main thread frees the maps. Run it with
//! `HKSIM_NATIVE_STATS=text`, and try another policy: `HKSIM_NATIVE_POLICY="superslab=256K huge=never"`.

use std::collections::BTreeMap;
use std::thread;

#[global_allocator]
static ALLOCATOR: hksim_native::SuperSlabs = hksim_native::SuperSlabs;

fn lengths(thread: u32) -> BTreeMap<String, usize> {
    (0..50_000)
        .map(|number| format!("{thread}:{}", number * 7919 % 50_021))
        .map(|word| (word.clone(), word.len()))
        .collect()
}

fn main() {
    let threads: Vec<_> = (0..4).map(|thread| thread::spawn(move || lengths(thread))).collect();
    // The main thread frees the maps that the threads have built.
    let maps = threads.into_iter().map(|thread| thread.join().expect("a thread that does not panic"));
    let all: usize = maps.map(|map| map.values().sum::<usize>()).sum();
    println!("{all} letters and digits");
}
