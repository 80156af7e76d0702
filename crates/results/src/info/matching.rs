//! Call sites that two traces share, also if the traces are of two builds of a program.
//!
//! Stacks with the same functions are the same site if both traces have them at the same lines or offsets, or at one
//! place each. Otherwise a line was added or removed, and a stack at one place can be another call of the same function
//! in the other trace: nothing shows which of them belong together. These are compared as one, by their functions alone.

use std::collections::{BTreeMap, BTreeSet};

use hksim_trace::error::TraceError;
use hksim_trace::event::SiteId;
use hksim_trace::hkt::TraceReader;
use hksim_trace::info::SiteUse;
use hksim_trace::sites::{Frame, Sites};
use hksim_trace::source::EventSource;
use hksim_trace::symbols::{NamedSites, file_name, frame_text};
use serde::Serialize;

use super::sites::By;

/// A call site of both traces.
#[derive(Debug, PartialEq, Serialize)]
pub struct SiteRow {
    /// Frames in the first trace, innermost first; those in the second if the first does not have the site.
    pub stack: Vec<String>,
    /// Frames in the second trace, if their lines or offsets differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_second: Option<Vec<String>>,
    /// The figure in the first trace.
    pub first: u64,
    /// The figure in the second trace.
    pub second: u64,
}

impl SiteRow {
    /// The frames as lines of text. Where the second trace has another line or offset, it follows.
    pub fn lines(&self) -> Vec<String> {
        let others = self.stack_second.as_ref().unwrap_or(&self.stack);
        let line = |(own, other): (&String, &String)| match own == other {
            true => own.clone(),
            false => format!("{own}  (second: {})", other.rsplit("  ").next().unwrap_or(other)),
        };
        self.stack.iter().zip(others).map(line).collect()
    }
}

/// What a frame has in common with its counterpart in another build: the library without directories, and the function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    /// Empty for the program itself, whose builds may have different names.
    file: String,
    name: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Known(String),
    /// Code without a name, by its offset if both traces have the same build of the file.
    Unnamed(Option<u64>),
}

/// Where a frame is: its source path and line, or its offset in the file for code without lines.
type Place = (String, u64);

/// A call site of one trace.
#[derive(Clone, Debug)]
struct Stack {
    functions: Vec<Function>,
    places: Vec<Place>,
    text: Vec<String>,
    figure: u64,
}

/// Matches the call sites of two traces, which `by` measures. Adds notes about names that were not found.
///
/// # Errors
/// Those of the traces.
pub fn site_rows(readers: &mut [TraceReader; 2], by: By, notes: &mut Vec<String>) -> Result<Vec<SiteRow>, TraceError> {
    let [first, second] = [&readers[0], &readers[1]].map(|reader| builds(&reader.footer().sites));
    let shared: BTreeSet<(String, String)> = first.intersection(&second).cloned().collect();
    let mut groups: BTreeMap<Vec<Function>, [Vec<Stack>; 2]> = BTreeMap::new();
    for (number, reader) in readers.iter_mut().enumerate() {
        let uses = SiteUse::of(reader, by.order())?;
        let mut names = NamedSites::new(&reader.footer().sites);
        for used in uses {
            let stack = stack(&mut names, SiteId(used.site), &shared, by.of(&used));
            groups.entry(stack.functions.clone()).or_default()[number].push(stack);
        }
        notes.extend(names.notes());
    }
    Ok(groups.into_values().flat_map(|[first, second]| rows(first, second)).collect())
}

/// What a module is called in every build: a library by its file, without directories; the program by nothing.
fn common_name(path: &str) -> &str {
    let file = file_name(path);
    if file.contains(".so") { file } else { "" }
}

/// The files of a trace, by their common names, with their build ids.
fn builds(sites: &Sites) -> BTreeSet<(String, String)> {
    let build =
        |module: &hksim_trace::sites::Module| Some((common_name(&module.path).to_string(), module.build_id.clone()?));
    sites.modules.iter().filter_map(build).collect()
}

fn stack(names: &mut NamedSites<'_>, site: SiteId, shared: &BTreeSet<(String, String)>, figure: u64) -> Stack {
    let sites = names.sites();
    let frames = names.frames(site);
    let function = |frame: &Frame| {
        let module = sites.module_of(frame);
        let file = module.map_or("", |module| common_name(&module.path)).to_string();
        let build = module.and_then(|module| Some((file.clone(), module.build_id.clone()?)));
        let name = match &frame.function {
            Some(name) => Name::Known(name.to_string()),
            None => Name::Unnamed(build.filter(|build| shared.contains(build)).map(|_| frame.address)),
        };
        Function { file, name }
    };
    let place = |frame: &Frame| match frame.source.as_ref().and_then(|source| source.rsplit_once(':')) {
        Some((path, line)) => (path.to_string(), line.parse().unwrap_or(0)),
        None => (frame.source.as_deref().unwrap_or_default().to_string(), frame.address),
    };
    Stack {
        functions: frames.iter().map(function).collect(),
        places: frames.iter().map(place).collect(),
        text: frames.iter().map(|frame| frame_text(sites, frame)).collect(),
        figure,
    }
}

/// The rows of the stacks that have the same functions.
fn rows(first: Vec<Stack>, second: Vec<Stack>) -> Vec<SiteRow> {
    let [first, second] = [first, second].map(by_place);
    let is_unchanged = first.keys().eq(second.keys());
    let (first, second): (Vec<Stack>, Vec<Stack>) = (first.into_values().collect(), second.into_values().collect());
    if is_unchanged || (first.len(), second.len()) == (1, 1) {
        return first.into_iter().zip(second).map(|(first, second)| paired(first, second)).collect();
    }
    if first.is_empty() || second.is_empty() {
        let single = |stack, first, second| SiteRow { stack, stack_second: None, first, second };
        let gone = first.into_iter().map(|Stack { text, figure, .. }| single(text, figure, 0));
        let new = second.into_iter().map(|Stack { text, figure, .. }| single(text, 0, figure));
        return gone.chain(new).collect();
    }
    let sum = |stacks: &[Stack]| stacks.iter().map(|stack| stack.figure).sum();
    vec![SiteRow { stack: functions(&first[0]), stack_second: None, first: sum(&first), second: sum(&second) }]
}

/// Stacks of one trace, those at the same places as one.
fn by_place(stacks: Vec<Stack>) -> BTreeMap<Vec<Place>, Stack> {
    let mut all: BTreeMap<Vec<Place>, Stack> = BTreeMap::new();
    for stack in stacks {
        let figure = stack.figure;
        all.entry(stack.places.clone()).and_modify(|known| known.figure += figure).or_insert(stack);
    }
    all
}

fn paired(first: Stack, second: Stack) -> SiteRow {
    let stack_second = (first.text != second.text).then_some(second.text);
    SiteRow { stack: first.text, stack_second, first: first.figure, second: second.figure }
}

/// A stack without lines and offsets.
fn functions(stack: &Stack) -> Vec<String> {
    let text = |function: &Function| {
        let file = if function.file.is_empty() { "the program" } else { &function.file };
        match &function.name {
            Name::Known(name) => format!("{name}  {file} (several lines)"),
            Name::Unnamed(_) => format!("{file} (no name)"),
        }
    };
    stack.functions.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(line: u64, figure: u64) -> Stack {
        let functions = vec![Function { file: "app".into(), name: Name::Known("f".into()) }];
        Stack { functions, places: vec![("a.c".into(), line)], text: vec![format!("f  a.c:{line}")], figure }
    }

    fn figures(first: &[(u64, u64)], second: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let stacks = |all: &[(u64, u64)]| all.iter().map(|&(line, figure)| stack(line, figure)).collect();
        rows(stacks(first), stacks(second)).iter().map(|row| (row.first, row.second)).collect()
    }

    #[test]
    fn equal_lines_match_and_other_lines_are_those_of_their_function() {
        assert_eq!(figures(&[(9, 1), (10, 2)], &[(10, 20), (9, 10)]), [(1, 10), (2, 20)]);
        assert_eq!(figures(&[(9, 1)], &[(10, 10)]), [(1, 10)]);
        // A comment above both lines: line 10 is not the former line 10.
        assert_eq!(figures(&[(9, 1), (10, 2)], &[(10, 1), (11, 2)]), [(3, 3)]);
        assert_eq!(figures(&[(9, 1), (100, 2)], &[(10, 10)]), [(3, 10)]);
        assert_eq!(figures(&[(9, 1), (9, 2)], &[]), [(3, 0)]);
        assert_eq!(figures(&[], &[(8, 3), (9, 1)]), [(0, 3), (0, 1)]);
    }

    #[test]
    fn builds_of_a_program_may_have_different_names_and_libraries_may_not() {
        assert_eq!(["/new/app", "/old/app-1.2", "/lib/libc.so.6"].map(common_name), ["", "", "libc.so.6"]);
    }

    #[test]
    fn moved_lines_are_shown() {
        let row = rows(vec![stack(4, 1)], vec![stack(5, 1)]);
        assert_eq!(row[0].lines(), ["f  a.c:4  (second: a.c:5)"]);
    }
}
