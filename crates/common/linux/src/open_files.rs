//! The limit of open files of this process.
//!
//! A service without descriptors fails for all its clients, so it raises the limit to its own largest need before it
//! starts. A service that can do with less scales its places to what [`raise_towards`] returns.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the limit to `needed`, and the hard limit too if permitted. Fails with `InvalidInput` and the remedy if fewer
/// files may be open.
pub fn raise(needed: u64) -> io::Result<()> {
    let most = raise_towards(needed);
    if most >= needed {
        return Ok(());
    }
    let text = format!(
        "{most} files may be open, {needed} can be needed; raise the limit with `ulimit -Hn {needed}` or LimitNOFILE={needed}"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Raises the limit to `needed`, or as far as permitted. Returns how many files may be open then; `u64::MAX` for any
/// number.
pub fn raise_towards(needed: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < needed) {
        // With the privilege the hard limit rises too; without it, only the soft limit.
        let all = Rlimit {
            current: Some(needed),
            maximum: maximum.map(|maximum| maximum.max(needed)),
        };
        let some = Rlimit {
            current: maximum.map(|maximum| maximum.min(needed)),
            maximum,
        };
        // What is in force then is read below.
        let _ = setrlimit(Resource::Nofile, all).or_else(|_| setrlimit(Resource::Nofile, some));
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
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
