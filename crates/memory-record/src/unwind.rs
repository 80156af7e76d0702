//! Finds the callers of a memory call from a dump of its registers and its stack, by the unwind tables (`.eh_frame`) of
//! the mapped files. Code without tables must keep a chain of frame pointers.
//!
//! Unlike the recorder of allocator calls, which unwinds within the program in some tens of nanoseconds, this one may
//! allocate and take its time: it follows all registers that functions preserve, and evaluates expressions.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{
    CfaRule, Encoding, EvaluationResult, Expression, Location, Register, RegisterRule, UnwindContext, UnwindExpression,
    Value,
};
use hksim_memory_trace::{Module, StackEnd};

use crate::code_map::CodeMap;
use crate::module_file::{Bytes, ModuleFile, Row};
use crate::stack_dump::{
    FRAME_POINTER, INSTRUCTION_POINTER, REGISTERS, Registers, STACK_POINTER, StackDump, Unreadable,
};

/// Largest plausible frame in a chain of frame pointers, in bytes.
const CHAIN_FRAME_MAX: u64 = 1 << 20;

/// First address that code can have (`vm.mmap_min_addr`). A program's entry point has no caller: in place of the return
/// address lies the number of its arguments.
const CODE_START: u64 = 1 << 16;

/// A stack that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Walked {
    /// Frames, innermost first: the module, and the address in it, or in the process without one.
    pub frames: Vec<(Option<Arc<Module>>, u64)>,
    /// Where the stack ends.
    pub end: StackEnd,
}

/// Unwinds dumps, opening each file once.
pub struct Unwinder {
    depth: usize,
    files: Files,
    context: UnwindContext<usize>,
}

/// The caller of a frame.
struct Caller {
    registers: Registers,
    /// It was interrupted by a signal, so its address is not that of a call.
    is_interrupted: bool,
}

/// What can be found out about a frame's caller: the caller, or where the stack ends.
type Step = Result<Caller, StackEnd>;

impl From<Unreadable> for StackEnd {
    fn from(why: Unreadable) -> Self {
        match why {
            Unreadable::Beyond => Self::StackCutOff,
            Unreadable::Elsewhere => Self::NoUnwindInformation,
        }
    }
}

impl Unwinder {
    /// An unwinder that finds up to `depth` frames.
    pub fn new(depth: u32) -> Self {
        Self { depth: depth as usize, files: HashMap::new(), context: UnwindContext::new() }
    }

    /// The stack of a dump in an address space with these files.
    pub fn walk(&mut self, dump: &StackDump, code: &CodeMap) -> Walked {
        let Self { depth, files, context } = self;
        let mut at = Caller { registers: dump.registers, is_interrupted: false };
        let mut frames = Vec::new();
        loop {
            // A return address is that of the next instruction; one byte before is in the call.
            let Some(address) = at.registers[INSTRUCTION_POINTER]
                .and_then(|address| address.checked_sub(u64::from(!at.is_interrupted)))
            else {
                return Walked { frames, end: StackEnd::Outermost };
            };
            // Tables lead astray where code switches stacks.
            if !frames.is_empty() && !code.is_code(address) {
                return Walked { frames, end: StackEnd::NoUnwindInformation };
            }
            let by_tables = match find(files, code, address) {
                Some((file, address)) => {
                    frames.push((Some(Arc::clone(&file.module)), address));
                    file.with_row(address, context, |row| by_row(&row, &at.registers, dump))
                }
                None => {
                    frames.push((None, address));
                    None
                }
            };
            let caller = by_tables.unwrap_or_else(|| by_chain(&at.registers, dump, code, address));
            at = match caller {
                Err(end) => return Walked { frames, end },
                Ok(_) if frames.len() >= *depth => return Walked { frames, end: StackEnd::Depth },
                Ok(caller) => caller,
            };
        }
    }
}

type Files = HashMap<Arc<str>, ModuleFile>;

/// The file of an address, and the address in that file.
fn find<'a>(files: &'a mut Files, code: &CodeMap, address: u64) -> Option<(&'a ModuleFile, u64)> {
    let (path, offset) = code.at(address)?;
    let file = files.entry(Arc::clone(path)).or_insert_with(|| ModuleFile::open(path));
    // A file that cannot be read is still a name.
    Some((file, file.address_of(offset).unwrap_or(offset)))
}

/// The caller by the rules of a table.
fn by_row(row: &Row<'_>, registers: &Registers, dump: &StackDump) -> Step {
    let evaluate = |expression: &UnwindExpression<usize>, start| {
        let bytes = row.table.get(expression.offset..expression.offset + expression.length);
        let expression = Expression(Bytes::new(bytes.ok_or(StackEnd::NoUnwindInformation)?, gimli::LittleEndian));
        value_of(expression, row.encoding, start, registers, dump)
    };
    let cfa = match row.rules.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => known(registers, *register)?.wrapping_add_signed(*offset),
        CfaRule::Expression(expression) => evaluate(expression, None)?,
    };
    let mut caller = *registers;
    for (number, value) in caller.iter_mut().enumerate() {
        let at_cfa = |offset: i64| cfa.wrapping_add_signed(offset);
        *value = match row.rules.register(Register(number as u16)) {
            Some(RegisterRule::SameValue) => *value,
            Some(RegisterRule::Offset(offset)) => Some(dump.word(at_cfa(offset))?),
            Some(RegisterRule::ValOffset(offset)) => Some(at_cfa(offset)),
            Some(RegisterRule::Register(other)) => registers.get(usize::from(other.0)).copied().flatten(),
            Some(RegisterRule::Expression(expression)) => Some(dump.word(evaluate(&expression, Some(cfa))?)?),
            Some(RegisterRule::ValExpression(expression)) => Some(evaluate(&expression, Some(cfa))?),
            None if number == STACK_POINTER => Some(cfa),
            None if number == INSTRUCTION_POINTER => None,
            None => *value,
            Some(_) => None,
        };
    }
    match (caller[INSTRUCTION_POINTER], caller[STACK_POINTER]) {
        (None | Some(..CODE_START), _) => Err(StackEnd::Outermost),
        // A caller's frame lies above, except where a signal handler has a stack of its own.
        (_, pointer) if !row.is_signal && pointer <= registers[STACK_POINTER] => Err(StackEnd::NoUnwindInformation),
        _ => Ok(Caller { registers: caller, is_interrupted: row.is_signal }),
    }
}

fn known(registers: &Registers, register: Register) -> Result<u64, StackEnd> {
    registers.get(usize::from(register.0)).copied().flatten().ok_or(StackEnd::NoUnwindInformation)
}

/// The value of an expression. `start` is on the expression's stack at first.
fn value_of(
    expression: Expression<Bytes<'_>>,
    encoding: Encoding,
    start: Option<u64>,
    registers: &Registers,
    dump: &StackDump,
) -> Result<u64, StackEnd> {
    let failed = |_: gimli::Error| StackEnd::NoUnwindInformation;
    let mut evaluation = expression.evaluation(encoding);
    if let Some(start) = start {
        evaluation.set_initial_value(start);
    }
    let mut result = evaluation.evaluate().map_err(failed)?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                evaluation.resume_with_register(Value::Generic(known(registers, register)?)).map_err(failed)?
            }
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                evaluation.resume_with_memory(Value::Generic(dump.word(address)?)).map_err(failed)?
            }
            _ => return Err(StackEnd::NoUnwindInformation),
        };
    }
    match evaluation.result().first().map(|piece| piece.location) {
        Some(Location::Address { address }) => Ok(address),
        _ => Err(StackEnd::NoUnwindInformation),
    }
}

/// The caller by the frame pointer, but only if it leads up the stack and to code.
fn by_chain(registers: &Registers, dump: &StackDump, code: &CodeMap, address: u64) -> Step {
    let is_in_file = code.at(address).is_some();
    let (Some(frame), Some(pointer)) = (registers[FRAME_POINTER], registers[STACK_POINTER]) else {
        return Err(StackEnd::NoUnwindInformation);
    };
    // The first function of a thread has no caller's frame.
    if frame == 0 && is_in_file {
        return Err(StackEnd::Outermost);
    }
    if frame < pointer || frame - pointer > CHAIN_FRAME_MAX || frame % 8 != 0 {
        return Err(StackEnd::NoUnwindInformation);
    }
    let (outer, back) = (dump.word(frame)?, dump.word(frame + 8)?);
    if back < CODE_START {
        return Err(StackEnd::Outermost);
    }
    // Only generated code may be called by other generated code.
    if is_in_file && code.at(back - 1).is_none() {
        return Err(StackEnd::NoUnwindInformation);
    }
    let mut caller: Registers = [None; REGISTERS];
    caller[FRAME_POINTER] = Some(outer);
    caller[STACK_POINTER] = Some(frame + 16);
    caller[INSTRUCTION_POINTER] = Some(back);
    Ok(Caller { registers: caller, is_interrupted: false })
}
