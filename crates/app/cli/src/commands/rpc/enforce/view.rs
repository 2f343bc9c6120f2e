//! The messages of an interval as a terminal shows them.

use crate::text::{Table, counted, fitted, optional};
use isolane_rpc_agent::view::{Row, View};
use std::fmt::Write;

/// Rows that a view shows; JSON has all.
const SHOWN: usize = 20;

pub(super) fn text(view: &View) -> String {
    let mut text = format!(
        "mode {}; {}, {} marked by their program, {} without a class\n",
        view.mode,
        counted(view.connections, "connection"),
        view.connections_marked_by_program,
        view.connections_without_class
    );
    if view.rows.is_empty() {
        text.push_str(
            "No message ended. Connections that began before this command are not measured.\n",
        );
    } else {
        let mut table = Table::new(
            "llrrrrrrrrr",
            &[
                "destination",
                "class",
                "messages",
                "KB",
                "downgraded %",
                "p50 us/packet",
                "p99 us/packet",
                "target us/packet",
                "missed %",
                "unclear %",
                "admit",
            ],
        );
        for row in view.rows.iter().take(SHOWN) {
            table.row(cells(row));
        }
        text.push_str(&fitted(&table));
    }
    text.push_str(&remarks(view));
    text
}

fn cells(row: &Row) -> Vec<String> {
    let percent = |part: u64, of: u64| match of {
        0 => "-".to_owned(),
        of => format!("{:.1}", 100.0 * part as f64 / of as f64),
    };
    let in_class = row.met.unwrap_or(0) + row.missed.unwrap_or(0) + row.unclear;
    vec![
        row.destination.clone(),
        row.class.clone(),
        row.messages.to_string(),
        (row.bytes / 1_000).to_string(),
        percent(row.downgraded, row.messages),
        optional(row.median_us_per_packet),
        optional(row.p99_us_per_packet),
        optional(row.target_us_per_packet),
        row.missed
            .map_or_else(|| "-".to_owned(), |missed| percent(missed, in_class)),
        percent(row.unclear, in_class),
        optional(row.admit_probability),
    ]
}

fn remarks(view: &View) -> String {
    let mut text = String::new();
    if view.rows.len() > SHOWN {
        let more = (view.rows.len() - SHOWN) as u64;
        let _ = writeln!(text, "{} more; --json has them all", counted(more, "row"));
    }
    let remarks = [
        (
            view.connections_ipv4_over_ipv6,
            "connection",
            "of IPv4 through sockets of IPv6 left alone: the kernel does not let BPF mark them",
        ),
        (
            view.connections_by_bbr,
            "connection",
            "with BBR, which misses objectives: it paces a message at the rate of the class before; let the clients use CUBIC",
        ),
        (
            view.messages_without_row,
            "message",
            "to further destinations have no row",
        ),
        (
            view.messages_lost,
            "message",
            "lost since the start: this command was late, or their end was not seen",
        ),
    ];
    for (count, thing, what) in remarks.into_iter().filter(|remark| remark.0 > 0) {
        let _ = writeln!(text, "{} {what}", counted(count, thing));
    }
    if view.packets_with_other_code_point > 0 {
        let _ = writeln!(
            text,
            "{} of {} left with another code point than chosen",
            view.packets_with_other_code_point,
            counted(
                view.packets_marked + view.packets_with_other_code_point,
                "message"
            )
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_names_what_is_not_in_its_table() {
        let row = Row {
            destination: "10.0.0.2:443".to_owned(),
            class: "high".to_owned(),
            messages: 10,
            bytes: 20_000,
            downgraded: 2,
            met: Some(5),
            missed: Some(2),
            unclear: 0,
            given_up: 1,
            median_us: Some(10.0),
            p99_us: Some(20.0),
            median_us_per_packet: Some(5.0),
            p99_us_per_packet: Some(10.0),
            target_us_per_packet: Some(15.0),
            admit_probability: Some(0.5),
        };
        let view = View {
            seconds: 2.0,
            mode: "enforce",
            rows: vec![row; SHOWN + 1],
            messages_without_row: 3,
            connections: 1,
            connections_marked_by_program: 2,
            connections_without_class: 4,
            connections_ipv4_over_ipv6: 6,
            connections_by_bbr: 7,
            messages_lost: 5,
            packets_marked: 8,
            packets_with_other_code_point: 1,
        };
        let text = text(&view);
        for part in [
            "mode enforce; 1 connection, 2 marked by their program, 4 without a class",
            "6 connections of IPv4 through sockets of IPv6",
            "1 row more",
            "7 connections with BBR",
            "3 messages to further destinations",
            "5 messages lost",
            "1 of 9 messages left with another code point",
            // 2 of the 7 that were judged.
            "28.6",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
}
