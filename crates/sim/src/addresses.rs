//! Which addresses the kernel gives to maps that ask for none: an input of a simulation, or a model of it.

use serde::Serialize;

/// Where the first map ends, where nothing else is known: below the libraries of a program, a page off any border.
pub const MODELLED_TOP: u64 = 0x7FFF_F7BF_F000;

/// Where addresses come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// A process with nothing of its own below `top`: each map takes the highest room there (R5).
    Modelled {
        /// Address behind the highest map, a multiple of the page.
        top: u64,
    },
    /// Those that a real kernel gave, in order, as a replay reports them.
    Given(Vec<u64>),
}

impl Default for Addresses {
    fn default() -> Addresses {
        Addresses::Modelled { top: MODELLED_TOP }
    }
}

/// Where the addresses of a simulation came from, and how many there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AddressLabel {
    /// What gave them.
    pub source: AddressSource,
    /// Maps that were made anywhere.
    pub maps: u64,
    /// Of them, those for which no address was given, so that the model was asked.
    pub not_given: u64,
}

/// See [`Addresses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressSource {
    /// The model.
    Modelled,
    /// A real kernel.
    Given,
}

/// Addresses as they are asked for.
#[derive(Debug)]
pub(crate) struct AddressProvider {
    addresses: Addresses,
    maps: u64,
    not_given: u64,
}

impl AddressProvider {
    pub(crate) fn new(addresses: Addresses) -> AddressProvider {
        AddressProvider { addresses, maps: 0, not_given: 0 }
    }

    /// The next address that was given, if there is one.
    pub(crate) fn given(&self) -> Option<u64> {
        match &self.addresses {
            Addresses::Modelled { .. } => None,
            Addresses::Given(addresses) => addresses.get(self.maps as usize).copied(),
        }
    }

    /// Address behind the highest map of the model.
    pub(crate) fn top(&self) -> u64 {
        match &self.addresses {
            Addresses::Modelled { top } => *top,
            Addresses::Given(addresses) => addresses.first().copied().unwrap_or(MODELLED_TOP),
        }
    }

    /// A map was made.
    pub(crate) fn mapped(&mut self) {
        self.not_given += u64::from(matches!(self.addresses, Addresses::Given(_)) && self.given().is_none());
        self.maps += 1;
    }

    pub(crate) fn label(&self) -> AddressLabel {
        let source = match self.addresses {
            Addresses::Modelled { .. } => AddressSource::Modelled,
            Addresses::Given(_) => AddressSource::Given,
        };
        AddressLabel { source, maps: self.maps, not_given: self.not_given }
    }
}
