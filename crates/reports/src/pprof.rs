//! pprof: a compressed protocol buffer with the message `perftools.profiles.Profile`.
//!
//! Field numbers: <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write;

use crate::error::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use hksim_trace::sites::Module;
use prost::Message;

use hksim_results::stack_profile::{Call, StackProfile};
use hksim_trace::symbols::file_name;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
    /// Names are final: pprof must not look them up again.
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// The profile as a file.
///
/// # Errors
/// The compression fails.
pub fn bytes(profile: &StackProfile) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&message(profile).encode_to_vec()).context("compressing a pprof file")?;
    encoder.finish().context("compressing a pprof file")
}

fn message(profile: &StackProfile) -> Profile {
    let mut writer = Writer::default();
    // The format requires the first string to be empty.
    writer.string("");
    // pprof takes the first mapping for the program.
    let mut modules = profile.stacks.iter().flat_map(|(calls, _)| calls).filter_map(|call| call.module.as_ref());
    if let Some(program) = modules.find(|module| !file_name(&module.path).contains(".so")) {
        writer.mapping(program);
    }
    let kinds = profile.kinds.iter().map(|kind| (writer.string(kind.name), writer.string(kind.unit)));
    let sample_type: Vec<ValueType> = kinds.map(|(kind, unit)| ValueType { kind, unit }).collect();
    let default_sample_type = sample_type.get(profile.shown).map_or(0, |shown| shown.kind);
    let sample = profile.stacks.iter().map(|(calls, values)| Sample {
        location_id: calls.iter().map(|call| writer.location(call)).collect(),
        value: values.iter().map(|&value| i64::try_from(value).unwrap_or(i64::MAX)).collect(),
    });
    let sample = sample.collect();
    Profile {
        sample_type,
        sample,
        mapping: writer.mapping,
        location: writer.location,
        function: writer.function,
        string_table: writer.string_table,
        default_sample_type,
    }
}

/// The tables that samples refer to.
#[derive(Default)]
struct Writer {
    string_table: Vec<String>,
    mapping: Vec<Mapping>,
    location: Vec<Location>,
    function: Vec<Function>,
    string_ids: HashMap<String, u64>,
    mapping_ids: HashMap<String, u64>,
    location_ids: HashMap<Call, u64>,
    function_ids: HashMap<(String, String), u64>,
}

impl Writer {
    fn string(&mut self, text: &str) -> i64 {
        let (id, is_new) = number(&mut self.string_ids, text.to_string());
        if is_new {
            self.string_table.push(text.to_string());
        }
        // Strings count from 0, all other tables from 1.
        id as i64 - 1
    }

    fn mapping(&mut self, Module { path, build_id }: &Module) -> u64 {
        let (id, is_new) = number(&mut self.mapping_ids, path.to_string());
        if is_new {
            let (filename, build_id) = (self.string(path), self.string(build_id.as_deref().unwrap_or_default()));
            self.mapping.push(Mapping { id, filename, build_id, has_functions: true });
        }
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let (id, is_new) = number(&mut self.function_ids, (name.to_string(), file.to_string()));
        if is_new {
            let (name, filename) = (self.string(name), self.string(file));
            self.function.push(Function { id, name, filename });
        }
        id
    }

    fn location(&mut self, call: &Call) -> u64 {
        let (id, is_new) = number(&mut self.location_ids, call.clone());
        if is_new {
            let mapping_id = call.module.as_ref().map_or(0, |module| self.mapping(module));
            let (file, line) = call.source.clone().unwrap_or_default();
            let line = vec![Line { function_id: self.function(&call.name, &file), line }];
            self.location.push(Location { id, mapping_id, address: call.address, line });
        }
        id
    }
}

/// The number of a key, counted from 1, and whether it is new.
fn number<K: Eq + Hash>(ids: &mut HashMap<K, u64>, key: K) -> (u64, bool) {
    let next = ids.len() as u64 + 1;
    let id = *ids.entry(key).or_insert(next);
    (id, id == next)
}
