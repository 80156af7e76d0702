//! `record OUTPUT COMMAND...`: records a command and prints the report as JSON on stderr.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(output) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: record OUTPUT COMMAND...");
        return ExitCode::from(2);
    };
    let command: Vec<OsString> = arguments.collect();
    let options = hksim_record::Options { output, ..hksim_record::Options::default() };
    match hksim_record::record(&options, &command) {
        Ok(report) => {
            eprintln!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
            let status = report.exit.map_or(0, hksim_record::Exit::shell_status);
            ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
        }
        Err(why) => {
            eprintln!("record: {why}");
            ExitCode::from(2)
        }
    }
}
