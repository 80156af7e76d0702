//! Prints the costs of a script of page operations in the kernel model: `cargo run --example page_ops < SCRIPT`.
//!
//! A script has one operation per line, such as `adv HUGEPAGE 0 512` or `w 0 512 1`. The format is documented in
//! `hksim_linux_mm::script`.

use std::error::Error;
use std::io::Read as _;

use hksim_linux_mm::script::Script;
use hksim_linux_mm::{KernelConfig, KernelVersion, Rules};

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let config = KernelConfig { rules: Rules::of(KernelVersion::USUAL), ..KernelConfig::default() };
    let script: Script = text.parse()?;
    let mut kernel = script.kernel(&config);
    for step in &script.steps {
        let (op, result) = (step.op.to_string(), kernel.execute(&step.op, script.first_page()));
        println!("{op:<24} returns {}, {} faults, {} traps", result.ret, result.faults, result.traps);
    }
    let counters = kernel.counters();
    println!("{} installs: {:?}", counters.installs_total(), counters.installs);
    println!("{} resident pages, {} huge pages", kernel.rss_pages(), kernel.huge_pages());
    println!("{} mappings, {} bytes of page tables", kernel.vma_count(), kernel.page_table_bytes());
    Ok(())
}
