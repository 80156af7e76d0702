//! Which of the executed programs are to have a log.

use std::path::Path;

use crate::Programs;
use crate::process_tree::Execution;

/// The kernel's name of a program has its first 15 bytes.
const NAME_BYTES: usize = 15;
/// The programs that start valgrind's tool in the same process. They have no log.
const LAUNCHERS: [&str; 2] = ["valgrind", "valgrind.bin"];
/// What the names of valgrind's tools contain, if they are not cut off.
const TOOL: &str = "-amd64";

/// Which programs are recorded, and how they are executed.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The selected programs.
    pub programs: Programs,
    /// Whether they run in valgrind, which executes its own programs instead.
    pub in_valgrind: bool,
}

impl Selection {
    /// Whether an execution is to have a log. `root` is the process that was started.
    pub fn is_wanted(&self, execution: &Execution, root: Option<u32>) -> bool {
        let is_launcher = self.in_valgrind && LAUNCHERS.contains(&execution.name.as_str());
        !is_launcher && self.has_process(execution.pid, root) && self.has_name(&execution.name)
    }

    /// Whether a process that still runs is to be recorded. `command` is its command line.
    pub fn is_running_wanted(&self, pid: u32, root: Option<u32>, command: &[String]) -> bool {
        let file = command.first().map(Path::new).and_then(Path::file_name);
        let name = file.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.has_process(pid, root) && self.has_name(&name)
    }

    /// The name of an executed program for messages.
    pub fn shown(&self, execution: &Execution) -> String {
        match self.in_valgrind && execution.name.contains(TOOL) {
            true => "a program in valgrind".to_string(),
            false => execution.name.clone(),
        }
    }

    fn has_process(&self, pid: u32, root: Option<u32>) -> bool {
        !self.programs.no_children || Some(pid) == root
    }

    /// Whether programs of this name are selected. In valgrind the kernel does not know the names.
    fn has_name(&self, name: &str) -> bool {
        let cut = |name: &str| name.as_bytes().get(..NAME_BYTES).unwrap_or(name.as_bytes()).to_vec();
        let only = &self.programs.only;
        only.is_empty() || self.in_valgrind || only.iter().any(|selected| cut(selected) == cut(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_the_kernel_cuts_them() {
        let only = vec!["a-name-of-20-letters".to_string(), "cc1".to_string()];
        let selection = Selection { programs: Programs { only, no_children: false }, in_valgrind: false };
        let names = ["a-name-of-20-le", "cc1", "cc1plus", "cc", ""].map(|name| selection.has_name(name));
        assert_eq!(names, [true, true, false, false, false]);
        assert!(Selection::default().has_name("anything"));
    }

    #[test]
    fn launchers_of_valgrind_have_no_log() {
        let selection = Selection { in_valgrind: true, ..Selection::default() };
        let execution = |name: &str| Execution::new(1, 7, name);
        assert!(!selection.is_wanted(&execution("valgrind.bin"), Some(7)));
        assert!(selection.is_wanted(&execution("hktouch-amd64-l"), Some(7)));
        assert_eq!(selection.shown(&execution("hktouch-amd64-l")), "a program in valgrind");
        assert_eq!(selection.shown(&execution("passwd")), "passwd");
        let first = Selection { programs: Programs { no_children: true, only: Vec::new() }, in_valgrind: false };
        assert!(first.is_wanted(&execution("valgrind"), Some(7)) && !first.is_wanted(&execution("sh"), Some(8)));
    }
}
