//! The marks that a trace sets. A recording can name marks that it never sets: those of another process.

use hksim_text::plain;
use hksim_trace::error::TraceError;
use hksim_trace::event::Op;
use hksim_trace::source::EventSource;

/// The marks that are set, in the order of their first occurrence.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Numbers and names.
    set: Vec<(u32, String)>,
}

impl Marks {
    /// Reads a source, which must be at its start.
    ///
    /// # Errors
    /// Those of the source.
    pub fn of(source: &mut dyn EventSource) -> Result<Marks, TraceError> {
        let names = source.footer().mark_names.clone();
        let mut marks = Marks::default();
        while let Some(batch) = source.next_batch()? {
            batch.iter().for_each(|event| marks.see(&event.op, &names));
        }
        Ok(marks)
    }

    /// Notes an event. `names` are those of the trace's marks.
    pub fn see(&mut self, op: &Op, names: &[String]) {
        if let Op::Mark { name: number } = *op
            && self.set.iter().all(|&(known, _)| known != number)
            && let Some(name) = names.get(number as usize)
        {
            self.set.push((number, name.clone()));
        }
    }

    /// The number of the mark with this name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.set.iter().find(|(_, known)| known == name).map(|&(number, _)| number)
    }

    /// The names, for a message about a missing one.
    pub fn known(&self) -> String {
        match self.set.as_slice() {
            [] => "the trace has no marks; set them with `hksim mark` while recording".to_string(),
            set => format!("its marks are {}", set.iter().map(|(_, name)| plain(name)).collect::<Vec<_>>().join(", ")),
        }
    }
}
