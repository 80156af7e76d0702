//! hksim's own table with one row per event. `hksim export --to csv` writes it, and docs/reference/export.md describes
//! it.
//!
//! Columns are found by name, so a table that other programs have changed can also be read. A table written by hand
//! needs three columns (`op,object,size`); the others have defaults. Objects and threads may have any numbers: they are
//! renumbered as in a trace. Tables exported by hksim already have these numbers and keep them.

use super::Format;
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use crate::error::TraceError;
use crate::event::{Event, ObjectId, Op, ThreadId};
use crate::header::{Clock, Footer, Header, from_json};
use crate::ids::ObjectIds;
use crate::resolve::WaitLimits;
use crate::row::{ObjectUse, Row};
use crate::sites::Stack;
use std::borrow::Cow;
use std::collections::HashMap;

pub(super) const FORMAT: Format = Format {
    name: "csv",
    recognise: |head: &Head| head.lines().next().is_some_and(|line| Columns::find(line).is_ok()),
    clock, // the header row, if present, overrides this
    window: WaitLimits::CERTAIN,
    unknown: &[],
    convert,
};

/// Maximum numbers of generated mark names and of empty stacks for call sites. They bound the memory that a wrong index
/// can take.
const MARKS_UNNAMED_MAX: u64 = 1 << 12;
const SITES_UNNAMED_MAX: u64 = 1 << 20;

const REMEDY: &str = "correct the row; docs/reference/export.md describes the columns";

/// Column names, in the order of [`Columns::at`].
const NAMES: [&str; 14] = [
    "op",
    "time_ns",
    "thread",
    "object",
    "size",
    "align_log2",
    "call",
    "birth",
    "offset",
    "bytes",
    "access",
    "number",
    "site",
    "text",
];
/// Indices of columns in [`NAMES`].
const OP: usize = 0;
const TIME_NS: usize = 1;
const THREAD: usize = 2;
const OBJECT: usize = 3;

/// Times are generated if the table has none.
fn clock(head: &Head) -> Clock {
    let columns = head.lines().next().and_then(|line| Columns::find(line).ok());
    match columns.is_some_and(|columns| columns.at[TIME_NS].is_some()) {
        true => Clock::Measured,
        false => Clock::PerEvent,
    }
}

/// The position of each column.
struct Columns {
    at: [Option<usize>; NAMES.len()],
}

impl Columns {
    fn find(head: &str) -> Result<Columns, String> {
        let mut at = [None; NAMES.len()];
        for (place, name) in cells(head)?.iter().enumerate() {
            if let Some(column) = NAMES.iter().position(|known| known == name) {
                at[column] = Some(place);
            }
        }
        // A table of other data lacks these columns. A table without objects can still contain marks and failed calls.
        if at[OP].is_none() {
            return Err(format!("there is no column {}", NAMES[OP]));
        }
        if at[OBJECT].or(at[TIME_NS]).is_none() {
            return Err(format!("there is no column {}", NAMES[OBJECT]));
        }
        Ok(Columns { at })
    }

    /// A number that every event has; `default` if the table lacks the column.
    fn number_or(&self, cells: &[Cow<'_, str>], column: usize, default: u64) -> Result<u64, String> {
        match self.at[column] {
            Some(_) => self.number(cells, column)?.ok_or_else(|| format!("the row has no {}", NAMES[column])),
            None => Ok(default),
        }
    }

    fn text<'a>(&self, cells: &'a [Cow<'_, str>], column: usize) -> Option<&'a str> {
        cells.get(self.at[column]?).map(|cell| cell.trim()).filter(|cell| !cell.is_empty())
    }

    fn number(&self, cells: &[Cow<'_, str>], column: usize) -> Result<Option<u64>, String> {
        let word = self.text(cells, column);
        let bad = |word| format!("{} `{word}` is not a decimal number below 2^64", NAMES[column]);
        word.map(|word| word.parse().map_err(|_| bad(word))).transpose()
    }

    fn row<'a>(&self, cells: &'a [Cow<'_, str>]) -> Result<Row<'a>, String> {
        let number = |column| self.number(cells, column);
        Ok(Row {
            op: self.text(cells, OP).ok_or("the row has no op")?,
            object: number(OBJECT)?,
            size: number(4)?,
            align_log2: number(5)?,
            call: self.text(cells, 6),
            initial_touch: self.text(cells, 7),
            offset: number(8)?,
            bytes: number(9)?,
            access: self.text(cells, 10),
            number: number(11)?,
            site: number(12)?,
        })
    }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let refused = |why: String| Failure::new(why, REMEDY);
    let Some(head) = input.line(Lines::Table)? else { return Err("the table is empty".into()) };
    let columns = Columns::find(head).map_err(refused)?;
    let mut program = Program::default();
    let (mut events, mut has_footer) = (0u64, false);
    while let Some(line) = input.line(Lines::Table)? {
        let cells = cells(line).map_err(refused)?;
        let row = columns.row(&cells).map_err(refused)?;
        let json = columns.text(&cells, 13).unwrap_or_default();
        match row.op {
            "header" if events > 0 => return Err(refused("a header follows after events".to_string())),
            "header" => {
                let header: Header = from_json(json.as_bytes()).map_err(|why| refused(format!("header: {why}")))?;
                sink.begin_as(&header)?;
            }
            "footer" => {
                let footer: Footer = from_json(json.as_bytes()).map_err(|why| refused(format!("footer: {why}")))?;
                (sink.footer, has_footer) = (footer, true);
            }
            _ => {
                let time_ns = columns.number_or(&cells, TIME_NS, events * Clock::EVENT_NS).map_err(refused)?;
                let thread = columns.number_or(&cells, THREAD, 0).map_err(refused)?;
                sink.event(&program.event(&row, time_ns, thread).map_err(refused)?)?;
                events += 1;
            }
        }
    }
    name_marks(&mut sink.footer.mark_names, program.marks).map_err(refused)?;
    if has_footer { Ok(()) } else { add_sites(&mut sink.footer.sites.stacks, program.sites).map_err(refused) }
}

/// Names marks after their numbers if the table has lost its footer.
fn name_marks(names: &mut Vec<String>, marks: u64) -> Result<(), String> {
    if marks.saturating_sub(names.len() as u64) > MARKS_UNNAMED_MAX {
        return Err(format!("mark {} has no name in the footer, which has {}", marks - 1, names.len()));
    }
    for number in names.len() as u64..marks {
        names.push(format!("mark-{number}"));
    }
    Ok(())
}

/// Gives call sites empty stacks if the table has lost its footer.
fn add_sites(stacks: &mut Vec<Stack>, sites: u64) -> Result<(), String> {
    if sites > SITES_UNNAMED_MAX {
        return Err(format!("call site {sites} has no stack: the table has no footer"));
    }
    stacks.resize(sites as usize, Stack::default());
    Ok(())
}

/// Renumbers objects and threads as in a trace.
#[derive(Default)]
struct Program {
    live: HashMap<u64, ObjectId>,
    ids: ObjectIds,
    threads: HashMap<u64, ThreadId>,
    time_ns: u64,
    /// The highest number of a mark, plus one.
    marks: u64,
    /// The highest number of a call site.
    sites: u64,
}

impl Program {
    fn event(&mut self, row: &Row<'_>, time_ns: u64, thread: u64) -> Result<Event, String> {
        if time_ns < self.time_ns {
            return Err(format!("time_ns {time_ns} is before that of the row above, {}", self.time_ns));
        }
        self.time_ns = time_ns;
        let seen = u32::try_from(self.threads.len()).map_err(|_| "there are more than 2^32 threads")?;
        let thread = *self.threads.entry(thread).or_insert(ThreadId(seen));
        let object = self.object(row)?;
        let event = Event { time_ns, thread, site: row.site()?, op: row.op(object)? };
        if let Op::Mark { name } = event.op {
            self.marks = self.marks.max(u64::from(name) + 1);
        }
        self.sites = self.sites.max(event.site.0.into());
        event.flaw().map_or(Ok(event), |why| Err(why.to_string()))
    }

    /// The id of the row's object: a new id, or that of the live object with this number.
    fn object(&mut self, row: &Row<'_>) -> Result<ObjectId, String> {
        let role = row.object_use();
        if role == ObjectUse::None {
            return Ok(ObjectId::default());
        }
        let number = row.object.ok_or_else(|| format!("`{}` has no object", row.op))?;
        match role {
            ObjectUse::Allocated if self.live.contains_key(&number) => Err(format!("object {number} is still live")),
            ObjectUse::Allocated => {
                let object = self.ids.allocate().ok_or_else(|| TraceError::TooManyObjects.to_string())?;
                self.live.insert(number, object);
                Ok(object)
            }
            ObjectUse::Used => self.live.get(&number).copied().ok_or_else(|| dead(number)),
            ObjectUse::Freed | ObjectUse::None => {
                let object = self.live.remove(&number).ok_or_else(|| dead(number))?;
                self.ids.release(object);
                Ok(object)
            }
        }
    }
}

fn dead(number: u64) -> String {
    format!("object {number} is not live")
}

/// The cells of a line. A quoted cell may contain commas, and quotes written as two quotes.
fn cells(line: &str) -> Result<Vec<Cow<'_, str>>, String> {
    let mut cells = Vec::with_capacity(NAMES.len() + 1);
    let mut rest = line;
    loop {
        let (cell, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_cell(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
        };
        cells.push(cell);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None if after.is_empty() => return Ok(cells),
            None => return Err("text follows after the closing quote of a cell".to_string()),
        }
    }
}

/// The rest of a quoted cell after its opening quote, and the text after its closing quote.
fn quoted_cell(text: &str) -> Result<(Cow<'_, str>, &str), String> {
    let mut cell = Cow::Borrowed("");
    let mut rest = text;
    loop {
        let end = rest.find('"').ok_or("a quoted cell does not end on its line")?;
        let piece = &rest[..end];
        rest = &rest[end + 1..];
        let doubled = rest.strip_prefix('"');
        match (&mut cell, doubled) {
            (cell, None) if cell.is_empty() => return Ok((Cow::Borrowed(piece), rest)),
            (cell, _) => cell.to_mut().push_str(piece),
        }
        match doubled {
            Some(more) => {
                cell.to_mut().push('"');
                rest = more;
            }
            None => return Ok((cell, rest)),
        }
    }
}
