//! How a result can be made again.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command_line::{Argument, parsed, stated};
use hksim_results::Kind;
use hksim_results::predictions;

/// Flags of commands that run an allocator or a program, and the end of flags, behind which is a program.
const RUNS_PROGRAMS: [&str; 5] = ["--allocators", "--on", "--present", "--trial", "--"];

/// How a result can be made again.
#[derive(Debug)]
pub enum Origin {
    /// Completely, by the command that it states.
    Command { name: String, arguments: Vec<Argument> },
    /// Its predictions only: the rest was measured, or it does not state its command.
    Predictions,
    /// Not at all, for this reason. The arguments name its inputs.
    Measured { reason: &'static str, arguments: Vec<Argument> },
}

impl Origin {
    /// The origin of a result.
    ///
    /// # Errors
    /// Nothing of it can be made again, or the command is not one that hksim writes.
    pub fn of(name: &str, result: &Value) -> Result<Origin> {
        let kind = Kind::of(name, result)?;
        let measured = |reason| Ok(Origin::Measured { reason, arguments: Vec::new() });
        match kind {
            Kind::Check => bail!(
                "{name}: a budget names its own files; share the budget, its traces and its stored result instead"
            ),
            Kind::MemoryValidate if !predictions::is_of_replays(result) => bail!(
                "{name}: is measured on this machine, so another one cannot repeat it; bundle a sim or sweep of the recording"
            ),
            Kind::Validate => return Ok(Origin::Predictions),
            Kind::Compare | Kind::Trial | Kind::Choice | Kind::ExplainLibrary | Kind::TimeValidate => {
                return measured("measured: another machine has its own figures");
            }
            Kind::Inspect => return measured("inspected: the process cannot be repeated"),
            Kind::Sim | Kind::Sweep | Kind::Explain | Kind::Advise => (),
            Kind::MemorySim | Kind::MemorySweep | Kind::MemoryValidate => (),
        }
        let Some(words) = stated(result) else {
            if predictions::of(result)?.is_empty() {
                bail!("{name}: does not state the command that made it; make it again with this hksim");
            }
            return Ok(Origin::Predictions);
        };
        let arguments = parsed(&words).with_context(|| name.to_string())?;
        if words.first().map(String::as_str) != Some(kind.command()) {
            bail!("{name}: is a result of {}, but states another `command`: {}", kind.command(), words.join(" "));
        }
        // A value that begins with `-` is stated behind `=`.
        let runs = |word: &String| word.split('=').next().is_some_and(|flag| RUNS_PROGRAMS.contains(&flag));
        if kind == Kind::MemoryValidate || words.iter().any(runs) {
            let reason = "made by replays on allocators: another machine has its own figures";
            return Ok(Origin::Measured { reason, arguments });
        }
        // These predictions state the kernel that they used, which the command finds only on this machine.
        let is_of_host = arguments.iter().any(|argument| argument.words == ["--kernel", "host"]);
        if is_of_host && !predictions::of(result)?.is_empty() {
            return Ok(Origin::Predictions);
        }
        Ok(Origin::Command { name: kind.command().to_string(), arguments })
    }

    /// The files that the result was made from, each with the checksum that the result states.
    ///
    /// # Errors
    /// A prediction is damaged.
    pub fn files(&self, result: &Value) -> Result<BTreeMap<String, Option<String>>> {
        let mut files = BTreeMap::new();
        if let Origin::Command { arguments, .. } | Origin::Measured { arguments, .. } = self {
            let named = arguments.iter().filter(|argument| argument.is_file);
            files.extend(named.filter_map(|argument| Some((argument.words.last()?.clone(), None))));
        }
        let labels = predictions::of(result)?.into_iter().map(|prediction| prediction.report.trace);
        let labels = labels.filter_map(|label| Some((label.file?, label.checksum)));
        let traces = result["traces"].as_array().into_iter().flatten();
        // A row of a prediction has its own; here it is that of a comparison.
        let traces = traces.chain([&result["trace"]]);
        let text = |value: &Value| value.as_str().map(str::to_string);
        let named = traces.filter_map(|label| Some((text(&label["file"])?, text(&label["checksum"]))));
        files.extend(labels.chain(named));
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Each would run a library or a program that the result names.
    #[test]
    fn a_result_that_names_allocators_is_never_repeated() {
        crate::command_line::define(<crate::Cli as clap::CommandFactory>::command);
        let sweep = json!({ "pareto": [], "rows": [{ "recording": {} }] });
        let explain = json!({ "by": {}, "causes": [] });
        let advise = json!({ "winner": {}, "front": [] });
        for (result, named) in [
            (&sweep, vec!["sweep", "a.hkt", "--allocators", "./evil.so"]),
            (&sweep, vec!["sweep", "a.hkt", "--allocators=-x/evil.so"]),
            (&explain, vec!["explain", "a.hkt", "--on", "./evil.so"]),
            (&advise, vec!["advise", "a.hkt", "--on", "./evil.so"]),
        ] {
            let mut result = result.clone();
            result["command"] = json!(named);
            let origin = Origin::of("r.json", &result).expect("an origin");
            let Origin::Measured { .. } = &origin else { panic!("{named:?}: {origin:?}") };
            let files: Vec<String> = origin.files(&result).expect("files").into_keys().collect();
            assert_eq!(files, ["a.hkt"], "{named:?}");
        }
    }
}
