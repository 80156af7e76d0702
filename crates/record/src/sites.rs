//! Call sites of an event log. Each stack is read at its first use, and frames and modules are numbered in that order.

use std::collections::HashMap;
use std::sync::Arc;

use hksim_trace::event::SiteId;
use hksim_trace::sites::{Frame, Module, SiteTable, Sites};

use crate::error::RecordError;
use crate::log_reader::LogReader;
use crate::stacks::{BUILD_ID_BYTES, DEPTH_MAX, MODULE_PATH_BYTES, TAG_MODULE, TAG_STACK, head_parts, stack_words};

/// The call sites of a trace. Ids are assigned at first use, so that equal runs give equal traces.
pub struct SiteReader {
    log: Arc<LogReader>,
    table: SiteTable,
    /// Site of each known place.
    known: HashMap<u32, SiteId>,
    /// Index and load bias of the module at each known place.
    places: HashMap<u32, (u32, u64)>,
    /// The most recent place and its site, because loops look up the same place repeatedly.
    last: (SiteId, SiteId),
}

impl SiteReader {
    /// A reader without known sites.
    pub fn new(log: Arc<LogReader>) -> Self {
        Self {
            log,
            table: SiteTable::default(),
            known: HashMap::new(),
            places: HashMap::new(),
            last: (SiteId::UNKNOWN, SiteId::UNKNOWN),
        }
    }

    /// The trace's id for the call site at a place in the log.
    ///
    /// # Errors
    /// The log cannot be read, or has no stack there.
    #[inline]
    pub fn site_at(&mut self, place: SiteId) -> Result<SiteId, RecordError> {
        if place == SiteId::UNKNOWN {
            return Ok(place);
        }
        if place != self.last.0 {
            self.last = (place, self.look_up(place.0)?);
        }
        Ok(self.last.1)
    }

    fn look_up(&mut self, place: u32) -> Result<SiteId, RecordError> {
        if let Some(&site) = self.known.get(&place) {
            return Ok(site);
        }
        let stack = self.read_stack(place)?;
        let site = self.table.stack(stack.into());
        self.known.insert(place, site);
        Ok(site)
    }

    /// All sites found.
    pub fn finish(self) -> Sites {
        self.table.into_sites()
    }

    fn read_stack(&mut self, place: u32) -> Result<Vec<u32>, RecordError> {
        let depth = self.read_head(place, TAG_STACK)?.0;
        if depth > DEPTH_MAX {
            return Err(self.log.damaged_place(place));
        }
        let mut words = vec![0; stack_words(depth) - 1];
        self.log.read_place(place, 1, &mut words)?;
        let (addresses, places) = words.split_at(depth);
        let place_of = |at: usize| (places[at / 2] >> (32 * (at % 2))) as u32;
        addresses.iter().enumerate().map(|(at, &address)| self.frame(address, place_of(at))).collect()
    }

    /// The two numbers in the first word at a place.
    fn read_head(&self, place: u32, tag: u8) -> Result<(usize, usize), RecordError> {
        let mut head = [0];
        self.log.read_place(place, 0, &mut head)?;
        head_parts(head[0], tag).ok_or_else(|| self.log.damaged_place(place))
    }

    /// The index of a frame.
    fn frame(&mut self, address: u64, module: u32) -> Result<u32, RecordError> {
        let (module, address) = match module {
            0 => (None, address),
            place => {
                let (module, bias) = self.module(place)?;
                (Some(module), address.wrapping_sub(bias))
            }
        };
        Ok(self.table.frame(Frame { module, address, function: None, source: None }))
    }

    /// The index and load bias of the module at a place.
    fn module(&mut self, place: u32) -> Result<(u32, u64), RecordError> {
        if let Some(&known) = self.places.get(&place) {
            return Ok(known);
        }
        let (id_bytes, path_bytes) = self.read_head(place, TAG_MODULE)?;
        if id_bytes > BUILD_ID_BYTES || path_bytes > MODULE_PATH_BYTES {
            return Err(self.log.damaged_place(place));
        }
        let id_words = id_bytes.div_ceil(8);
        let mut words = vec![0; 1 + id_words + path_bytes.div_ceil(8)];
        self.log.read_place(place, 1, &mut words)?;
        let bias = words[0];
        let bytes: Vec<u8> = words[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
        let (id, path) = bytes.split_at(id_words * 8);
        let path = String::from_utf8_lossy(&path[..path_bytes]).into();
        let index = self.table.module(&Module::new(path, &id[..id_bytes]));
        self.places.insert(place, (index, bias));
        Ok((index, bias))
    }
}
