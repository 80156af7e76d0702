//! Memory that an earlier recorder mapped into a process which then made no call.
//!
//! It stays mapped: a thread may have read a slot just before the slots were restored, and the program may have taken the
//! address of a function meanwhile. So the next recorder uses it again, and many of them need no more memory than one.

use std::fs;
use std::mem::offset_of;
use std::path::PathBuf;

use hksim_linux_probe::dynamic_section::Memory;
use hksim_linux_probe::maps::Maps;

use crate::attach::instructions::code;
use crate::attach::loaded::text;
use crate::attach::redirect::Redirection;
use crate::attach::target::Target;
use crate::attachment::{AREA_BYTES, Area, CODE_BYTES, MAPPING_BYTES};
use crate::control::Control;
use crate::error::RecordError;

/// The area of an earlier recorder whose object the process has not loaded.
///
/// # Errors
/// Another recorder waits for a call of the process.
pub fn find(target: &Target) -> Result<Option<u64>, RecordError> {
    let Ok(text) = fs::read(format!("/proc/{}/maps", target.pid)) else { return Ok(None) };
    let maps = Maps::of_text(&String::from_utf8_lossy(&text));
    let of_code = maps.iter().filter(|map| map.is_executable && map.name.is_empty() && map.bytes == CODE_BYTES);
    let areas = of_code.filter_map(|map| (map.start as u64).checked_sub(AREA_BYTES as u64));
    for at in areas.filter(|&at| is_area(&target.memory, at)) {
        release(target, at)?;
        if is_unused(target, at) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Gives the process its slots back if the recorder that redirected them was killed before the process made a call.
///
/// # Errors
/// That recorder still waits.
pub fn release(target: &Target, at: u64) -> Result<(), RecordError> {
    let redirection = Redirection { target, at };
    if redirection.is_cancelled() || !redirection.is_waiting() {
        return Ok(());
    }
    if is_held(target, at) {
        return Err(redirection.refused("another hksim record waits for its next call of the allocator".into()));
    }
    redirection.cancel();
    Ok(())
}

/// Whether the whole memory of a recorder is there, with the instructions of this one.
fn is_area(memory: &impl Memory, at: u64) -> bool {
    let mut instructions = vec![0; code().len()];
    let has_code = memory.read(at + AREA_BYTES as u64, &mut instructions) && instructions == code();
    has_code && memory.word(at).is_some() && memory.word(at + (MAPPING_BYTES - size_of::<u64>()) as u64).is_some()
}

/// Whether no thread has come along, and none will.
fn is_unused(target: &Target, at: u64) -> bool {
    let redirection = Redirection { target, at };
    redirection.is_cancelled() && redirection.is_waiting()
}

/// Whether the recorder of the session in an area lives.
fn is_held(target: &Target, at: u64) -> bool {
    let Some(logs) = text(&target.memory, at + offset_of!(Area, session) as u64) else { return false };
    // The path is one of the process's.
    let logs = PathBuf::from(format!("/proc/{}/root{logs}", target.pid));
    Control::open(&logs).is_ok_and(|control| control.is_held())
}
