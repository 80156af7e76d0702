//! Addresses that the kernel returns for mmaps without a hint: an input of a simulation, or modelled.

use serde::{Deserialize, Serialize};

/// Default end address of the first mapping. It is below a program's libraries, and not aligned to 2 MiB.
pub const MODELLED_TOP: u64 = 0x7FFF_F7BF_F000;

/// The source of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// The model, for a process without other mappings below `top`: each mmap takes the highest gap that is large
    /// enough (R5).
    Modelled {
        /// End address of the highest mapping, a multiple of the page size.
        top: u64,
    },
    /// Addresses returned by a real kernel, in order, as a replay reports them.
    Given(Vec<u64>),
}

impl Default for Addresses {
    fn default() -> Addresses {
        Addresses::Modelled { top: MODELLED_TOP }
    }
}

/// The source of a simulation's addresses, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressLabel {
    /// The source.
    pub source: AddressSource,
    /// Number of mmaps without a hint.
    pub mmaps: u64,
    /// Number of these mmaps for which no address was given, so that the model was used.
    pub modelled_mmaps: u64,
}

/// See [`Addresses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressSource {
    /// The model.
    Modelled,
    /// A real kernel.
    Given,
}

/// Returns addresses one by one.
#[derive(Clone, Debug)]
pub(crate) struct AddressProvider {
    addresses: Addresses,
    maps: u64,
    not_given: u64,
}

impl AddressProvider {
    pub(crate) fn new(addresses: Addresses) -> AddressProvider {
        AddressProvider { addresses, maps: 0, not_given: 0 }
    }

    /// The next of the given addresses, if there is one.
    pub(crate) fn given(&self) -> Option<u64> {
        match &self.addresses {
            Addresses::Modelled { .. } => None,
            Addresses::Given(addresses) => addresses.get(self.maps as usize).copied(),
        }
    }

    /// End address of the model's highest mapping.
    pub(crate) fn top(&self) -> u64 {
        match &self.addresses {
            Addresses::Modelled { top } => *top,
            Addresses::Given(addresses) => addresses.first().copied().unwrap_or(MODELLED_TOP),
        }
    }

    /// Records a new mapping.
    pub(crate) fn mapped(&mut self) {
        self.not_given += u64::from(matches!(self.addresses, Addresses::Given(_)) && self.given().is_none());
        self.maps += 1;
    }

    pub(crate) fn label(&self) -> AddressLabel {
        let source = match self.addresses {
            Addresses::Modelled { .. } => AddressSource::Modelled,
            Addresses::Given(_) => AddressSource::Given,
        };
        AddressLabel { source, mmaps: self.maps, modelled_mmaps: self.not_given }
    }
}
