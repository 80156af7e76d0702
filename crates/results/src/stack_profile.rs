//! Figures by call stack.

use hksim_trace::event::SiteId;
use hksim_trace::sites::{Frame, Module, Sites};
use hksim_trace::symbols::NamedSites;

/// A figure that each call stack has.
#[derive(Clone, Copy, Debug)]
pub struct ValueKind {
    /// Its name.
    pub name: &'static str,
    /// Its unit, as pprof spells it (`bytes`, `count`).
    pub unit: &'static str,
}

/// Figures by call stack.
#[derive(Debug)]
pub struct StackProfile {
    /// What the figures are.
    pub kinds: Vec<ValueKind>,
    /// The figure that folded stacks have, and that pprof shows first: an index into `kinds`.
    pub shown: usize,
    /// Each stack, innermost frame first, with its figures.
    pub stacks: Vec<(Vec<Call>, Vec<u64>)>,
}

/// A frame of a call stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Function, or place in the file if the function is not known.
    pub name: String,
    /// Source file and line; 0 for an unknown line.
    pub source: Option<(String, i64)>,
    /// The file, if it is known.
    pub module: Option<Module>,
    /// The address in the file.
    pub address: u64,
}

impl StackProfile {
    /// An empty profile of these figures, of which one is `shown`.
    pub fn new(kinds: &[ValueKind], shown: usize) -> StackProfile {
        StackProfile { kinds: kinds.to_vec(), shown, stacks: Vec::new() }
    }

    /// Adds the figures of a call site, one for each kind.
    pub fn push(&mut self, names: &mut NamedSites<'_>, site: SiteId, values: &[u64]) {
        let sites = names.sites();
        let calls: Vec<Call> = names.frames(site).iter().map(|frame| Call::of(sites, frame)).collect();
        let unknown = || vec![Call::named("[call site not recorded]")];
        self.stacks.push((if calls.is_empty() { unknown() } else { calls }, values.to_vec()));
    }

    /// Adds figures that belong to no call of the program.
    pub fn push_named(&mut self, name: &str, values: &[u64]) {
        self.stacks.push((vec![Call::named(name)], values.to_vec()));
    }
}

impl Call {
    fn named(name: &str) -> Call {
        Call { name: name.into(), source: None, module: None, address: 0 }
    }

    fn of(sites: &Sites, frame: &Frame) -> Call {
        let module = sites.module_of(frame).cloned();
        let place = || match &module {
            Some(module) => format!("{}+{:#x}", module.path.rsplit('/').next().unwrap_or_default(), frame.address),
            None => format!("{:#x}", frame.address),
        };
        let name = frame.function.as_deref().map_or_else(place, str::to_string);
        let source = frame.source.as_deref().map(|source| match source.rsplit_once(':') {
            Some((file, line)) if line.parse::<i64>().is_ok() => (file.to_string(), line.parse().unwrap_or(0)),
            _ => (source.to_string(), 0),
        });
        Call { name, source, module, address: frame.address }
    }
}
