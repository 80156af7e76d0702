//! Installs of explained replays by call site of their trace: `sweep --allocators --by site`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hksim_attribution::{Explained, explain_under};
use hksim_replay::ReplaySpec;
use hksim_trace::header::Footer;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use serde::{Deserialize, Serialize};

use crate::error::ResultError;
use crate::explain::{Names, Part};

/// An explained replay, by call site of its trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteInstalls {
    /// The trace.
    pub trace: PathBuf,
    /// The allocator with its settings, as on the command line.
    pub allocator: String,
    /// The THP mode; absent for the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thp: Option<String>,
    /// All installs, as in `explain --on`; null if there is no explanation.
    pub installs_total: Option<u64>,
    /// Call site that allocated the object: its frames, innermost first, separated by `;`. The sum is the total.
    pub site: Vec<Part>,
    /// The same by who asked for the memory, in the text instead of `site`: whole stacks do not fit.
    #[serde(skip)]
    pub callers: Vec<Part>,
    /// Why there is no explanation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// The call sites of a trace.
pub struct TraceSites {
    trace: PathBuf,
    footer: Footer,
    notes: BTreeSet<String>,
}

impl TraceSites {
    /// Reads the call sites of a trace.
    ///
    /// # Errors
    /// The trace cannot be read, or has none.
    pub fn of(trace: &Path) -> Result<TraceSites, ResultError> {
        let name = trace.display();
        let unread = |why| ResultError::file_by(format!("{name}: cannot read the call sites"), why);
        let footer = TraceReader::open(trace).map_err(unread)?.footer().clone();
        if footer.sites.is_empty() {
            let message = format!("{name}: --by site: no call stacks were recorded; record with --stacks");
            return Err(ResultError::file(message));
        }
        Ok(TraceSites { trace: trace.to_path_buf(), footer, notes: BTreeSet::new() })
    }

    /// The installs of explained replays on an allocator, which `word` names, one under each of these THP modes.
    pub fn installs(&mut self, spec: &ReplaySpec, word: &str, modes: &BTreeSet<Option<&str>>) -> Vec<SiteInstalls> {
        let names = Names::of(&self.footer);
        let explained = explain_under(spec, modes.iter().copied());
        let of_mode = |(mode, explained): (&Option<&str>, Result<Explained, String>)| {
            let sums = explained.as_ref().ok().map(|explained| &explained.breakdown);
            SiteInstalls {
                trace: self.trace.clone(),
                allocator: word.to_string(),
                thp: mode.map(str::to_string),
                installs_total: sums.map(|sums| sums.total),
                site: sums.map(|sums| names.sites(&sums.site)).unwrap_or_default(),
                callers: sums.map(|sums| names.callers(&sums.site)).unwrap_or_default(),
                skipped: explained.as_ref().err().cloned(),
            }
        };
        let installs = modes.iter().zip(explained).map(of_mode).collect();
        self.notes.extend(names.notes());
        installs
    }

    /// Notes about names that were not found.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }
}
