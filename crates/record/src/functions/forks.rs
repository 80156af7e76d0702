//! Which processes share memory with an ancestor since a fork.

use std::collections::{BTreeMap, HashMap};

/// A child, and all its descendants, share memory with its parent until they have ended or executed another program.
#[derive(Debug, Default)]
pub struct Forks {
    /// For each process, the forks to which it belongs: parent and child of each.
    of: HashMap<u32, Vec<(u32, u32)>>,
    /// Number of processes of each fork.
    members: BTreeMap<(u32, u32), usize>,
}

impl Forks {
    /// A process forked a child.
    pub fn begin(&mut self, parent: u32, child: u32) {
        let mut forks = self.of.get(&parent).cloned().unwrap_or_default();
        forks.push((parent, child));
        for fork in &forks {
            *self.members.entry(*fork).or_default() += 1;
        }
        self.of.insert(child, forks);
    }

    /// A process ended, or executed another program. Returns the forks that are over: parent and child of each.
    pub fn end(&mut self, pid: u32) -> Vec<(u32, u32)> {
        let forks = self.of.remove(&pid).unwrap_or_default();
        let mut over = Vec::new();
        for fork in forks {
            let Some(members) = self.members.get_mut(&fork) else { continue };
            *members -= 1;
            if *members == 0 {
                self.members.remove(&fork);
                over.push(fork);
            }
        }
        over
    }

    /// The children whose memory a process still shares.
    pub fn open_of(&self, parent: u32) -> Vec<u32> {
        self.members.range((parent, 0)..=(parent, u32::MAX)).map(|(&(_, child), _)| child).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_until_all_descendants_have_left_it() {
        let mut forks = Forks::default();
        forks.begin(1, 2);
        forks.begin(2, 3);
        forks.begin(1, 4);
        assert_eq!((forks.open_of(1), forks.open_of(2)), (vec![2, 4], vec![3]));
        assert!(forks.end(2).is_empty(), "its child shares the memory of its parent");
        assert_eq!(forks.end(3), [(1, 2), (2, 3)]);
        assert_eq!(forks.end(4), [(1, 4)]);
        assert!(forks.open_of(1).is_empty() && forks.end(9).is_empty());
    }
}
