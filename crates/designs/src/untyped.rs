//! Any design, with its settings as JSON: commands handle designs whose types they do not know.

use hksim_engine::{AddressSpace, Design, Errno, INVALID, Request};
use serde_json::Value;

/// The design `D`, with its settings as a JSON object.
pub struct Untyped<D>(D);

impl<D: Design> Design for Untyped<D> {
    const NAME: &'static str = D::NAME;
    type Settings = Value;

    fn start(settings: &Value, memory: &mut impl AddressSpace) -> Result<Untyped<D>, Errno> {
        let settings = serde_json::from_value(settings.clone()).map_err(|_| INVALID)?;
        D::start(&settings, memory).map(Untyped)
    }

    fn allocate(&mut self, memory: &mut impl AddressSpace, thread: u32, request: Request) -> Option<u64> {
        self.0.allocate(memory, thread, request)
    }

    fn free(&mut self, memory: &mut impl AddressSpace, thread: u32, block: u64) {
        self.0.free(memory, thread, block);
    }

    fn usable_bytes(&mut self, memory: &mut impl AddressSpace, block: u64) -> u64 {
        self.0.usable_bytes(memory, block)
    }

    fn resize(&mut self, memory: &mut impl AddressSpace, thread: u32, block: u64, bytes: u64) -> Option<u64> {
        self.0.resize(memory, thread, block, bytes)
    }

    fn thread_exit(&mut self, memory: &mut impl AddressSpace, thread: u32) {
        self.0.thread_exit(memory, thread);
    }
}
