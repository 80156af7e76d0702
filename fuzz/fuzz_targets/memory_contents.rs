#![no_main]
#[path = "../src/memory.rs"]
mod memory;
libfuzzer_sys::fuzz_target!(|data: &[u8]| drop(memory::read_contents(data)));
