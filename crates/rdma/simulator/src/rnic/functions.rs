//! Virtual functions on the receiving side: each handles its receiver-not-ready errors by itself (stage 9).
//!
//! Problem: without SR-IOV the shared processing units wait while firmware handles a reliable connection's
//! receiver-not-ready (husky 4.3.3). With a virtual function per tenant other functions continue (husky 4.5.1). Method:
//! the message is thrown away at once, so it holds neither units nor buffer, and the exception waits for the earlier
//! ones of its function; `rnr_stall_us` after those its NAK leaves. Pairs of the function whose messages find receives
//! go on. Messages that unreliable transports drop take another path in firmware, which all functions share.
//!
//! Units: picoseconds. Limits: that other functions go on is published, how is not; whether a function's own healthy
//! pairs wait is not known, and here they do not.

use super::world::World;

impl<const RECORDS: bool> World<RECORDS> {
    /// The function of a pair handles an exception found at `at`; when it is done, ps, or nothing where functions
    /// are not apart.
    pub(crate) fn function_handles(&mut self, at: u64, host: usize, pair: u32) -> Option<u64> {
        let number = usize::from(self.pairs[pair as usize].function);
        let busy_until = self.nics[host].functions.get_mut(number)?;
        *busy_until = (*busy_until).max(at) + self.device.rnr_stall;
        Some(*busy_until)
    }
}
