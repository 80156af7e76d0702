//! The figure that ranks call sites, as the value of a flag.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use hksim_results::info::By;

/// A figure of call sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByWord(pub By);

impl ValueEnum for ByWord {
    fn value_variants<'a>() -> &'a [Self] {
        &[ByWord(By::Bytes), ByWord(By::Calls), ByWord(By::Peak), ByWord(By::End)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (word, help) = match self.0 {
            By::Bytes => ("bytes", "Bytes requested"),
            By::Calls => ("calls", "Calls"),
            By::Peak => ("peak", "Bytes live at the program's peak"),
            By::End => ("end", "Bytes never freed"),
        };
        Some(PossibleValue::new(word).help(help))
    }
}
