//! The part of `ARCHITECTURE.md` that follows from `ROOMS`: which wing uses which, and a table of the rooms of each wing.

use crate::rooms::{Kind, ROOMS, Room, room_of};
use std::fmt::Write;

/// What begins the generated part.
pub const BEGIN: &str = "<!-- rooms -->\n";
/// What ends it.
pub const END: &str = "<!-- /rooms -->\n";
/// Wings in the order in which a reader meets them, each with what it is for.
const WINGS: [(&str, &str); 9] = [
    ("common", "what several wings use"),
    ("rdma", "RDMA NICs: Justitia, Palos, Harmonic"),
    ("network", "datacenter networks"),
    ("rpc", "remote procedure calls: Aequitas"),
    ("ethernet", "Ethernet NICs: Titan"),
    ("memory", "tiered memory: Mercury"),
    ("study", "studies on any testbed: Husky, Collie, claims"),
    ("app", "the program and its pages"),
    ("tools", "checks of this repository"),
];

/// The generated part, without its markers.
pub fn text() -> String {
    let mut text = String::from("\n```mermaid\nflowchart LR\n");
    for (wing, _) in WINGS {
        let _ = writeln!(text, "    subgraph {wing}");
        for room in of(wing) {
            let _ = writeln!(text, "        {}[{}]", node(room.folder), name(room));
        }
        text.push_str("    end\n");
    }
    for room in ROOMS {
        for used in direct(room) {
            let _ = writeln!(text, "    {} --> {}", node(used), node(room.folder));
        }
    }
    text.push_str("```\n");
    for (wing, about) in WINGS {
        let _ = write!(text, "\n### {wing}: {about}\n\n");
        text.push_str("| room | kind | what lives there | uses |\n|---|---|---|---|\n");
        for room in of(wing) {
            let (name, kind, used) = (name(room), kind(room.kind), used(room));
            let _ = writeln!(text, "| `{name}` | {kind} | {} | {used} |", room.about);
        }
    }
    text.push('\n');
    text
}

fn of(wing: &str) -> impl Iterator<Item = &'static Room> {
    ROOMS.iter().filter(move |room| room.wing() == wing)
}

/// The room's name within its wing.
fn name(room: &Room) -> &'static str {
    let parts = room.folder.split_once('/');
    parts.map_or(room.folder, |(_, name)| name)
}

/// A name that the diagram's language takes.
fn node(folder: &str) -> String {
    folder.replace(['/', '-'], "_")
}

/// The arrows of `room` that do not follow from others: the diagram would be a tangle with all of them.
fn direct(room: &Room) -> impl Iterator<Item = &'static str> {
    let all = room.may_use;
    all.iter()
        .filter(move |one| !all.iter().any(|other| reaches(other, one)))
        .copied()
}

/// Whether the room `from` uses `to`, directly or through others.
fn reaches(from: &str, to: &str) -> bool {
    let used = room_of(from).map_or(&[][..], |room| room.may_use);
    used.iter().any(|one| *one == to || reaches(one, to))
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Pure => "pure",
        Kind::PureUnsafe => "pure, `unsafe` hints",
        Kind::Plain => "",
        Kind::Unsafe => "`unsafe`",
    }
}

/// The rooms that `room` uses: those of its own wing by name, all of a wing that it uses wholly by the wing's.
fn used(room: &Room) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (wing, _) in WINGS {
        let names: Vec<&str> = room
            .may_use
            .iter()
            .filter_map(|used| used.strip_prefix(wing)?.strip_prefix('/'))
            .collect();
        match names[..] {
            [] => {}
            [name] => parts.push(format!("{wing}/{name}")),
            _ => parts.push(format!("{wing}/{{{}}}", names.join(", "))),
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_room_has_one_line_and_every_wing_is_listed() {
        let text = text();
        let lines = text.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(lines.count(), ROOMS.len());
        for room in ROOMS {
            assert!(
                WINGS.iter().any(|(wing, _)| *wing == room.wing()),
                "{}",
                room.folder
            );
        }
    }
}
