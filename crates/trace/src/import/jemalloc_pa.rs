//! Traces of jemalloc's page allocator (its `test/stress/pa`), in CSV. There are two forms.
//!
//! Recorded: `shard,addr,nsecs,probe,size`, where probe is `hpa_alloc` or `hpa_dalloc`. Preprocessed: `shard,op,bytes
//! or index,nsecs,frequent`, where op 0 allocates bytes and op 1 frees an allocation, given by its index in the file,
//! from 0. Blocks are runs of pages. Each shard is imported as a thread.

use super::Format;
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use crate::event::{AllocCall, InitialTouch};
use crate::header::Clock;
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "jemalloc-pa",
    recognise: |head: &Head| {
        let mut lines = head.lines().skip_while(|line| is_title(line));
        lines.next().is_some_and(|line| Layout::of(line).is_some())
    },
    clock: |_| Clock::Measured,
    window: WaitLimits::CERTAIN,
    unknown: &[
        "the program's blocks: these are the page runs that jemalloc requests from its page allocator",
        "threads: each thread of the import is a shard of jemalloc",
    ],
    convert,
};

const PAGE_LOG2: u8 = 12;
const REMEDY: &str =
    "expected `shard,addr,nsecs,hpa_alloc|hpa_dalloc,size` or `shard,0|1,bytes or index,nsecs,frequent`";

/// The two forms of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Recorded,
    Preprocessed,
}

impl Layout {
    /// The form of a line; `None` if it has neither.
    fn of(line: &str) -> Option<Layout> {
        [Layout::Recorded, Layout::Preprocessed].into_iter().find(|layout| layout.parse(line).is_some())
    }

    fn parse(self, line: &str) -> Option<Line> {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [shard, second, third, fourth, fifth] = cells.try_into().ok()?;
        let (time_ns, op) = match self {
            Layout::Recorded => {
                let (pointer, bytes) = (address(second)?, fifth.parse().ok()?);
                match fourth {
                    "hpa_alloc" => (third, PageOp::Alloc { pointer: Some(pointer), bytes }),
                    "hpa_dalloc" => (third, PageOp::Free { pointer }),
                    _ => return None,
                }
            }
            Layout::Preprocessed => {
                let number: u64 = third.parse().ok()?;
                matches!(fifth, "0" | "1").then_some(())?;
                match second {
                    "0" => (fourth, PageOp::Alloc { pointer: None, bytes: number }),
                    "1" => (fourth, PageOp::Free { pointer: number.checked_add(1)? }),
                    _ => return None,
                }
            }
        };
        Some(Line { shard: shard.parse().ok()?, time_ns: time_ns.parse().ok()?, op })
    }
}

/// One line.
struct Line {
    shard: u64,
    time_ns: u64,
    op: PageOp,
}

enum PageOp {
    /// `pointer` is `None` if the number of the allocation identifies the block.
    Alloc {
        pointer: Option<u64>,
        bytes: u64,
    },
    Free {
        pointer: u64,
    },
}

/// A pointer that is not NULL, in hexadecimal or decimal.
fn address(word: &str) -> Option<u64> {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.ok().filter(|&address| address > 0)
}

/// Whether a line is the header row.
fn is_title(line: &str) -> bool {
    line.starts_with("shard") && line.contains("nsecs")
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let mut layout = None;
    let mut allocations = 0u64;
    while let Some(line) = input.line(Lines::Strict)? {
        if layout.is_none() && is_title(line) {
            continue;
        }
        let refused = || Failure::new("not a line of jemalloc's page allocator", REMEDY);
        let layout = *layout.get_or_insert(Layout::of(line).ok_or_else(refused)?);
        let Line { shard, time_ns, op } = layout.parse(line).ok_or_else(refused)?;
        let op = match op {
            PageOp::Alloc { pointer, bytes } => {
                allocations += 1;
                let address = pointer.unwrap_or(allocations);
                RawOp::Alloc {
                    address,
                    size: bytes,
                    align_log2: PAGE_LOG2,
                    call: AllocCall::Memalign,
                    initial_touch: InitialTouch::None,
                }
            }
            PageOp::Free { pointer } => RawOp::Free { address: pointer },
        };
        sink.push_in_order(time_ns, shard, op)?;
    }
    Ok(())
}
