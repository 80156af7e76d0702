//! Which function of the allocator makes a system call, if the calls go through wrappers: one function that several others
//! use is not the one to name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::functions::FunctionId;

/// Functions that programs call, without prefixes. What they call is of interest.
const ENTRIES: [&str; 11] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "cfree",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
];

/// Whether a program calls this function.
pub(crate) fn is_entry(name: &str) -> bool {
    let prefixes = ["libc_", "GI_", "je_", "mi_", "tc_"];
    let mut plain = name.trim_start_matches('_');
    while let Some(rest) = prefixes.iter().find_map(|prefix| plain.strip_prefix(prefix)) {
        plain = rest.trim_start_matches('_');
    }
    ENTRIES.contains(&plain) || plain.starts_with("operator new") || plain.starts_with("operator delete")
}

/// The functions that led to the system calls of a run.
#[derive(Debug, Default)]
pub(crate) struct Wrappers {
    /// Functions from the one that made the call to the one that an entry called, and their number.
    chains: HashMap<Vec<String>, FunctionId>,
}

/// The function to name for a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its name.
    pub(crate) name: String,
    /// The only function that calls it, if there is one.
    pub(crate) caller: Option<String>,
}

impl Wrappers {
    /// The number of a chain, which `next` gives if it is a new one.
    pub(crate) fn id(&mut self, chain: Vec<String>, next: impl FnOnce() -> FunctionId) -> FunctionId {
        *self.chains.entry(chain).or_insert_with(next)
    }

    /// The function to name for each chain: the innermost, or the first that is no wrapper beyond one which several functions
    /// call.
    pub(crate) fn named(&self) -> BTreeMap<FunctionId, Named> {
        let mut callers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for pair in self.chains.keys().flat_map(|chain| chain.windows(2)) {
            callers.entry(&pair[0]).or_default().insert(&pair[1]);
        }
        // Chains end before the entry that made the first call.
        for outermost in self.chains.keys().filter_map(|chain| chain.last()) {
            callers.entry(outermost).or_default().insert("");
        }
        let callers = |name: &str| callers.get(name).map_or(0, BTreeSet::len);
        let named = self.chains.iter().map(|(chain, &id)| {
            let last = chain.len().saturating_sub(1);
            let is_wrapper = |&at: &usize| callers(&chain[at]) > 1;
            let beyond =
                (0..last).find(is_wrapper).map(|first| (first..last).find(|at| !is_wrapper(at)).unwrap_or(last));
            let at = beyond.unwrap_or(0);
            let caller = chain.get(at + 1).cloned();
            (id, Named { name: chain.get(at).cloned().unwrap_or_default(), caller })
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_several_call_is_a_wrapper() {
        let mut wrappers = Wrappers::default();
        let mut next = 0;
        let mut add = |chain: &[&str]| {
            next += 1;
            wrappers.id(chain.iter().map(|name| name.to_string()).collect(), || FunctionId(next))
        };
        let chains = [
            &["map", "os_map", "large_alloc"][..],
            &["map", "os_map", "chunk", "new_slab"],
            &["os_unmap", "large_free"],
            &["purge_slab"],
        ];
        let ids: Vec<FunctionId> = chains.iter().map(|chain| add(chain)).collect();
        assert_eq!(add(chains[0]), ids[0]);
        let named = wrappers.named();
        let of = |at: usize| (named[&ids[at]].name.as_str(), named[&ids[at]].caller.as_deref());
        assert_eq!(of(0), ("large_alloc", None));
        assert_eq!(of(1), ("chunk", Some("new_slab")));
        assert_eq!(of(2), ("os_unmap", Some("large_free")));
        assert_eq!(of(3), ("purge_slab", None));
    }

    #[test]
    fn a_function_that_an_entry_also_calls_has_several_callers() {
        let mut wrappers = Wrappers::default();
        let large = wrappers.id(vec!["os_map".into(), "large_alloc".into()], || FunctionId(1));
        let direct = wrappers.id(vec!["os_map".into()], || FunctionId(2));
        let named = wrappers.named();
        let of = |id| (named[&id].name.as_str(), named[&id].caller.as_deref());
        assert_eq!((of(large), of(direct)), (("large_alloc", None), ("os_map", None)));
    }

    #[test]
    fn entries_have_prefixes() {
        for name in ["malloc", "__libc_calloc", "__GI___libc_realloc", "mi_free", "operator new(unsigned long)"] {
            assert!(is_entry(name), "{name}");
        }
        for name in ["_int_malloc", "sysmalloc", "large_alloc", "os_map"] {
            assert!(!is_entry(name), "{name}");
        }
    }
}
