//! Whoever enforces guarantees on this host: one connection that says limits instead of opening devices.
//!
//! Problem: a limit on a tenant comes from a process of its own (`isolane enforce`), and no tenant may give limits.
//! Method: only the superuser and the daemon's own user may greet so, by the kernel's word; one at a time. Its limits end
//! with its connection, or, where it says so, when the next one greets. Each greeting begins with no limits.

use super::{Server, Token};
use isolane_proto::message::{ToDaemon, ToShim};

/// The enforcer that is connected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enforcer {
    token: Token,
    keep: bool,
}

impl Server {
    /// A guest greets as the enforcer; an error ends the connection and goes to it.
    pub(super) fn heed(&mut self, token: Token, keep: bool) -> Result<(), String> {
        let own = rustix::process::geteuid().as_raw();
        let Some(link) = self.link_mut(token) else {
            return Ok(());
        };
        if link.user != 0 && link.user != own {
            return Err(format!(
                "user {} may not set limits; only root and the daemon's user {own} may",
                link.user
            ));
        }
        let user = link.user;
        if let Some(Enforcer { token: other, .. }) = self.enforcer {
            let other = self.link(other).map_or(0, |link| link.pid);
            return Err(format!(
                "process {other} sets limits already; end it before another one may"
            ));
        }
        let link = self.link_mut(token).expect("as above");
        link.say(&ToShim::Heeded)
            .map_err(|error| error.to_string())?;
        link.trust();
        self.guests.remove(user);
        self.governor.lift_limits();
        self.enforcer = Some(Enforcer { token, keep });
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
            .is_some_and(|enforcer| place(enforcer.token) == place(token))
    }

    /// The enforcer's connection ends.
    pub(super) fn unheed(&mut self) {
        if let Some(Enforcer { keep: false, .. }) = self.enforcer.take() {
            self.governor.lift_limits();
        }
    }
}
