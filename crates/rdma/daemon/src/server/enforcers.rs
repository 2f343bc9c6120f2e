//! The enforcer's connection: it sets limits instead of opening devices.
//!
//! Problem: another process (`isolane rdma enforce`) sends limits, and no tenant may set limits. Method: only a process
//! with authority over this host may connect as the enforcer ([`isolane_common_linux::peer::Peer::check_authority`]):
//! root or the daemon's own user, in the daemon's user namespace and PID namespace. One enforcer at a time. Its limits
//! end with its connection.

use super::{Server, Token};
use isolane_rdma_session::message::{ToDaemon, ToShim};

impl Server {
    /// A guest connects as the enforcer. An error ends the connection and is sent to the process.
    pub(super) fn heed(&mut self, token: Token) -> Result<(), String> {
        let Some(link) = self.link(token) else {
            return Ok(());
        };
        let checked = link.peer.check_authority();
        checked.map_err(|refusal| format!("limits are rejected: {refusal}"))?;
        if let Some(other) = self.enforcer {
            let other = self.link(other).map_or(0, |link| link.peer.process());
            return Err(format!(
                "process {other} sets limits already; end it before another one may"
            ));
        }
        let link = self.link_mut(token).expect("as above");
        link.say(&ToShim::Heeded)
            .map_err(|error| error.to_string())?;
        link.trust();
        let guest = (link.since_ns, (token.index, token.epoch));
        self.guests.remove(guest);
        self.governor.lift_limits();
        self.enforcer = Some(token);
        Ok(())
    }

    /// Applies a message of the enforcer. An error ends the connection and is sent to the process.
    pub(super) fn take_limit(&mut self, token: Token, message: &ToDaemon) -> Result<(), String> {
        if !self.enforces(token) {
            return Err("a limit from a process that did not connect as the enforcer".to_owned());
        }
        match *message {
            ToDaemon::Limit {
                tenant,
                bytes_per_s,
            } => self.governor.limit_tenant(tenant, bytes_per_s),
            ToDaemon::Belongs { process, tenant } => {
                if !self.governor.limit_process(process, tenant) {
                    return Err("too many processes have limits; at most 65536".to_owned());
                }
            }
            _ => return Err("an enforcer may only set limits".to_owned()),
        }
        Ok(())
    }

    /// Whether this is the enforcer's connection.
    pub(super) fn enforces(&self, token: Token) -> bool {
        let place = |token: Token| (token.index, token.epoch);
        self.enforcer
            .is_some_and(|enforcer| place(enforcer) == place(token))
    }

    /// Removes the limits when the enforcer's connection ends.
    pub(super) fn unheed(&mut self) {
        self.enforcer = None;
        self.governor.lift_limits();
    }
}
