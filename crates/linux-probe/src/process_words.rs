//! The words of a process: its command line and its environment.

use std::fs;

/// The command line of a process; empty if it cannot be read.
pub fn command_of(pid: u32) -> Vec<String> {
    words(pid, "cmdline")
}

/// The environment with which a process started, as `NAME=VALUE`; empty if it cannot be read.
pub fn environment_of(pid: u32) -> Vec<String> {
    words(pid, "environ")
}

fn words(pid: u32, file: &str) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let words = bytes.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
