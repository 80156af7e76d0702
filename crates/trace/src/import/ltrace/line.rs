//! One line of ltrace: `[TID] [TIME] [[ADDRESS]] [LIB->]name[@LIB](arguments) = result`. A call may be split into two
//! lines.

use crate::event::AllocCall;
use crate::import::calls::{Function, arguments, number};
use crate::import::times::{seconds_ns, time_of_day_ns};

/// A parsed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The thread; `None` if ltrace followed only one thread.
    pub(super) tid: Option<u64>,
    pub(super) stamp: Option<Stamp>,
    pub(super) what: What,
}

/// A time. ltrace's flags determine its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// `-tt`: nanoseconds since midnight.
    OfDay(u64),
    /// `-ttt`: nanoseconds since 1970.
    Absolute(u64),
    /// `-r`: nanoseconds since the previous line.
    Delta(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A complete call of an allocator function, with its result.
    Whole(Called, u64),
    /// The begin of a call: `<unfinished ...>`, or `<no return ...>`, which ltrace writes whenever any thread ends.
    Begun(Called),
    /// The return of the thread's last call of this function, with its result.
    Resumed(Function, u64),
    /// The thread ended.
    Exit,
    /// A signal ended the process.
    Killed,
    /// The process called exec.
    Exec,
    /// A line of ltrace without an allocator call.
    Other,
    /// Not a line of ltrace.
    Foreign,
}

/// The caller of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// The program or a library.
    Program,
    /// glibc itself. ltrace mixes up the names of glibc's PLT entries, so the called function is unknown.
    Glibc,
}

/// A called function and the arguments that [`Function::op`] needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) caller: Caller,
    pub(super) function: Function,
    pub(super) arguments: [u64; 3],
}

/// Times of `-ttt` are at or above this limit, times of `-r` are below it.
const EPOCH_NS_MIN: u64 = 100_000_000 * 1_000_000_000;

pub(super) fn parse(line: &str) -> Line {
    let mut found = Line { tid: None, stamp: None, what: What::Foreign };
    let mut rest = line;
    // The program's own output may precede `[pid` if it did not end its line.
    if let Some((tid, after)) = line.find("[pid ").and_then(|start| line[start + 5..].split_once(']'))
        && let Ok(tid) = tid.parse()
    {
        found.tid = Some(tid);
        rest = after.trim_start();
    }
    while let Some((word, after)) = rest.split_once(' ') {
        if found.stamp.is_none() && stamp(word).is_some() {
            found.stamp = stamp(word).flatten();
        } else if let (None, None, Ok(tid)) = (found.tid, found.stamp, word.parse()) {
            found.tid = Some(tid);
        } else if !(word.starts_with("[0x") && word.ends_with(']')) {
            break;
        }
        rest = after.trim_start();
    }
    found.what = what(rest);
    found
}

/// `None` if the word is not a time. `Some(None)` for a time in whole seconds, which is too coarse to be used.
fn stamp(word: &str) -> Option<Option<Stamp>> {
    let whole_seconds = || word.len() == 8 && word.split(':').filter(|part| part.parse::<u8>().is_ok()).count() == 3;
    if let Some(time_ns) = time_of_day_ns(word) {
        return Some(Some(Stamp::OfDay(time_ns)));
    }
    match seconds_ns(word) {
        Some(time_ns) if time_ns >= EPOCH_NS_MIN => Some(Some(Stamp::Absolute(time_ns))),
        Some(delta_ns) => Some(Some(Stamp::Delta(delta_ns))),
        None => whole_seconds().then_some(None),
    }
}

fn what(text: &str) -> What {
    if let Some(text) = text.strip_prefix("<... ") {
        let Some((name, rest)) = text.split_once(" resumed>") else { return What::Foreign };
        return match (function(name), result(rest)) {
            (Some(function), Some(result)) => What::Resumed(function, result),
            _ => What::Other,
        };
    }
    if text.starts_with("+++ ") {
        return if text.starts_with("+++ killed") { What::Killed } else { What::Exit };
    }
    if text.starts_with("--- ") {
        return if text.starts_with("--- Called exec()") { What::Exec } else { What::Other };
    }
    let Some((head, rest)) = text.split_once('(') else { return What::Foreign };
    let Some(function) = function(head) else {
        // A call of another function.
        return if rest.contains(" = ") || rest.ends_with("...>") { What::Other } else { What::Foreign };
    };
    // posix_memalign's first argument is where it stores the address.
    let count = function.arguments() + (function == Function::Aligned(AllocCall::PosixMemalign)) as usize;
    let caller = if head.starts_with("libc.so") && head.contains("->") { Caller::Glibc } else { Caller::Program };
    let called = |list| arguments(list, count, number).map(|arguments| Called { caller, function, arguments });
    if let Some(list) = rest.strip_suffix("<unfinished ...>").or(rest.strip_suffix("<no return ...>")) {
        return called(list.trim_end()).map_or(What::Foreign, What::Begun);
    }
    let Some((list, _)) = rest.rsplit_once('=').and_then(|(list, _)| list.trim_end().rsplit_once(')')) else {
        return What::Foreign;
    };
    match called(list).zip(result(rest)) {
        Some((called, result)) => What::Whole(called, result),
        None => What::Foreign,
    }
}

/// The allocator function of `LIB->name` or `name@LIB`.
fn function(head: &str) -> Option<Function> {
    if head.contains("-- ") {
        return None; // valgrind's prefix
    }
    let name = head.rsplit("->").next()?;
    Function::named(name.split('@').next()?.rsplit(' ').next()?)
}

/// The number after the last `=`; 0 for `<void>`. The time spent in the call (`-T`), which may follow, is ignored.
fn result(text: &str) -> Option<u64> {
    let word = text.rsplit_once("= ")?.1.split(' ').next()?;
    if word == "<void>" { Some(0) } else { number(word) }
}
