//! Simulates all settings in one pass over a recording.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use hksim_memory_trace::{Footer, Header, Sites};

use crate::ended::Ended;
use crate::family::{Family, FamilyError};
use crate::family_total::FamilySums;
use crate::forks::{Children, Forks};
use crate::limit::Watch;
use crate::regions::{MappedOutside, Outside, Regions};
use crate::report::Prediction;
use crate::setting::Setting;
use crate::space::Space;
use crate::steps::{Action, MemoryAtStart, Step};
use crate::unseen_writes::{AfterFree, marked_pages};

/// How much a simulation collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Figures only.
    Figures,
    /// Also the state of each page at the end; once khugepaged has settled, if the kernel's configuration asks for that.
    Pages,
}

/// The result for one recording.
#[derive(Clone, Debug)]
pub struct MemorySimulation {
    /// The recording's header.
    pub header: Header,
    /// Its footer; `None` if the file ends early.
    pub footer: Option<Footer>,
    /// One prediction for each setting, in the same order.
    pub predictions: Vec<Prediction>,
    /// Recorded faults in modelled memory.
    pub traps_recorded: u64,
    /// Recorded faults in memory that is not modelled, by kind. They are the same under all settings.
    pub traps_outside: BTreeMap<Outside, u64>,
    /// What was mapped of that memory, by kind.
    pub mapped_outside: BTreeMap<Outside, MappedOutside>,
    /// Calls with an advice that the model does not know, by `MADV_*` number.
    pub advice_unmodelled: BTreeMap<u32, u64>,
    /// Events that the recorder lost.
    pub lost_events: u64,
    /// Forked children whose recordings are missing.
    pub children_missing: u64,
    /// Recordings of programs that other processes of the same run executed. Nothing of them is simulated.
    pub programs_apart: u64,
    /// Calls of prctl after which the recorded process could have huge pages, although the recorder had switched them
    /// off. Touches inside a huge page were not seen.
    pub thp_enabled: u64,
    /// Anonymous memory when the recording began in the middle of the process; `None` if it began by exec or fork.
    pub at_start: Option<MemoryAtStart>,
    /// The call sites; `None` if they were not recorded.
    pub sites: Option<Sites>,
    /// Pages that hold modelled memory at the end, in ascending order.
    pub modelled_end: Vec<Range<u64>>,
}

/// All address spaces of a family under one setting.
struct World<'a> {
    setting: &'a Setting,
    /// By member; `None` before the fork and after the end.
    spaces: Vec<Option<Space>>,
    /// Forked children without a recording, by parent and process id. They share pages until they end.
    unrecorded: HashMap<(usize, u32), Space>,
    forks: Forks,
    /// The space that was asked for, after its end.
    ended: Option<Ended>,
    detail: Detail,
    has_sites: bool,
    limit: Watch,
    /// Pages that `MADV_FREE` marked, where it matters whether they are written again.
    marked_pages: u64,
    is_collapsible: bool,
    /// `None` for a process without relatives.
    sums: Option<FamilySums>,
}

/// What the reading thread sends to the simulating threads.
enum Message {
    /// Steps with the members that they concern.
    Batch(Arc<Vec<(usize, Step)>>),
    /// The end of all recordings, with the regions of the recording that was asked for.
    End(Arc<Regions>),
}

/// Batches that may wait for a slow thread.
const BATCHES_WAITING: usize = 4;

/// Simulates the family under each setting, on several threads. The predictions are for the recording that was asked
/// for.
///
/// # Errors
/// A recording cannot be read.
pub fn simulate(family: Family, settings: &[Setting], detail: Detail) -> Result<MemorySimulation, FamilyError> {
    simulate_with(family, settings, detail, AfterFree::NoWrite)
}

/// The same with writes that the recording does not have.
pub(crate) fn simulate_with(
    mut family: Family,
    settings: &[Setting],
    detail: Detail,
    after_free: AfterFree,
) -> Result<MemorySimulation, FamilyError> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).clamp(1, settings.len().max(1));
    let outline = Outline::of(&family, after_free);
    let predictions = thread::scope(|scope| {
        // A kernel belongs to one thread, so each thread creates those that it simulates.
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let (sender, receiver) = mpsc::sync_channel(BATCHES_WAITING);
                let own: Vec<&Setting> = settings.iter().skip(worker).step_by(threads).collect();
                let outline = &outline;
                (sender, scope.spawn(move || work(&receiver, &own, outline, detail)))
            })
            .collect();
        let read = send_all(&mut family, workers.iter().map(|(sender, _)| sender));
        let parts: Vec<Vec<Prediction>> = workers
            .into_iter()
            .map(|(sender, worker)| {
                drop(sender);
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect();
        read.map(|()| interleave(parts))
    })?;
    let translator = family.translator();
    let (modelled_end, mapped_outside) =
        (translator.regions().modelled(), translator.regions().mapped_outside().clone());
    let tally = translator.tally;
    let has_sites = family.header().stack_depth.is_some();
    let at_start = family.header().beginning.is_attached().then_some(tally.at_start);
    Ok(MemorySimulation {
        sites: has_sites.then(|| family.sites().clone()),
        header: family.header().clone(),
        footer: family.footer().cloned(),
        predictions,
        traps_recorded: tally.traps_recorded,
        traps_outside: tally.traps_outside,
        mapped_outside,
        advice_unmodelled: tally.advice_unmodelled,
        lost_events: tally.lost_events,
        children_missing: family.children_missing(),
        programs_apart: family.programs_apart(),
        thp_enabled: tally.thp_enabled,
        at_start,
        modelled_end,
    })
}

/// Reads the family, and sends its steps to all threads.
fn send_all<'a>(
    family: &mut Family,
    senders: impl Iterator<Item = &'a SyncSender<Message>> + Clone,
) -> Result<(), FamilyError> {
    let mut batch = Vec::new();
    while family.next_batch(&mut batch)? {
        let shared = Arc::new(std::mem::take(&mut batch));
        // A thread that panicked receives no more; joining it reports the panic.
        senders.clone().for_each(|sender| drop(sender.send(Message::Batch(Arc::clone(&shared)))));
    }
    let regions = Arc::new(family.translator().regions().clone());
    senders.for_each(|sender| drop(sender.send(Message::End(Arc::clone(&regions)))));
    Ok(())
}

/// Simulates some settings. Without an end there are no predictions.
fn work(receiver: &Receiver<Message>, settings: &[&Setting], outline: &Outline, detail: Detail) -> Vec<Prediction> {
    let mut worlds: Vec<World<'_>> = settings.iter().map(|setting| World::new(setting, outline, detail)).collect();
    for message in receiver {
        match message {
            Message::Batch(steps) => {
                for world in &mut worlds {
                    steps.iter().for_each(|(member, step)| world.apply(*member, step, &outline.children));
                }
            }
            Message::End(regions) => return worlds.into_iter().filter_map(|world| world.finish(&regions)).collect(),
        }
    }
    Vec::new()
}

/// Restores the order of settings that were dealt out to the threads in turn.
fn interleave(parts: Vec<Vec<Prediction>>) -> Vec<Prediction> {
    let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(parts.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

/// What a world must know about its members before their first step.
struct Outline {
    /// Whether each member begins empty: by exec, or in the middle, before what it has is told.
    begins_empty: Vec<bool>,
    children: Children,
    /// Whether the recording that was asked for has call sites.
    has_sites: bool,
    addresses_random: bool,
    /// Times at which the process that was asked for is sampled.
    moments: Arc<[u64]>,
    after_free: AfterFree,
}

impl Outline {
    fn of(family: &Family, after_free: AfterFree) -> Self {
        let begins_empty = (0..family.members()).map(|member| family.begins_empty(member)).collect();
        let has_sites = family.header().stack_depth.is_some();
        let addresses_random = family.header().machine.addresses_random;
        let (children, moments) = (family.children().clone(), Arc::clone(family.moments()));
        Self { begins_empty, children, has_sites, addresses_random, moments, after_free }
    }
}

impl<'a> World<'a> {
    fn new(setting: &'a Setting, outline: &Outline, detail: Detail) -> Self {
        let (after_free, random) = (outline.after_free, outline.addresses_random);
        let mut spaces: Vec<Option<Space>> = Vec::new();
        for &is_empty in &outline.begins_empty {
            let relative = spaces.iter().flatten().next();
            let new = || match relative {
                Some(relative) => Space::beside(relative, setting, after_free, random),
                None => Space::new(setting, after_free, random),
            };
            let space = is_empty.then(new);
            spaces.push(space);
        }
        let own = spaces[0].take().map(|space| space.with_moments(Arc::clone(&outline.moments)));
        spaces[0] = own;
        Self {
            setting,
            spaces,
            unrecorded: HashMap::new(),
            forks: Forks::default(),
            ended: None,
            detail,
            has_sites: outline.has_sites,
            limit: Watch::default(),
            marked_pages: 0,
            is_collapsible: false,
            sums: (outline.begins_empty.len() > 1).then(FamilySums::default),
        }
    }

    fn apply(&mut self, member: usize, step: &Step, children: &Children) {
        match step.action {
            Action::Fork { child_pid } => self.fork(member, child_pid, children),
            Action::ChildEnded { child_pid } => {
                self.unrecorded.remove(&(member, child_pid));
                if let Some(child) = self.forks.last(children, member, child_pid) {
                    self.end(child, Some(step.time_ns));
                }
            }
            Action::End => self.end(member, Some(step.time_ns)),
            _ => {
                if let Some(space) = &mut self.spaces[member] {
                    self.marked_pages += marked_pages(self.setting, &space.kernel, &step.action);
                    space.apply(step);
                }
            }
        }
        if let Some(space) = &self.spaces[member] {
            self.limit.note(&space.kernel, member, step);
            self.sums.iter_mut().for_each(|sums| sums.note(member, &space.kernel));
        }
    }

    fn fork(&mut self, member: usize, child_pid: u32, children: &Children) {
        let child = self.forks.begin(children, member, child_pid);
        let Some(parent) = &mut self.spaces[member] else { return };
        match child {
            Some(child) => {
                let forked = parent.fork();
                self.sums.iter_mut().for_each(|sums| sums.note(child, &forked.kernel));
                self.spaces[child] = Some(forked);
            }
            None => {
                self.unrecorded.insert((member, child_pid), parent.fork());
            }
        }
    }

    /// An address space ends, at its last operation if the time is unknown. What its relatives do not share is free.
    fn end(&mut self, member: usize, time_ns: Option<u64>) {
        let Some(mut space) = self.spaces[member].take() else { return };
        self.sums.iter_mut().for_each(|sums| sums.end(member, &space.kernel));
        self.limit.end(&space.kernel);
        self.is_collapsible |= space.kernel.khugepaged_bound(u64::MAX).is_some();
        if member == 0 {
            space.end_at(time_ns);
            self.ended = Some(Ended::of(space, self.setting, self.detail, self.has_sites));
        }
    }

    fn finish(mut self, regions: &Regions) -> Option<Prediction> {
        (0..self.spaces.len()).for_each(|member| self.end(member, None));
        let memory_limit = self.limit.report(self.setting.kernel.memory_limit_bytes);
        let family = self.sums.as_ref().map(FamilySums::total);
        let Self { marked_pages, is_collapsible, .. } = self;
        let figures = self.ended?.prediction(regions);
        Some(Prediction { memory_limit, marked_pages, is_collapsible, family, ..figures })
    }
}
