//! The limit of open files of this process.
//!
//! A service without descriptors fails for all its clients, so it raises the limit to its own largest need before it
//! starts.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the limit to `needed`, and the hard limit too if permitted. Fails with `InvalidInput` and the remedy if fewer
/// files may be open.
pub fn raise(needed: u64) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum: maximum.map(|maximum| maximum.max(needed)),
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| {
        let most = maximum.unwrap_or(u64::MAX);
        let text = format!(
            "{most} files may be open, {needed} can be needed; raise the limit with `ulimit -Hn {needed}` or LimitNOFILE={needed}"
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_already_stays_and_too_much_is_refused_with_the_remedy() {
        let before = getrlimit(Resource::Nofile).current;
        raise(8).unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, before);
        if before.is_some() {
            // More than the kernel's own bound, which no process may exceed.
            let error = raise(1 << 40).unwrap_err().to_string();
            assert!(
                error.contains("ulimit -Hn") && error.contains("can be needed"),
                "{error}"
            );
        }
    }
}
