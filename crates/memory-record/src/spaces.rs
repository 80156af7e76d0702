//! Processes, threads and address spaces of a recording.

use std::collections::{BTreeSet, HashMap};

use hksim_memory_trace::ThpDisabled;

use crate::code_map::CodeMap;

/// Number of an address space, in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(pub usize);

/// The parent of a forked address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkedFrom {
    pub parent: SpaceId,
    /// The child's process id, which names the fork in the parent's recording.
    pub child_pid: u32,
}

/// One address space.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// Number of the address space within its process.
    pub image: u32,
    pub forked_from: Option<ForkedFrom>,
    /// Number of processes that use it: more than one after vfork.
    pub users: u32,
    /// Whether the kernel has reported the main thread's stack.
    pub has_stack: bool,
    /// End of the heap that brk moves, in bytes; `None` before the first call.
    pub brk: Option<u64>,
    /// Segments attached by shmat: start and length in bytes.
    pub attached: HashMap<u64, u64>,
    /// Whether the process can get huge pages.
    pub thp: ThpState,
    /// The mapped files, if call stacks are recorded.
    pub code: CodeMap,
}

/// Whether a process can get huge pages. Fork and exec inherit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThpState {
    /// As without the recorder.
    pub disable: ThpDisabled,
    /// Whether a recorded program chose it, so that it holds in place of what the recorder does.
    pub is_chosen: bool,
}

/// A process.
#[derive(Clone, Copy, Debug)]
struct Process {
    space: Option<SpaceId>,
    threads: u32,
}

/// What the end of a process or an exec ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedSpace {
    pub space: SpaceId,
    pub forked_from: Option<ForkedFrom>,
}

/// All processes and address spaces.
#[derive(Debug)]
pub struct Spaces {
    spaces: Vec<Space>,
    in_use: BTreeSet<SpaceId>,
    processes: HashMap<u32, Process>,
    /// Address spaces of each process id so far. The kernel gives ids of ended processes to new ones, whose address spaces
    /// then have the next numbers.
    images: HashMap<u32, u32>,
    /// What the started process inherited.
    thp_at_start: ThpDisabled,
}

impl Spaces {
    /// The started process, which has not executed its program yet.
    pub fn new(root_pid: u32, thp_at_start: ThpDisabled) -> Self {
        let root = Process { space: None, threads: 1 };
        Self { processes: HashMap::from([(root_pid, root)]), thp_at_start, ..Self::none() }
    }

    /// No process yet.
    pub fn none() -> Self {
        let (spaces, in_use, thp_at_start) = (Vec::new(), BTreeSet::new(), ThpDisabled::Off);
        Self { spaces, in_use, processes: HashMap::new(), images: HashMap::new(), thp_at_start }
    }

    /// A process was attached to: it has this address space, its first one.
    pub fn attached(&mut self, pid: u32, threads: u32, space: Space) -> SpaceId {
        let image = self.next_image(pid);
        let space = self.add(Space { image, ..space });
        self.processes.insert(pid, Process { space: Some(space), threads });
        space
    }

    /// The address space of a process. `None` before the first program is executed, and for unknown processes.
    pub fn of(&self, pid: u32) -> Option<SpaceId> {
        self.processes.get(&pid)?.space
    }

    pub fn get(&mut self, id: SpaceId) -> &mut Space {
        &mut self.spaces[id.0]
    }

    /// A thread was created.
    pub fn thread_began(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.threads += 1;
        }
    }

    /// A process was created that shares the address space of its parent (vfork).
    pub fn shared(&mut self, parent_pid: u32, child_pid: u32) {
        let space = self.of(parent_pid);
        if let Some(space) = space {
            self.get(space).users += 1;
        }
        self.processes.insert(child_pid, Process { space, threads: 1 });
    }

    /// A process was created with a copy of its parent's address space. Returns the parent's and the new one.
    pub fn forked(&mut self, parent_pid: u32, child_pid: u32) -> Option<(SpaceId, SpaceId)> {
        let parent = self.of(parent_pid)?;
        let copied = self.get(parent).clone();
        let forked_from = Some(ForkedFrom { parent, child_pid });
        let image = self.next_image(child_pid);
        let space = self.add(Space { image, forked_from, users: 1, ..copied });
        self.processes.insert(child_pid, Process { space: Some(space), threads: 1 });
        Some((parent, space))
    }

    /// A process executed a program. Returns the new address space, and the old one if nobody else uses it.
    pub fn executed(&mut self, pid: u32) -> Option<(SpaceId, Option<EndedSpace>)> {
        let process = *self.processes.get(&pid)?;
        let at_start = ThpState { disable: self.thp_at_start, is_chosen: false };
        let thp = process.space.map_or(at_start, |space| self.get(space).thp);
        let ended = process.space.and_then(|space| self.leave(space));
        let image = self.next_image(pid);
        let (forked_from, has_stack, brk, attached, code) = (None, false, None, HashMap::new(), CodeMap::default());
        let space = self.add(Space { image, forked_from, users: 1, has_stack, brk, attached, thp, code });
        // The other threads of the process ended, and report it later or before.
        self.processes.insert(pid, Process { space: Some(space), ..process });
        Some((space, ended))
    }

    /// A thread ended. Returns the address space if nobody uses it any more.
    pub fn thread_ended(&mut self, pid: u32) -> Option<EndedSpace> {
        let process = self.processes.get_mut(&pid)?;
        process.threads = process.threads.saturating_sub(1);
        if process.threads > 0 {
            return None;
        }
        let space = self.processes.remove(&pid)?.space?;
        self.leave(space)
    }

    /// Address spaces that are still in use.
    pub fn in_use(&self) -> Vec<SpaceId> {
        self.in_use.iter().copied().collect()
    }

    fn next_image(&mut self, pid: u32) -> u32 {
        let next = self.images.entry(pid).or_default();
        *next += 1;
        *next - 1
    }

    fn add(&mut self, space: Space) -> SpaceId {
        let id = SpaceId(self.spaces.len());
        self.spaces.push(space);
        self.in_use.insert(id);
        id
    }

    fn leave(&mut self, id: SpaceId) -> Option<EndedSpace> {
        let space = self.get(id);
        space.users -= 1;
        let (users, forked_from) = (space.users, space.forked_from);
        (users == 0 && self.in_use.remove(&id)).then_some(EndedSpace { space: id, forked_from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_vfork_exec_and_exit() {
        let mut spaces = Spaces::new(10, ThpDisabled::All);
        assert_eq!(spaces.of(10), None);
        let (shell, ended) = spaces.executed(10).expect("the root");
        assert_eq!((shell, ended), (SpaceId(0), None));
        // A thread, a vforked child that executes, a forked child that exits.
        spaces.thread_began(10);
        spaces.shared(10, 11);
        assert_eq!(spaces.of(11), Some(shell));
        let (program, ended) = spaces.executed(11).expect("a child");
        assert_eq!((program, ended), (SpaceId(1), None), "the shell still uses its space");
        let (parent, copy) = spaces.forked(10, 12).expect("a fork");
        assert_eq!((parent, copy), (shell, SpaceId(2)));
        let forked_from = Some(ForkedFrom { parent: shell, child_pid: 12 });
        assert_eq!(spaces.thread_ended(12), Some(EndedSpace { space: copy, forked_from }));
        assert_eq!(spaces.thread_ended(10), None, "one of two threads");
        assert_eq!(spaces.thread_ended(10), Some(EndedSpace { space: shell, forked_from: None }));
        assert_eq!(spaces.in_use(), [program]);
    }

    #[test]
    fn a_second_exec_is_a_second_image() {
        let mut spaces = Spaces::new(10, ThpDisabled::All);
        spaces.executed(10).expect("the root");
        let (second, ended) = spaces.executed(10).expect("the root");
        assert_eq!(ended, Some(EndedSpace { space: SpaceId(0), forked_from: None }));
        assert_eq!(spaces.get(second).image, 1);
    }

    #[test]
    fn a_process_with_the_id_of_an_earlier_one_has_other_images() {
        let mut spaces = Spaces::new(10, ThpDisabled::All);
        spaces.executed(10).expect("the root");
        let mut images = Vec::new();
        for _ in 0..2 {
            let (_, forked) = spaces.forked(10, 11).expect("a fork");
            let (executed, _) = spaces.executed(11).expect("the child");
            images.extend([forked, executed].map(|space| spaces.get(space).image));
            assert!(spaces.thread_ended(11).is_some());
        }
        assert_eq!(images, [0, 1, 2, 3]);
    }

    #[test]
    fn fork_vfork_and_exec_inherit_whether_huge_pages_are_on() {
        let mut spaces = Spaces::new(10, ThpDisabled::All);
        let (first, _) = spaces.executed(10).expect("the root");
        assert_eq!(spaces.get(first).thp, ThpState { disable: ThpDisabled::All, is_chosen: false });
        let chosen = ThpState { disable: ThpDisabled::ExceptAdvised, is_chosen: true };
        let (_, copy) = spaces.forked(10, 11).expect("a fork");
        spaces.get(copy).thp = chosen;
        let (executed, _) = spaces.executed(11).expect("the child");
        assert_eq!(spaces.get(executed).thp, chosen);
        assert_eq!(spaces.get(first).thp.disable, ThpDisabled::All, "the parent keeps its own");
        // A vforked child has its parent's address space, and with it the setting.
        spaces.shared(10, 12);
        let shared = spaces.of(12).expect("a space");
        spaces.get(shared).thp = chosen;
        assert_eq!(spaces.get(first).thp, chosen);
    }
}
