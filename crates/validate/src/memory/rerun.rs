//! The command that a validation runs: the recorded one, or one that the user gives.
//!
//! A recording may come from anyone. From its environment only variables that configure allocators are taken: others, such
//! as `LD_PRELOAD`, load code that the command does not show.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use hksim_memory_record::{inherited_here, is_allocator_variable};
use hksim_memory_trace::{Header, Inherited};
use hksim_replay::{ObservedChild, ReplaySpec, Target};

use hksim_text::shell::{line, quoted};
use hksim_text::units;

/// The personality's flag for fixed addresses (`include/uapi/linux/personality.h`). A run sets it as it was recorded.
const ADDR_NO_RANDOMIZE: u32 = 0x004_0000;

/// A command with what it is run with.
#[derive(Clone, Debug)]
pub struct Rerun {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Additional environment variables.
    pub variables: Vec<(OsString, OsString)>,
    /// Where it is run; `None` for here.
    pub directory: Option<PathBuf>,
    /// Its standard input, if it has one: the job of a replay.
    pub input: Option<String>,
    /// The words for the user: those of a replay do not say what it does.
    shown: String,
}

impl Rerun {
    /// The command of a recording of the program that was started.
    ///
    /// # Errors
    /// The reason why it cannot be run.
    pub fn recorded(header: &Header) -> Result<Self, String> {
        if header.history.iter().any(|step| step == "anonymise") {
            return Err("the recording is anonymised: its command is unknown".to_string());
        }
        let Some(directory) = header.directory.as_ref().filter(|_| !header.command.is_empty()) else {
            return Err("the recording holds no command".to_string());
        };
        if let Some(job) = &header.input {
            return Self::replay(job).map_err(|why| why.to_string());
        }
        let taken = header.environment.iter().filter(|(name, _)| is_allocator_variable(name));
        let directory = PathBuf::from(directory);
        if !directory.is_dir() {
            return Err(format!("there is no directory {}, in which it was recorded", directory.display()));
        }
        Ok(Self {
            words: header.command.iter().map(OsString::from).collect(),
            variables: taken.map(|(name, value)| (name.into(), value.into())).collect(),
            directory: Some(directory),
            input: None,
            shown: line(header.command.iter().map(String::as_str)),
        })
    }

    /// The replay that a recorded job describes, made by this program.
    fn replay(job: &str) -> Result<Self, hksim_replay::ReplayError> {
        let spec = ObservedChild::spec_of(job)?;
        let child = ObservedChild::of(&spec)?;
        let arguments = child.arguments.iter().map(OsString::from);
        Ok(Self {
            words: [child.program.into()].into_iter().chain(arguments).collect(),
            variables: child.environment,
            directory: None,
            input: Some(child.job),
            shown: shown_replay(&spec),
        })
    }

    /// A command of the user's.
    pub fn given(words: &[OsString]) -> Self {
        let texts: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let shown = line(texts.iter().map(AsRef::as_ref));
        Self { words: words.to_vec(), variables: Vec::new(), directory: None, input: None, shown }
    }

    /// The reason why a recording that began in the middle cannot be repeated.
    pub fn attached() -> String {
        "the recording began in the middle of a running process (record -p), and no run begins with its memory; validate \
         a recording of the whole program, and compare this one with `hksim inspect`"
            .to_string()
    }

    /// The reason if the recording of the started program is missing.
    pub fn unknown() -> String {
        "the recording of the program that was started is not next to it, so its command is unknown".to_string()
    }

    /// The command as a shell reads it, with its directory and variables.
    pub fn shown(&self) -> String {
        let mut words = Vec::new();
        if let Some(directory) = &self.directory {
            words.push(format!("cd {} &&", quoted(&directory.to_string_lossy())));
        }
        let text = |word: &OsStr| quoted(&word.to_string_lossy());
        words.extend(self.variables.iter().map(|(name, value)| format!("{}={}", text(name), text(value))));
        words.push(self.shown.clone());
        words.join(" ")
    }

    /// The recorded variables that this run has with another value: `NAME=VALUE, and not NAME=OTHER`.
    pub fn other_variables(&self, recorded: &BTreeMap<String, String>) -> Vec<String> {
        let own = |name: &str| {
            let set = self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
            set.or_else(|| std::env::var_os(name)).map(|value| value.to_string_lossy().into_owned())
        };
        let differs = |(name, value): (&String, &String)| match own(name) {
            Some(own) if own == *value => None,
            Some(own) => Some(format!("{name}={}, and not {}", quoted(&own), quoted(value))),
            None => Some(format!("{name} unset, and not {}", quoted(value))),
        };
        recorded.iter().filter_map(differs).collect()
    }
}

/// What a run inherits from this process otherwise than the recorded program did: `NAME is VALUE, and not OTHER`. Whether
/// huge pages are allowed is not among it: a run is started with the recorded setting.
pub fn other_inheritance(recorded: &Inherited) -> Vec<String> {
    // Recordings of earlier versions have no limits, and no personality either.
    let Some(limits) = &recorded.limits else { return Vec::new() };
    let here = inherited_here();
    let own = here.limits.unwrap_or_default();
    let bytes = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_string(), units::bytes);
    let rows = [
        ("the stack limit", own.stack_bytes, limits.stack_bytes),
        ("the limit of locked memory", own.locked_bytes, limits.locked_bytes),
        ("the limit of the address space", own.address_space_bytes, limits.address_space_bytes),
    ];
    let limits = rows.into_iter().filter(|(_, own, recorded)| own != recorded);
    let mut others: Vec<String> =
        limits.map(|(name, own, recorded)| format!("{name} is {}, and not {}", bytes(own), bytes(recorded))).collect();
    let personalities = [here.personality, recorded.personality].map(|personality| personality & !ADDR_NO_RANDOMIZE);
    if personalities[0] != personalities[1] {
        others.push(format!("the personality is {:#x}, and not {:#x}", personalities[0], personalities[1]));
    }
    others
}

/// A replay as a command line.
fn shown_replay(spec: &ReplaySpec) -> String {
    let on = match &spec.on {
        Target::Native(_) => "native".to_string(),
        Target::Design { name, .. } => name.clone(),
        Target::Malloc { preload: Some(library), .. } => library.display().to_string(),
        Target::Malloc { preload: None, .. } => "glibc".to_string(),
    };
    line(["hksim", "replay", &spec.trace.display().to_string(), "--on", &on])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_of_allocators_are_taken_from_a_file() {
        let variables = [("LD_PRELOAD", "/tmp/x.so"), ("MALLOC_CONF", "thp:always"), ("NODE_OPTIONS", "-r x")];
        let environment = variables.map(|(name, value)| (name.to_string(), value.to_string())).into();
        let directory = Some("/".to_string());
        let header = Header { environment, directory, ..Header::example(&["prog", "a b"]) };
        let rerun = Rerun::recorded(&header).expect("a command");
        assert_eq!(rerun.variables, [("MALLOC_CONF".into(), "thp:always".into())]);
        assert_eq!(rerun.shown(), "cd / && MALLOC_CONF=thp:always prog 'a b'");
        let others = rerun.other_variables(&header.environment);
        assert_eq!(others, ["LD_PRELOAD unset, and not /tmp/x.so", "NODE_OPTIONS unset, and not '-r x'"]);
        assert!(Rerun::given(&["prog".into()]).variables.is_empty());
    }

    #[test]
    fn a_run_says_what_it_inherits_otherwise() {
        let here = inherited_here();
        assert_eq!(other_inheritance(&here), [""; 0]);
        assert_eq!(other_inheritance(&Inherited::default()), [""; 0], "an old recording does not say");
        let mut other = here.clone();
        other.limits.iter_mut().for_each(|limits| limits.stack_bytes = Some(123 << 20));
        other.personality ^= 1;
        let [stack, personality] = &other_inheritance(&other)[..] else { panic!("two differences") };
        assert!(stack.starts_with("the stack limit is ") && stack.ends_with(", and not 123.0 MiB"), "{stack}");
        assert!(personality.starts_with("the personality is 0x"), "{personality}");
    }

    #[test]
    fn a_command_that_cannot_be_run_has_a_reason() {
        let reason = |header: Header| Rerun::recorded(&header).err().unwrap_or_default();
        let header = || Header { directory: Some("/".to_string()), ..Header::example(&["prog"]) };
        assert!(reason(Header { directory: Some("/no/such".into()), ..header() }).contains("no directory /no/such"));
        assert!(reason(Header { history: vec!["anonymise".into()], ..header() }).contains("anonymised"));
        assert!(reason(Header { command: Vec::new(), ..header() }).contains("no command"));
        assert!(reason(Header { input: Some("{}".into()), ..header() }).contains("understand the job"));
    }
}
