//! The network against queueing theory.
//!
//! Two hosts and a switch; the first host sends to the second faster than its own line, so everything waits at one
//! port, in front of which there is room for all. What a packet waits there is measured from the moment in which the
//! host hands it over to the moment in which its first bit leaves.

mod harness;
mod single_server;
mod symmetric;
mod weighted_fair;
