//! The functions to record, as the user names them: `je_malloc,je_free,pool_get=malloc@2`.

use std::str::FromStr;

use hksim_text::nearest;
use hksim_trace::event::AllocCall;
use hksim_trace::functions::Function;

/// What a function can do: the names of C's functions.
const ROLES: [&str; 11] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
];
/// Endings of names that say what a function does, with its role. The first that fits counts, so longer ones are first.
const ENDINGS: [(&str, &str); 14] = [
    ("free_aligned_sized", "free"),
    ("posix_memalign", "posix_memalign"),
    ("aligned_alloc", "aligned_alloc"),
    ("reallocarray", "reallocarray"),
    ("usable_size", "malloc_usable_size"),
    ("free_sized", "free"),
    ("memalign", "memalign"),
    ("dallocx", "free"),
    ("realloc", "realloc"),
    ("pvalloc", "pvalloc"),
    ("malloc", "malloc"),
    ("calloc", "calloc"),
    ("valloc", "valloc"),
    ("free", "free"),
];
/// Highest number of an argument that can be given after `@`, so that all arguments are in registers.
const FIRST_MAX: usize = 3;

/// Functions of a program's allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Functions(pub(super) Vec<NamedFunction>);

/// A function by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFunction {
    /// Its name in the symbol table.
    pub name: String,
    /// What it does: the name of a function of C.
    pub role: &'static str,
    /// The same, with the order of its arguments.
    pub function: Function,
    /// Number of its arguments before those of its role.
    pub skipped: usize,
}

impl NamedFunction {
    /// Whether it frees, and returns nothing that must be known.
    pub fn only_frees(&self) -> bool {
        self.function == Function::Free
    }

    /// Whether it stores its block's address where its first argument points to, and returns an error number.
    pub fn stores_result(&self) -> bool {
        self.function == Function::Aligned(AllocCall::PosixMemalign)
    }
}

impl Functions {
    /// The first that throws an exception when it fails: an operator new of C++. An exception through a probed function ends
    /// the program, since its return address is the kernel's.
    pub fn throwing(&self) -> Option<&str> {
        let throws =
            |name: &str| (name.starts_with("_Znw") || name.starts_with("_Zna")) && !name.ends_with("RKSt9nothrow_t");
        self.0.iter().map(|function| function.name.as_str()).find(|name| throws(name))
    }
}

impl FromStr for Functions {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let functions = list.split(',').map(|word| word.trim().parse()).collect::<Result<Vec<NamedFunction>, _>>()?;
        let is_twice = |(at, function): (usize, &NamedFunction)| {
            functions[..at].iter().any(|earlier| earlier.name == function.name)
        };
        if let Some((_, twice)) = functions.iter().enumerate().find(|&(at, function)| is_twice((at, function))) {
            return Err(format!("{} is named twice", twice.name));
        }
        Ok(Self(functions))
    }
}

impl FromStr for NamedFunction {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let (rest, skipped) = match word.rsplit_once('@') {
            None => (word, 0),
            Some((rest, number)) => (rest, skipped(word, number)?),
        };
        let (name, role) = match rest.split_once('=') {
            None => (rest, guessed(rest)),
            Some((name, role)) => (name, Some(known(word, role)?)),
        };
        if name.is_empty() {
            return Err("a function's name is missing; separate names with single commas".to_string());
        }
        // An operator of C++ has a name of its own.
        let function = match role {
            None => Function::named(name).map(|function| (function_role(function), function)),
            Some(role) => Function::named(role).map(|function| (role, function)),
        };
        let (role, function) = function.ok_or_else(|| {
            format!("the name {name} does not tell what it does; add that ({name}=malloc), with one of: {}", list())
        })?;
        Ok(Self { name: name.to_string(), role, function, skipped })
    }
}

/// The role in the words of [`ROLES`] of an operator of C++.
fn function_role(function: Function) -> &'static str {
    match function {
        Function::Free => "free",
        Function::AlignedNew => "aligned_alloc",
        _ => "malloc",
    }
}

fn list() -> String {
    ROLES.join(", ")
}

/// Number of arguments before the one with this number, counted from 1.
fn skipped(word: &str, number: &str) -> Result<usize, String> {
    let first = number.parse().ok().filter(|first| (1..=FIRST_MAX).contains(first));
    let first: usize = first
        .ok_or_else(|| format!("{word}: after @ write the number of the role's first argument, 1 to {FIRST_MAX}"))?;
    Ok(first - 1)
}

fn known(word: &str, role: &str) -> Result<&'static str, String> {
    let known = ROLES.into_iter().find(|known| *known == role);
    known
        .ok_or_else(|| format!("{word}: unknown role {role}{}; use one of: {}", nearest::question(role, ROLES), list()))
}

/// The role that the end of a name tells.
pub fn guessed(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    ENDINGS.into_iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, role)| role)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Vec<(String, &'static str, usize)> {
        let functions: Functions = list.parse().unwrap_or_else(|why| panic!("{list}: {why}"));
        functions.0.into_iter().map(|function| (function.name, function.role, function.skipped)).collect()
    }

    #[test]
    fn the_end_of_a_name_tells_its_role() {
        for (name, role) in [
            ("je_malloc", "malloc"),
            ("my_calloc", "calloc"),
            ("tc_free", "free"),
            ("sqlite3Malloc", "malloc"),
            ("mi_reallocarray", "reallocarray"),
            ("_rjem_realloc", "realloc"),
            ("je_sdallocx", "free"),
            ("tc_pvalloc", "pvalloc"),
            ("tc_valloc", "valloc"),
            ("je_posix_memalign", "posix_memalign"),
            ("je_memalign", "memalign"),
            ("je_malloc_usable_size", "malloc_usable_size"),
            ("_Znwm", "malloc"),
            ("_ZdlPvm", "free"),
        ] {
            assert_eq!(parsed(name), [(name.to_string(), role, 0)]);
        }
    }

    #[test]
    fn roles_and_first_arguments_are_given() {
        let expected = [("get".to_string(), "malloc", 1), ("put".to_string(), "free", 0)];
        assert_eq!(parsed("get=malloc@2, put=free"), expected);
        assert_eq!(parsed("heap_free@2"), [("heap_free".to_string(), "free", 1)]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (list, said) in [
            ("je_mallocx", "add that (je_mallocx=malloc), with one of: malloc, calloc,"),
            ("get=maloc", "unknown role maloc; did you mean malloc?"),
            ("get=malloc@0", "1 to 3"),
            ("get=malloc@x", "1 to 3"),
            ("a_malloc,,a_free", "name is missing"),
            ("", "name is missing"),
            ("a_malloc,a_free,a_malloc", "a_malloc is named twice"),
        ] {
            let why = list.parse::<Functions>().expect_err(list);
            assert!(why.contains(said), "{list}: {why}");
        }
    }
}
