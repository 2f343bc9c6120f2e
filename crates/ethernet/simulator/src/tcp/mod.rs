//! TCP: a sender and a receiver for each flow.
//!
//! * [`flow`] - state of both ends; [`send`] - what may leave now; [`acknowledge`] - what an acknowledgement changes;
//! * [`window`] - CUBIC and DCTCP; [`scoreboard`] - what arrived out of order, what is lost; [`receive`] - the receiver.
//!
//! Sequence numbers count bytes from zero and never wrap. Connections are open from the start. Source: RFC 9438, 8257,
//! 2018, 6675, 6298; Linux 4.4 for TCP Small Queues, automatic segment sizes and deferral.

pub(crate) mod acknowledge;
pub(crate) mod flow;
pub(crate) mod receive;
pub(crate) mod scoreboard;
pub(crate) mod send;
pub(crate) mod window;
