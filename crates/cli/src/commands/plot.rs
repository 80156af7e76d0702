//! `hksim plot`.
use anyhow::Result;
/// Arguments of `plot`.
#[derive(Debug, clap::Args)]
pub struct Args {}
/// x
pub fn run(_: &Args) -> Result<()> {
    Ok(())
}
