//! `hksim merge`: puts the shards of a sweep together.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use hksim_explore::digest::Digest;
use hksim_explore::shard::{Part, Shard, merge};
use hksim_sim::report::{SCHEMA, VERSION};
use serde::Deserialize;
use serde_json::Value;

use super::sweep::result::{Head, PricedSweep};
use super::sweep::view;
use crate::chart;
use crate::command_line;
use crate::named_file;
use crate::output::OutputArgs;
use crate::output::columns::ColumnsArgs;
use crate::result_numbers;
use crate::system_time::Priced;

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
    #[arg(long, value_name = "PICTURE", value_parser = chart::parse_picture)]
    plot: Option<PathBuf>,
}

/// The version of a result.
#[derive(Deserialize)]
struct Version {
    schema: u32,
    hksim_version: String,
}

/// A shard as `sweep --shard` writes it.
#[derive(Deserialize)]
struct ShardFile {
    #[serde(default)]
    command: Vec<String>,
    shard: Shard,
    sweep: Digest,
    rows_total: usize,
    head: Head,
    rows: Vec<Priced>,
}

/// Merges shards.
///
/// # Errors
/// A file is not a shard, or a shard is missing, given twice, or of another sweep.
pub fn run(args: &Args) -> Result<()> {
    let inputs: Vec<Option<&Path>> = args.shards.iter().map(|path| Some(path.as_path())).collect();
    args.output.check(&[args.plot.as_deref()], &inputs)?;
    view::check(&args.columns, &args.output)?;
    let files = args.shards.iter().map(|path| read(path)).collect::<Result<Vec<ShardFile>>>()?;
    command_line::set(files.first().map(|file| file.command.clone()).unwrap_or_default());
    let head = files.first().map(|file| file.head.clone()).ok_or_else(|| anyhow!("no shard to merge"))?;
    let parts = args.shards.iter().zip(files).map(|(path, file)| Part {
        file: path.display().to_string(),
        shard: file.shard,
        sweep: file.sweep,
        rows_total: file.rows_total,
        rows: file.rows,
    });
    let result = PricedSweep::new(merge(parts.collect())?, &head)?;
    result.emit(&args.output, &args.columns, &head)?;
    match &args.plot {
        Some(path) => chart::write(path, &serde_json::to_value(&result).context("result as JSON")?),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<ShardFile> {
    let file = path.display();
    let text = named_file::read(path).with_context(|| format!("{file}: cannot read the shard"))?;
    let not_a_shard = || format!("{file}: not a shard; shards are results of `sweep --shard I/N --format json`");
    let Version { schema, hksim_version } = serde_json::from_slice(&text).with_context(not_a_shard)?;
    if (schema, hksim_version.as_str()) != (SCHEMA, VERSION) {
        bail!(
            "{file}: written by hksim {hksim_version} (schema {schema}), and this is {VERSION} (schema {SCHEMA}); merge with the version that wrote it"
        );
    }
    let shard: Value = serde_json::from_slice(&text).with_context(not_a_shard)?;
    result_numbers::check(&shard).with_context(|| file.to_string())?;
    serde_json::from_value(shard).with_context(not_a_shard)
}
