//! Reports: results as one HTML file without references to other files.
//!
//! [`kind`] recognises a result, [`about`] says what it is about, and [`section`] turns it into a section, with the parts of [`memory`] recordings and
//! [`budget`]s. [`repeat`] finds the command that repeats it; [`html`] is the markup.

mod about;
mod budget;
mod html;
mod kind;
mod memory;
mod repeat;
mod section;

pub use kind::Kind;
pub use repeat::{command, stated};

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::output::stamp::VERSION;
use anyhow::{Context, Result};
use serde_json::Value;

use crate::chart::{self, Subject};
use html::escaped;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// A result to report.
pub struct Input {
    /// Its file, as commands name it.
    pub name: String,
    /// The file to write when the result is repeated.
    pub again: String,
    /// The JSON result.
    pub result: Value,
    /// When the result was written, if that is known.
    pub written: Option<SystemTime>,
    /// Files that the result names, where they have other names now.
    pub files: BTreeMap<String, String>,
}

/// The report of some results.
///
/// # Errors
/// A result is of a kind that cannot be reported, or damaged.
pub fn document(inputs: &[Input]) -> Result<String> {
    let subjects = inputs.iter().map(|input| Subject::of(&input.result).with_context(|| input.name.clone()));
    let mut subjects = subjects.collect::<Result<Vec<Subject<'_>>>>()?;
    chart::rank(&mut subjects);
    let sections = inputs.iter().zip(&subjects).map(|(input, subject)| section::section(input, subject));
    let sections = sections.collect::<Result<Vec<String>>>()?;
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>hksim report</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>hksim report</h1>\n{}<footer>Written by hksim {}.</footer>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        sections.concat(),
        escaped(VERSION)
    ))
}
