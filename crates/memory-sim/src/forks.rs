//! Which recording a fork begins. The kernel gives the id of an ended process to a later one, so a parent can have several
//! children of one id: the first fork begins the first of them.

use std::collections::{BTreeMap, HashMap};

/// The members of a family that began by fork.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children {
    /// By the parent's number and the child's process id: the members by image.
    members: HashMap<(usize, u32), BTreeMap<u32, usize>>,
}

impl Children {
    /// Adds the child of a parent by its process id and image.
    pub fn add(&mut self, parent: usize, (pid, image): (u32, u32), member: usize) {
        self.members.entry((parent, pid)).or_default().insert(image, member);
    }

    fn nth(&self, parent: usize, child_pid: u32, nth: usize) -> Option<usize> {
        self.members.get(&(parent, child_pid))?.values().nth(nth).copied()
    }
}

/// Forks so far, by the parent's number and the child's process id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forks(HashMap<(usize, u32), usize>);

impl Forks {
    /// A parent forks. Returns the child's member; `None` if it has no recording.
    pub fn begin(&mut self, children: &Children, parent: usize, child_pid: u32) -> Option<usize> {
        let forks = self.0.entry((parent, child_pid)).or_default();
        *forks += 1;
        children.nth(parent, child_pid, *forks - 1)
    }

    /// The member of the last child of this id.
    pub fn last(&self, children: &Children, parent: usize, child_pid: u32) -> Option<usize> {
        let forks = self.0.get(&(parent, child_pid))?;
        children.nth(parent, child_pid, *forks - 1)
    }
}
