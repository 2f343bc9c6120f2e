//! Stores with a planted defect each.

use super::Defect;
use isolane_rpc::quota::settings::{Place, Settings};
use isolane_rpc::quota::store::etcd::EtcdStore;
use isolane_rpc::quota::store::{Loaded, Record, Store, StoreError};

/// etcd, with a defect.
pub(super) struct Broken {
    inner: EtcdStore,
    defect: Defect,
}

impl Broken {
    /// At the place in the settings, which must be an etcd.
    pub(super) fn new(settings: &Settings, defect: Defect) -> Self {
        let Place::Etcd { address, prefix } = &settings.place else {
            panic!("the run's servers use etcd");
        };
        Self {
            inner: EtcdStore::new(*address, prefix),
            defect,
        }
    }
}

impl Store for Broken {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        let mut loaded = self.inner.load()?;
        if self.defect == Defect::ForgetsLeases {
            loaded
                .records
                .retain(|record| matches!(record, Record::Set(_)));
        }
        Ok(loaded)
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let is_terms = |record: &Record| matches!(record, Record::Set(_));
        match (self.defect, self.inner.append(records)) {
            (Defect::KeepsGranting, _) => Ok(()),
            (Defect::LosesTerms, Err(_)) if records.iter().any(is_terms) => Ok(()),
            (_, stored) => stored,
        }
    }

    fn replace(&mut self, records: &[Record], missing_ms: u64) -> Result<(), StoreError> {
        self.inner.replace(records, missing_ms)
    }

    fn is_long(&self) -> bool {
        self.inner.is_long()
    }

    fn is_unsure(&self) -> bool {
        self.inner.is_unsure()
    }

    fn settle(&mut self, terms: &[Record]) -> Result<(), StoreError> {
        match (self.defect, self.inner.settle(terms)) {
            (Defect::KeepsGranting, _) => Ok(()),
            (_, settled) => settled,
        }
    }
}
