//! Whoever enforces guarantees on this host: one connection that says limits instead of opening devices.
//!
//! Problem: a limit on a tenant comes from a process of its own (`isolane rdma enforce`), and no tenant may give limits.
//! Method: only a process with authority over this host may greet so ([`isolane_common_linux::peer::Peer::check_authority`]): root or
//! the daemon's own user, in the daemon's user namespace and PID namespace. One at a time. Its limits end with its connection.

use super::{Server, Token};
use isolane_rdma_session::message::{ToDaemon, ToShim};

impl Server {
    /// A guest greets as the enforcer; an error ends the connection and goes to it.
    pub(super) fn heed(&mut self, token: Token) -> Result<(), String> {
        let Some(link) = self.link(token) else {
            return Ok(());
        };
        let checked = link.peer.check_authority();
        checked.map_err(|refusal| format!("limits are not taken: {refusal}"))?;
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
        self.guests.remove((token.index, token.epoch));
        self.governor.lift_limits();
        self.enforcer = Some(token);
        Ok(())
    }

    /// Takes what the enforcer says; an error ends the connection and goes to it.
    pub(super) fn take_limit(&mut self, token: Token, message: &ToDaemon) -> Result<(), String> {
        if !self.enforces(token) {
            return Err("a limit from a process that did not greet as the enforcer".to_owned());
        }
        match *message {
            ToDaemon::Limit {
                tenant,
                bytes_per_s,
            } => self.governor.limit_tenant(tenant, bytes_per_s),
            ToDaemon::Belongs { process, tenant } => {
                if !self.governor.limit_process(process, tenant) {
                    return Err("too many processes have limits".to_owned());
                }
            }
            _ => return Err("an enforcer says limits only".to_owned()),
        }
        Ok(())
    }

    /// Whether the connection is the enforcer's.
    pub(super) fn enforces(&self, token: Token) -> bool {
        let place = |token: Token| (token.index, token.epoch);
        self.enforcer
            .is_some_and(|enforcer| place(enforcer) == place(token))
    }

    /// The enforcer's connection ends, and its limits with it.
    pub(super) fn unheed(&mut self) {
        self.enforcer = None;
        self.governor.lift_limits();
    }
}
