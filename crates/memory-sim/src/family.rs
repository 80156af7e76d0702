//! The recordings that are simulated together. Forked processes share pages, so the cost of one process depends on its
//! relatives. Which pages processes shared before a recording began is taken from their addresses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hksim_linux_mm::Access;
use hksim_memory_trace::{Beginning, Footer, Header, MemoryTraceError, Op, PageAtStart, SiteTable, Sites};
use thiserror::Error;

use crate::at_start::SharedHuge;
use crate::forks::{Children, Forks};
use crate::member::Member;
use crate::steps::{Action, Step, Translator};

/// Why recordings cannot be simulated.
#[derive(Debug, Error)]
pub enum FamilyError {
    /// A file cannot be read.
    #[error(transparent)]
    Trace(#[from] MemoryTraceError),
    /// The parent's recording is missing.
    #[error(
        "{}: the process began as a copy of process {parent_pid}, whose recording is not next to it; keep the files of a \
         recording together",
        path.display()
    )]
    NoParent {
        /// The file.
        path: PathBuf,
        /// The parent.
        parent_pid: u32,
    },
}

/// A recording with those of its relatives. Member 0 is the recording that was asked for.
pub struct Family {
    members: Vec<Member>,
    /// The places of members in the order in which they act at equal times: it does not depend on which one was asked for.
    ranks: Vec<usize>,
    /// When members act next, with their ranks. Children before their forks, and members that have ended, are not in it.
    queue: BinaryHeap<Reverse<(u64, usize, usize)>>,
    children: Children,
    forks: Forks,
    /// Forks so far whose child has no recording here.
    children_missing: u64,
    /// Recordings of programs that other processes of the same run executed.
    programs_apart: u64,
    /// The call sites of all members. A forked child begins with mappings of its parent, and with their sites.
    sites: SiteTable,
    /// Times at which the process that was asked for is sampled.
    moments: Arc<[u64]>,
}

/// Steps of a batch.
const BATCH_STEPS: usize = 1 << 16;

impl Family {
    /// Samples the process that was asked for at these moments, which must be in ascending order: times since the start of the
    /// recording.
    pub fn with_moments(self, moments: Arc<[u64]>) -> Self {
        Self { moments, ..self }
    }

    /// The moments at which the process that was asked for is sampled.
    pub(crate) fn moments(&self) -> &Arc<[u64]> {
        &self.moments
    }

    /// Opens a recording, and its relatives in the same run: files in its directory, in its directory of children
    /// (`app.hkm.processes`), or in the parent directory. Relatives are those by fork, and if the recording began in the
    /// middle of a running program, all of the program's processes that were there.
    ///
    /// # Errors
    /// A file is damaged, or the recording of a parent is missing.
    pub fn open(path: &Path) -> Result<Self, FamilyError> {
        let mut members = vec![Member::open(path)?];
        let mut others: BTreeMap<(u32, u32), Member> = BTreeMap::new();
        for other in candidates(path) {
            // A file that cannot be read belongs to nobody.
            let Ok(other) = Member::open(&other) else { continue };
            let (own, theirs) = (members[0].header(), other.header());
            if theirs.run_id != own.run_id || ids(theirs) == ids(own) {
                continue;
            }
            // Of several copies of a recording, the one without changes is meant.
            let is_better = |known: &Member| theirs.history.len() < known.header().history.len();
            if others.get(&ids(theirs)).is_none_or(is_better) {
                others.insert(ids(theirs), other);
            }
        }
        let mut found = 0;
        while let Some(member) = members.get(found) {
            let (related, rest): (BTreeMap<_, _>, _) =
                others.into_iter().partition(|(_, other)| are_related(other.header(), member.header()));
            others = rest;
            members.extend(related.into_values());
            found += 1;
        }
        let own_pid = members[0].header().pid;
        let is_apart = |other: &&Member| other.header().beginning == Beginning::Exec && other.header().pid != own_pid;
        let programs_apart = others.values().filter(is_apart).count() as u64;
        let mut family = Self {
            members,
            ranks: Vec::new(),
            queue: BinaryHeap::new(),
            children: Children::default(),
            forks: Forks::default(),
            children_missing: 0,
            programs_apart,
            sites: SiteTable::default(),
            moments: Arc::default(),
        };
        family.link()?;
        Ok(family)
    }

    /// Finds each member's parent.
    fn link(&mut self) -> Result<(), FamilyError> {
        let shared_huge = Arc::new(self.shared_huge_at_start()?);
        let places: HashMap<(u32, u32), usize> =
            self.members.iter().enumerate().map(|(index, member)| (ids(member.header()), index)).collect();
        let mut parents = vec![None; self.members.len()];
        for (index, found) in parents.iter_mut().enumerate() {
            let member = &mut self.members[index];
            let Beginning::Fork { parent_pid, parent_image } = member.header().beginning else {
                let translator = Translator::at_exec(&member.header().inherited).among(Arc::clone(&shared_huge));
                member.translator = Some(translator);
                continue;
            };
            let missing = || FamilyError::NoParent { path: member.path().to_path_buf(), parent_pid };
            let parent = *places.get(&(parent_pid, parent_image)).ok_or_else(missing)?;
            self.children.add(parent, ids(member.header()), index);
            *found = Some(parent);
        }
        self.ranks = self.ranked(&parents);
        for index in 0..self.members.len() {
            if self.begins_empty(index) {
                self.queue(index)?;
            }
        }
        Ok(())
    }

    /// The huge pages that members shared when the recording began. Those of a process without relatives do not matter.
    fn shared_huge_at_start(&mut self) -> Result<SharedHuge, FamilyError> {
        let mut found = SharedHuge::default();
        let were_there = |member: &&mut Member| member.header().beginning.is_attached();
        if self.members.iter_mut().filter(were_there).count() < 2 {
            return Ok(found);
        }
        for member in self.members.iter_mut().filter(were_there) {
            for event in member.start()? {
                match &event.op {
                    Op::PagesAtStart(start) if start.state == PageAtStart::HugeShared => {
                        found.insert(start.pages.clone(), ());
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// The places of the members in an order with parents before their children, given each one's parent.
    fn ranked(&self, parents: &[Option<usize>]) -> Vec<usize> {
        // Damaged headers can name each other as parents.
        let depth =
            |index: usize| std::iter::successors(parents[index], |&parent| parents[parent]).take(parents.len()).count();
        let mut order: Vec<usize> = (0..parents.len()).collect();
        order.sort_by_key(|&index| (depth(index), ids(self.members[index].header())));
        let mut ranks = vec![0; order.len()];
        order.into_iter().enumerate().for_each(|(rank, index)| ranks[index] = rank);
        ranks
    }

    /// Number of recordings.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The header of the recording that was asked for.
    pub fn header(&self) -> &Header {
        self.members[0].header()
    }

    /// Paths and headers of all recordings.
    pub fn recordings(&self) -> impl Iterator<Item = (&Path, &Header)> {
        self.members.iter().map(|member| (member.path(), member.header()))
    }

    /// The footer of the recording that was asked for, after its end. `None` if the file ends early.
    pub(crate) fn footer(&self) -> Option<&Footer> {
        self.members[0].footer()
    }

    /// Forks so far whose child has no recording here. The pages that such a child copies are not predicted.
    pub(crate) fn children_missing(&self) -> u64 {
        self.children_missing
    }

    /// Recordings of programs that other processes of the same run executed. They are in the same control group.
    pub(crate) fn programs_apart(&self) -> u64 {
        self.programs_apart
    }

    /// The call sites of the events so far.
    pub(crate) fn sites(&self) -> &Sites {
        self.sites.sites()
    }

    pub(crate) fn children(&self) -> &Children {
        &self.children
    }

    /// Whether a member began by exec, or in the middle.
    pub(crate) fn begins_empty(&self, member: usize) -> bool {
        !matches!(self.members[member].header().beginning, Beginning::Fork { .. })
    }

    /// The translator of the recording that was asked for.
    pub(crate) fn translator(&self) -> Translator {
        self.members[0].translator.clone().unwrap_or_default()
    }

    /// Replaces `batch` with the next steps of all members, in order of time. False at the end.
    pub(crate) fn next_batch(&mut self, batch: &mut Vec<(usize, Step)>) -> Result<bool, FamilyError> {
        batch.clear();
        let mut steps = Vec::new();
        while batch.len() < BATCH_STEPS {
            // Of equal times, the parent's event is first.
            let Some(Reverse((_, _, member))) = self.queue.pop() else { break };
            let Some(mut event) = self.members[member].next_event() else {
                let time_ns = self.members[member].end();
                batch.push((member, Step { time_ns, action: Action::End, populates: Vec::new() }));
                continue;
            };
            if let Some(reader) = self.members[member].reader() {
                event.site = self.sites.import(reader.sites(), event.site);
            }
            if let Op::Fork { child_pid } = event.op {
                self.fork(member, child_pid)?;
            }
            self.members[member].translate(&event, &mut steps);
            batch.extend(steps.drain(..).map(|step| (member, step)));
            self.queue(member)?;
        }
        Ok(!batch.is_empty())
    }

    /// How often each page of modelled memory faulted in the recording that was asked for, by reads and by writes.
    ///
    /// # Errors
    /// A recording cannot be read.
    pub fn touches(mut self) -> Result<BTreeMap<u64, [u64; 2]>, FamilyError> {
        let (mut batch, mut touches) = (Vec::new(), BTreeMap::new());
        while self.next_batch(&mut batch)? {
            for (member, step) in &batch {
                if let (0, Action::Touch { page, access, .. }) = (*member, &step.action) {
                    let counts: &mut [u64; 2] = touches.entry(*page).or_default();
                    counts[usize::from(*access != Access::Read)] += 1;
                }
            }
        }
        Ok(touches)
    }

    /// Puts a member where its next event or its end is due.
    fn queue(&mut self, index: usize) -> Result<(), FamilyError> {
        let due = self.members[index].due()?;
        self.queue.extend(due.map(|time_ns| Reverse((time_ns, self.ranks[index], index))));
        Ok(())
    }

    /// A child's events wait for its fork.
    fn fork(&mut self, parent: usize, child_pid: u32) -> Result<(), FamilyError> {
        let Some(child) = self.forks.begin(&self.children, parent, child_pid) else {
            self.children_missing += 1;
            return Ok(());
        };
        self.members[child].translator = self.members[parent].translator.as_ref().map(Translator::forked);
        self.queue(child)
    }
}

/// What a recording is of, within its run: a process and the number of its address space.
fn ids(header: &Header) -> (u32, u32) {
    (header.pid, header.image)
}

/// Whether `child` was forked by `parent`.
fn is_child(child: &Header, parent: &Header) -> bool {
    child.beginning == Beginning::Fork { parent_pid: parent.pid, parent_image: parent.image }
}

/// Whether one forked the other, or both were there when the recording of a running program began.
fn are_related(one: &Header, other: &Header) -> bool {
    let were_there = one.beginning.is_attached() && other.beginning.is_attached();
    were_there || is_child(one, other) || is_child(other, one)
}

/// Recordings that may belong to the same run.
pub(crate) fn candidates(path: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    // The parent of a bare file name is empty.
    let parent_of = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let directory = parent_of(path);
    folders.extend(hksim_recording_files::folders(path));
    if hksim_recording_files::is_folder(&directory) {
        folders.push(parent_of(&directory));
        folders.push(directory);
    }
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.is_file() && file.extension() == path.extension());
    files.sort();
    files
}
