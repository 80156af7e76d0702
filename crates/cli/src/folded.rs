//! Call sites as folded stacks: a line for each stack, outermost frame first, with its value. Flame-graph programs
//! (flamegraph.pl, inferno, speedscope) read them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use hksim_trace::event::SiteId;
use hksim_trace::sites::{Frame, Sites};

use crate::output::file;
use crate::symbols::Symbols;

/// The stack of calls whose site is unknown.
const UNKNOWN: &str = "[call site not recorded]";

/// The stack of a site.
pub fn stack(symbols: &mut Symbols, sites: &Sites, site: u32) -> String {
    let frames = sites.frames_of(SiteId(site)).flat_map(|frame| symbols.frames(sites, frame));
    let mut names: Vec<String> = frames.map(|frame| name(sites, &frame)).collect();
    names.reverse();
    if names.is_empty() { UNKNOWN.into() } else { names.join(";") }
}

/// A frame's function, or its place. Semicolons separate frames, so a name has none.
fn name(sites: &Sites, frame: &Frame) -> String {
    let place = || match sites.module_of(frame) {
        Some(module) => format!("{}+{:#x}", module.path.rsplit('/').next().unwrap_or_default(), frame.address),
        None => format!("{:#x}", frame.address),
    };
    frame.function.clone().unwrap_or_else(place).replace(';', ",")
}

/// Writes stacks with their values; equal stacks are added up, and those without a value left out.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, stacks: impl Iterator<Item = (String, u64)>) -> Result<()> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, value) in stacks.filter(|&(_, value)| value > 0) {
        *sums.entry(stack).or_default() += value;
    }
    let lines: String = sums.iter().map(|(stack, value)| format!("{stack} {value}\n")).collect();
    file::write(path, lines.as_bytes())
}
