//! Reports: results as one HTML file without references to other files.
//!
//! [`Kind`](hksim_results::Kind) recognises a result, `about` says what it is about, and `section` turns it into a section, with the parts of `memory` recordings, `measured` results,
//! `budget`s and `inspect`ed processes. `html` is the markup.

mod about;
mod budget;
mod html;
mod inspect;
mod measured;
mod memory;
mod section;

use std::time::SystemTime;

use crate::error::{Context, Result};
use hksim_sim::report::version;
use serde_json::Value;

use crate::chart::{self, Subject};
use html::escaped;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// A result to report.
pub struct Input {
    /// Its file, as commands name it.
    pub name: String,
    /// The JSON result.
    pub result: Value,
    /// When the result was written, if that is known.
    pub written: Option<SystemTime>,
    /// The command that makes the result again, if the result states its arguments.
    pub command: Option<String>,
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
        escaped(version())
    ))
}
