//! One line of `perf script`, with any selection of fields.
//!
//! `COMM PID/TID [CPU] TIME: PERIOD EVENT: ADDRESS SYMBOL (OBJECT) IP SYMBOL (OBJECT)`. All fields but thread, time and
//! address may be missing. Program names may contain spaces, so a line is parsed outwards from its time.

use super::super::failure::Failure;
use super::REMEDY;

/// A parsed line.
#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    /// A record of perf.
    Record { stamp: Stamp<'a>, what: What<'a> },
    /// A line of the previous sample's call chain.
    Caller { ip: u64, code: &'a str },
    /// Not a line of perf.
    Foreign,
}

/// The program, process, thread and time of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stamp<'a> {
    pub command: &'a str,
    /// `None` if the script has only threads.
    pub process: Option<u64>,
    pub thread: u64,
    pub time_ns: u64,
}

/// What happened.
#[derive(Debug, PartialEq)]
pub(super) enum What<'a> {
    Fault(Fault<'a>),
    /// A mapping was created, has grown, or has changed its protection.
    Mapped {
        process: u64,
        thread: u64,
        mapping: Mapping<'a>,
    },
    /// `thread` of `process` was created by process `parent`.
    Forked {
        process: u64,
        thread: u64,
        parent: u64,
    },
    /// The process called exec.
    Exec {
        process: u64,
    },
    /// Pages were released by a system call: `madvise(MADV_DONTNEED)` or `munmap`.
    Dropped {
        start: u64,
        end: u64,
        unmapped: bool,
    },
    /// perf lost this number of records.
    Lost(u64),
    /// An event of another kind.
    Other,
    /// A record or a call that perf prints beside faults and that changes nothing for them.
    NoEffect,
}

#[derive(Debug, PartialEq)]
pub(super) struct Fault<'a> {
    pub address: u64,
    /// The instruction; `None` if it is not printed or is on the next line.
    pub ip: Option<u64>,
    /// The instruction's symbol and object.
    pub code: Option<&'a str>,
    /// The processor's error code, if the event has it.
    pub error_code: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mapping<'a> {
    pub start: u64,
    pub end: u64,
    /// As in `/proc/PID/maps`: `rw-p`.
    pub access: &'a str,
    pub name: &'a str,
}

pub(super) fn parse(line: &str) -> Result<Line<'_>, Failure> {
    let Some((stamp, rest)) = stamp(line) else { return Ok(caller(line)) };
    Ok(Line::Record { stamp, what: what(rest)? })
}

/// Splits off program, process, thread and time.
fn stamp(line: &str) -> Option<(Stamp<'_>, &str)> {
    let mut before = None;
    for word in words(line) {
        if let Some(time_ns) = time(word.text) {
            let (process, thread, command) = before?;
            return Some((Stamp { command, process, thread, time_ns }, line[word.end..].trim_start()));
        }
        // Program names may contain numbers, so the last number before the time is the thread.
        if let Some((process, thread)) = thread(word.text) {
            before = Some((process, thread, line[..word.start].trim()));
        }
    }
    None
}

struct Word<'a> {
    start: usize,
    end: usize,
    text: &'a str,
}

fn words(line: &str) -> impl Iterator<Item = Word<'_>> {
    line.split_ascii_whitespace().map(move |text| {
        let start = text.as_ptr() as usize - line.as_ptr() as usize;
        Word { start, end: start + text.len(), text }
    })
}

/// `123.456789:`, in ns.
fn time(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction_ns = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    decimal(seconds)?.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

/// `TID` or `PID/TID`; perf writes -1 if there is no process.
fn thread(word: &str) -> Option<(Option<u64>, u64)> {
    match word.split_once('/') {
        None => Some((None, decimal(word)?)),
        Some((process, thread)) => Some((Some(decimal(process.trim_start_matches('-'))?), decimal(thread)?)),
    }
}

fn decimal(word: &str) -> Option<u64> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok().filter(|_| !word.starts_with('+'))
}

/// The text after the time: an optional period, an optional event name, and the event's fields.
fn what(rest: &str) -> Result<What<'_>, Failure> {
    let mut rest = rest;
    // A period is decimal and comes before a name; an address never does.
    if let Some((word, after)) = rest.split_once(char::is_whitespace)
        && decimal(word).is_some()
        && after.trim_start().split(char::is_whitespace).next().is_some_and(|next| next.ends_with(':'))
    {
        rest = after.trim_start();
    }
    let (name, fields) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let fields = fields.trim();
    if let Some(record) = name.strip_prefix("PERF_RECORD_") {
        return Ok(record_of(record.trim_end_matches(':'), name, fields, rest).unwrap_or(What::NoEffect));
    }
    let Some(event) = name.strip_suffix(':') else {
        // Printed without the event's name: the address comes first.
        return location(rest);
    };
    match event {
        "syscalls:sys_enter_madvise" => Ok(dropped(fields, ["start:", "len_in:"], Some("behavior:"))),
        "syscalls:sys_enter_munmap" => Ok(dropped(fields, ["addr:", "len:"], None)),
        _ if is_fault(event) => location(fields),
        _ => Ok(What::Other),
    }
}

/// Whether an event's name, with or without modifiers (`page-faults:u`), is that of a page-fault event.
fn is_fault(event: &str) -> bool {
    const NAMES: [&str; 6] = [
        "page-faults",
        "faults",
        "minor-faults",
        "major-faults",
        "exceptions:page_fault_user",
        "exceptions:page_fault_kernel",
    ];
    let fits = |name: &str| event.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
    NAMES.iter().any(|name| fits(name))
}

/// Parses the address and the instruction of a fault.
fn location(fields: &str) -> Result<What<'_>, Failure> {
    let key = |name: &str| words(fields).find_map(|word| hex(word.text.strip_prefix(name)?));
    if let Some(address) = key("address=") {
        let fault = Fault { address, ip: key("ip="), code: None, error_code: key("error_code=") };
        return Ok(What::Fault(fault));
    }
    let mut list = words(fields);
    let no_address = || Failure::new("a page fault without an address", REMEDY);
    let address = list.next().and_then(|word| hex(word.text)).ok_or_else(no_address)?;
    let (mut ip, mut code, mut is_place) = (None, None, true);
    for word in list {
        // The second location begins after the first one's object; symbols may contain spaces.
        if let (true, Some(found)) = (is_place && word.text.len() >= 4, hex(word.text)) {
            (ip, code) = (Some(found), Some(fields[word.end..].trim()).filter(|text| !text.is_empty()));
            break;
        }
        is_place = word.text.ends_with(')');
    }
    if address >= 1 << 63 {
        return Err(Failure::new("the address is in kernel code: only instruction addresses were printed", REMEDY));
    }
    Ok(What::Fault(Fault { address, ip, code, error_code: None }))
}

fn dropped<'a>(fields: &str, [start, length]: [&str; 2], behaviour: Option<&str>) -> What<'a> {
    const DONTNEED: u64 = 4;
    let value = |name: &str| {
        let rest = &fields[fields.find(name)? + name.len()..];
        hex(rest.trim_start().split([',', ' ']).next()?)
    };
    if behaviour.is_some_and(|name| value(name) != Some(DONTNEED)) {
        return What::NoEffect;
    }
    match value(start).zip(value(length)) {
        Some((start, length)) => {
            What::Dropped { start, end: start.saturating_add(length), unmapped: behaviour.is_none() }
        }
        None => What::Other,
    }
}

/// A record that is not a sample; `None` if it is not needed.
fn record_of<'a>(record: &str, name: &str, fields: &'a str, rest: &'a str) -> Option<What<'a>> {
    match record {
        "MMAP" | "MMAP2" => mapped(fields),
        "COMM" => {
            let exec = fields.strip_prefix("exec:")?;
            let (process, _) = exec.rsplit_once(':')?.1.split_once('/')?;
            Some(What::Exec { process: decimal(process)? })
        }
        "LOST" => fields.split_ascii_whitespace().find_map(decimal).map(What::Lost),
        _ => {
            // `PERF_RECORD_FORK(CHILD:THREAD):(PARENT:THREAD)`, without a space.
            let ids = name.strip_prefix("PERF_RECORD_FORK(").map(|_| &rest["PERF_RECORD_FORK(".len()..])?;
            let (child, parent) = ids.split_once("):(")?;
            let ((process, thread), (parent, _)) = (child.split_once(':')?, parent.split_once(':')?);
            Some(What::Forked { process: decimal(process)?, thread: decimal(thread)?, parent: decimal(parent)? })
        }
    }
}

/// `PID/TID: [START(LENGTH) @ ...]: ACCESS NAME`.
fn mapped(fields: &str) -> Option<What<'_>> {
    let (ids, rest) = fields.split_once(": [")?;
    let (process, thread) = ids.split_once('/')?;
    let (range, rest) = rest.split_once(" @ ")?;
    let (start, length) = range.strip_suffix(')')?.split_once('(')?;
    let (access, name) = rest.split_once("]: ")?.1.split_once(' ').unwrap_or(("", ""));
    let (start, length) = (hex(start)?, hex(length)?);
    let mapping = Mapping { start, end: start.checked_add(length)?, access, name: name.trim() };
    let (process, thread) = (decimal(process)?, decimal(thread)?);
    (length > 0).then_some(What::Mapped { process, thread, mapping })
}

/// `IP SYMBOL (OBJECT)`: a line of a call chain.
fn caller(line: &str) -> Line<'_> {
    let Some((word, code)) = line.split_once(char::is_whitespace) else { return Line::Foreign };
    match hex(word).filter(|_| code.ends_with(')')) {
        Some(ip) => Line::Caller { ip, code: code.trim() },
        None => Line::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(line: &str) -> (Stamp<'_>, Fault<'_>) {
        match parse(line) {
            Ok(Line::Record { stamp, what: What::Fault(fault) }) => (stamp, fault),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn every_selection_of_fields_yields_the_same_fault() {
        let code = Some("main+0x34 (/tmp/a b/t)");
        for line in [
            "t 12754 16961.382685: 1 page-faults: 7fa9610a1000 [unknown] (//anon) 561c8c89218d main+0x34 (/tmp/a b/t)",
            "my 7 prog 12754 [001] 16961.382685: 1 page-faults:u: 7fa9610a1000 [unknown] (//anon) 561c8c89218d main+0x34 (/tmp/a b/t)",
            "t 12754/12754 16961.382685: page-faults: 7fa9610a1000 a::b(int, long)+0x1 (/x y) 561c8c89218d main+0x34 (/tmp/a b/t)",
            "12754/12754 16961.382685000: 7fa9610a1000 561c8c89218d main+0x34 (/tmp/a b/t)",
        ] {
            let (stamp, fault) = fault(line);
            assert_eq!((stamp.thread, stamp.time_ns), (12754, 16_961_382_685_000), "{line}");
            assert_eq!(
                (fault.address, fault.ip, fault.code),
                (0x7fa9_610a_1000, Some(0x561c_8c89_218d), code),
                "{line}"
            );
        }
        let (_, fault) =
            fault("t 1 [001] 1.5: exceptions:page_fault_user: address=0x7f7f6b6d2e06 ip=0x7f ad error_code=0x6");
        assert_eq!((fault.address, fault.error_code), (0x7f7f_6b6d_2e06, Some(6)));
    }

    #[test]
    fn other_lines_are_distinguished_from_faults() {
        let what = |line| match parse(line) {
            Ok(Line::Record { what, .. }) => what,
            other => panic!("{line}: {other:?}"),
        };
        let line = "t 9 1.5: PERF_RECORD_MMAP2 8/9: [0x1000(0x2000) @ 0x1000 fe:00 1 2]: rw-p /a b/c";
        let mapping = Mapping { start: 0x1000, end: 0x3000, access: "rw-p", name: "/a b/c" };
        assert_eq!(what(line), What::Mapped { process: 8, thread: 9, mapping });
        let forked = What::Forked { process: 5, thread: 6, parent: 3 };
        assert_eq!(what("bash 3/3 1.5: PERF_RECORD_FORK(5:6):(3:3)"), forked);
        assert_eq!(what("t 5/5 1.5: PERF_RECORD_COMM exec: a:b:5/5"), What::Exec { process: 5 });
        assert_eq!(what("t 5/5 1.5: PERF_RECORD_COMM: a:5/5"), What::NoEffect);
        assert_eq!(what("t 5/5 1.5: PERF_RECORD_EXIT(5:5):(3:3)"), What::NoEffect);
        assert_eq!(what("t 5 1.5: PERF_RECORD_LOST lost 12"), What::Lost(12));
        let dropped = What::Dropped { start: 0x5000, end: 0x6000, unmapped: false };
        assert_eq!(what("t 5 1.5: syscalls:sys_enter_madvise: start: 0x5000, len_in: 0x1000, behavior: 0x4"), dropped);
        assert_eq!(what("t 5 1.5: cycles: 5000 main (t)"), What::Other);
        assert!(matches!(parse("7f00 main+0x1 (/t)"), Ok(Line::Caller { ip: 0x7f00, .. })));
        for line in
            ["t 5 1.5: 1 page-faults:", "t 5 1.5: page-faults: ffffffff817554ea elf_load+0x28a ([kernel.kallsyms])"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
