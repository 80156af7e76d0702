#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| hksim_fuzz::import_as("bytehound-data", data));
