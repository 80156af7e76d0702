//! `hksim trace anonymise`: removes names, so that a trace can be published.

use std::path::PathBuf;

use anyhow::Result;
use hksim_trace::tools::{Anonymise, SizeDetail, rewrite};
use serde::Serialize;

use super::{ToolReport, open};
use crate::memory;
use crate::output::trace::TraceOut;

/// Arguments of `trace anonymise`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Replaced: the command, file names, process ids, mark names, modules, functions, source lines, code \
                       addresses and build ids. Kept: the order of calls, threads, times, sizes (unless rounded), \
                       alignments, and which calls came from the same place. Someone who has the program can recognise it \
                       by these. A memory recording (.hkm) keeps addresses, sizes and process ids.\n\nExamples:\n  hksim trace anonymise app.hkt --sizes classes -o public.hkt"
)]
pub struct Args {
    /// Anonymise this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Keep sizes (exact), or round them up to size classes, four per power of two (classes)
    #[arg(long, value_name = "DETAIL", value_enum, default_value = "exact")]
    sizes: Sizes,
    #[command(flatten)]
    out: TraceOut,
}

#[derive(Clone, Copy, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Sizes {
    Exact,
    Classes,
}

#[derive(Debug, Serialize)]
struct Kept {
    sizes: Sizes,
}

/// Anonymises.
///
/// # Errors
/// The input is not a trace, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    if memory::is_recording(&args.trace) {
        memory::refuse_flags(&args.trace, &[("sizes", matches!(args.sizes, Sizes::Classes))])?;
        return memory::tools::anonymise(&args.trace, &args.out);
    }
    let mut reader = open(&args.trace)?;
    let mut edit = Anonymise::new(match args.sizes {
        Sizes::Exact => SizeDetail::Exact,
        Sizes::Classes => SizeDetail::Classes,
    });
    let summary = args.out.write(&[&args.trace], |path| rewrite(&mut reader, &mut edit, path))?;
    ToolReport::print("anonymise", &args.out, summary, Kept { sizes: args.sizes }, "")
}
