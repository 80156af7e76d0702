//! Scales the times or the sizes of a trace.

use super::Edit;
use crate::event::{Event, Op};
use crate::header::{Footer, Header, HistoryStep};
use crate::profile::SiteProfile;
use serde_json::json;

/// A positive factor, in steps of a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    millionths: u64,
}

impl Factor {
    /// The factor nearest to `value`; `None` unless it is between a millionth and a million.
    pub fn new(value: f64) -> Option<Self> {
        let within = (1e-6..=1e6).contains(&value);
        within.then(|| Factor { millionths: (value * 1e6).round() as u64 })
    }

    /// The factor as a number.
    pub fn value(self) -> f64 {
        self.millionths as f64 / 1e6
    }

    fn of(self, amount: u64, round_up: u64) -> u64 {
        let product = u128::from(amount) * u128::from(self.millionths) + u128::from(round_up);
        u64::try_from(product / 1_000_000).unwrap_or(u64::MAX)
    }

    fn down(self, amount: u64) -> u64 {
        self.of(amount, 0)
    }

    fn up(self, amount: u64) -> u64 {
        self.of(amount, 999_999)
    }
}

/// The edit that multiplies every time and rounds it down. The calls are the same, at another rate.
#[derive(Clone, Debug)]
pub struct ScaleTime(pub Factor);

impl Edit for ScaleTime {
    fn edit(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        emit(Event { time_ns: self.0.down(event.time_ns), ..*event });
    }

    fn header(&self, source: &Header) -> Header {
        let mut header = source.clone();
        header.history.push(HistoryStep::new("scale", [("time", json!(self.0.value()))]));
        header
    }
}

/// The edit that multiplies every requested size and rounds it up, to at most 2^47 - 1. Touches cover the same part of
/// their object, rounded outwards. Alignments do not change.
#[derive(Clone, Debug)]
pub struct ScaleSizes(pub Factor);

impl ScaleSizes {
    fn size(&self, size: u64) -> u64 {
        self.0.up(size).min(Op::BLOCK_BYTES_END - 1)
    }
}

impl Edit for ScaleSizes {
    fn edit(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        let mut op = event.op;
        match &mut op {
            Op::Alloc { size, .. } | Op::Realloc { size, .. } | Op::ReallocUnknown { size, .. } => {
                *size = self.size(*size);
            }
            Op::AllocFailed { size, .. } | Op::ReallocFailed { size, .. } => *size = self.0.up(*size),
            Op::Touch { offset, bytes, .. } => {
                let end = self.0.up(offset.saturating_add(u64::from(*bytes))).min(Op::BLOCK_BYTES_END);
                *offset = self.0.down(*offset).min(Op::BLOCK_BYTES_END - 1);
                *bytes = u32::try_from(end.saturating_sub(*offset)).unwrap_or(u32::MAX).max(1);
            }
            _ => (),
        }
        emit(Event { op, ..*event });
    }

    fn header(&self, source: &Header) -> Header {
        let mut header = source.clone();
        header.history.push(HistoryStep::new("scale", [("size", json!(self.0.value()))]));
        header
    }

    fn footer(&self, source: &Footer) -> Footer {
        Footer { profiles: SiteProfile::with_sizes(&source.profiles, |bytes| self.size(bytes)), ..source.clone() }
    }
}
