//! `explain --fit`: which hypotheses explain counts measured elsewhere.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use hksim_explore::fit::{COUNTS_MIN, Demand, Fit, fit};
use hksim_policy::Policy;
use hksim_policy::classes::{Classes, STRIDE_MAX};
use hksim_policy::vocabulary::Header;
use hksim_trace::event::Op;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use serde::Serialize;

use crate::flags::{BaseKernel, RunConfig};
use crate::inputs;
use crate::output::table::{Lines, Table, text};
use crate::output::{OutputArgs, units};
use crate::runs::{setup, simulate_all};
use hksim_explore::inputs::Trace;
use hksim_results::Stamp;
use hksim_trace::named_file;

/// Number of hypotheses in the text; JSON and CSV have all.
const SHOWN: usize = 12;

/// A count of the file.
#[derive(Clone, Debug, Serialize)]
struct Count {
    /// The trace.
    trace: String,
    /// The count measured elsewhere.
    count: u64,
    /// Installs of the given design on the trace.
    installs_predicted: u64,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
struct Fitted {
    #[serde(flatten)]
    stamp: Stamp,
    /// The design that is simulated.
    policy: Policy,
    counts: Vec<Count>,
    #[serde(flatten)]
    fit: Fit,
}

/// Ranks hypotheses for the counts of a file.
///
/// # Errors
/// The file or a trace cannot be read.
pub fn run(file: &Path, tolerance: f64, config: &RunConfig, output: &OutputArgs) -> Result<()> {
    let counts = read(file)?;
    let traces = counts.iter().map(|(path, _)| inputs::file(path)).collect::<Result<Vec<Trace>>>()?;
    refuse_repeated(file, &traces)?;
    let classes = Classes::new(config.policy.classes);
    let demands =
        counts.iter().map(|(path, _)| demand(path, &classes, &config.policy)).collect::<Result<Vec<Demand>>>()?;
    let runs = traces.into_iter().map(|trace| -> Result<_> {
        let setups = vec![setup(config, &trace, BaseKernel::AsItComes)?];
        Ok((trace, setups))
    });
    let reports = simulate_all(&runs.collect::<Result<Vec<_>>>()?)?;
    let predicted: Vec<u64> = reports.iter().map(|report| report.installs.total).collect();
    let measured: Vec<u64> = counts.iter().map(|&(_, count)| count).collect();
    let fit = fit(&measured, &demands, &predicted, tolerance);
    let counts = counts.iter().zip(&predicted).map(|((path, count), &installs_predicted)| Count {
        trace: path.display().to_string(),
        count: *count,
        installs_predicted,
    });
    let fitted = Fitted { stamp: Stamp::here(), policy: config.policy, counts: counts.collect(), fit };
    output.emit(&fitted, &fitted.fit.hypotheses, || table(&fitted))
}

/// Reads lines of `TRACE,COUNT`. Paths are relative to the file. A head is skipped.
fn read(file: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let name = file.display();
    let text = named_file::read_text(file).with_context(|| format!("{name}: cannot read the counts"))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut counts = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = || anyhow!("{name}: line {}: expected TRACE.hkt,COUNT", index + 1);
        let (trace, count) = line.rsplit_once(',').ok_or_else(wrong)?;
        match unquoted(count).parse() {
            Ok(count) => counts.push((folder.join(unquoted(trace)), count)),
            Err(_) if index == 0 => {}
            Err(_) => return Err(wrong()),
        }
    }
    if counts.len() < COUNTS_MIN {
        bail!("{name}: {} counts; two parameters fit anything below {COUNTS_MIN}, so give more traces", counts.len());
    }
    Ok(counts)
}

/// A CSV field without its quotes.
fn unquoted(field: &str) -> String {
    let field = field.trim();
    let inner = field.strip_prefix('"').and_then(|field| field.strip_suffix('"'));
    inner.map_or_else(|| field.to_string(), |inner| inner.replace("\"\"", "\""))
}

/// Refuses a file that gives several counts for one trace: no hypothesis explains a difference between them.
fn refuse_repeated(file: &Path, traces: &[Trace]) -> Result<()> {
    for (number, trace) in traces.iter().enumerate() {
        let checksum = trace.label().checksum;
        let same = |earlier: &&Trace| checksum.is_some() && earlier.label().checksum == checksum;
        if let Some(earlier) = traces[..number].iter().find(same) {
            bail!(
                "{}: {} is the same trace as {}; give one count for each trace, such as the median of several runs",
                file.display(),
                trace.name(),
                earlier.name()
            );
        }
    }
    Ok(())
}

fn demand(path: &Path, classes: &Classes, policy: &Policy) -> Result<Demand> {
    let header_bytes = if policy.header == Header::None { 0 } else { policy.header_bytes };
    let class_bytes = |size: u64| {
        let bytes = u32::try_from(size).ok()?.checked_add(header_bytes).filter(|&bytes| bytes <= STRIDE_MAX)?;
        Some(u64::from(classes.stride(classes.class_of(bytes))))
    };
    let mut source = TraceReader::open(path)?;
    let mut demand = Demand::default();
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            match event.op {
                Op::Alloc { size, .. } | Op::ReallocUnknown { size, .. } | Op::Realloc { size, .. } => {
                    demand.allocate(size, class_bytes(size));
                }
                Op::Free { .. } | Op::ReallocFree { .. } => demand.frees += 1,
                _ => {}
            }
        }
    }
    Ok(demand)
}

/// A number with four digits that count.
fn digits(number: f64) -> String {
    let before_point = if number == 0.0 { 1 } else { number.abs().log10().floor() as i32 + 1 };
    format!("{number:.*}", (4 - before_point).clamp(0, 12) as usize)
}

fn table(fitted: &Fitted) -> String {
    let mut table = Table::new(["trace", "count", "the design, simulated"], &[0]);
    for Count { trace, count, installs_predicted } in &fitted.counts {
        table.push([trace.clone(), units::count(*count), units::count(*installs_predicted)]);
    }
    let mut lines = table.lines();
    lines.extend([String::new(), fitted.fit.sentence.clone(), String::new()]);
    let mut table = Table::new(["count = fixed + part", "fixed", "part", "largest deviation", ""], &[0, 4]);
    for hypothesis in fitted.fit.hypotheses.iter().take(SHOWN) {
        table.push([
            hypothesis.name.clone(),
            // Rounded first: else it could be -0.
            format!("{:.0}", hypothesis.fixed.round() + 0.0),
            digits(hypothesis.per_unit),
            format!("{:.2} %", hypothesis.residual_worst * 100.0),
            match (hypothesis.fits, hypothesis.has_negative_part) {
                (true, _) => "fits".to_string(),
                (false, true) => "negative".to_string(),
                (false, false) => String::new(),
            },
        ]);
    }
    lines.extend(table.lines());
    text(&lines)
}
