//! `hksim merge`: puts the shards of a sweep together.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use hksim_explore::shard::{Part, merge};
use hksim_results::sweep::{PricedSweep, read_shard};

use super::sweep::view;
use crate::output::columns::ColumnsArgs;
use crate::output::{OutputArgs, stated};
use crate::pictures;

/// Arguments of `merge`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim sweep app.hkt --huge --shard 1/2 --format json -o 1.json\n  hksim sweep app.hkt --huge --shard 2/2 --format json -o 2.json\n  hksim merge 1.json 2.json"
)]
pub struct Args {
    /// Merge these results of `sweep --shard`, all shards of one sweep, in any order
    #[arg(value_name = "SHARD.json", required = true)]
    shards: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    columns: ColumnsArgs,
    /// Draw the result as SVG or PNG
    #[arg(long, value_name = "PICTURE", value_parser = pictures::parse_picture)]
    plot: Option<PathBuf>,
}

/// Merges shards.
///
/// # Errors
/// A file is not a shard, or a shard is missing, given twice, or of another sweep.
pub fn run(args: &Args) -> Result<()> {
    let inputs: Vec<Option<&Path>> = args.shards.iter().map(|path| Some(path.as_path())).collect();
    args.output.check(&[args.plot.as_deref()], &inputs)?;
    view::check(&args.columns, &args.output)?;
    let files = args.shards.iter().map(|path| read_shard(path)).collect::<Result<Vec<_>, _>>()?;
    let (command, first) = files.first().ok_or_else(|| anyhow!("no shard to merge"))?;
    stated::set(command.clone());
    let head = first.head.clone();
    let parts = args.shards.iter().zip(files).map(|(path, (_, file))| Part {
        file: path.display().to_string(),
        shard: file.shard,
        sweep: file.sweep,
        rows_total: file.rows_total,
        rows: file.rows.into_iter().map(|row| row.priced).collect(),
    });
    let result = PricedSweep::new(merge(parts.collect())?, &head)?;
    view::emit(&result, &args.output, &args.columns, &head)?;
    match &args.plot {
        Some(path) => pictures::write_designs(path, &serde_json::to_value(&result).context("result as JSON")?),
        None => Ok(()),
    }
}
