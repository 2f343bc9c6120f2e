//! The table keeps its own rules.

use super::*;

#[test]
fn every_arrow_of_the_table_points_down() {
    for (index, room) in ROOMS.iter().enumerate() {
        for folder in room.may_use {
            let lower = ROOMS[..index].iter().any(|other| other.folder == *folder);
            assert!(lower, "{} -> {folder}", room.folder);
        }
    }
}

#[test]
fn pure_rooms_use_pure_rooms_only() {
    for room in ROOMS.iter().filter(|room| room.kind.is_pure()) {
        for folder in room.may_use {
            let used = room_of(folder);
            assert!(
                used.is_some_and(|used| used.kind.is_pure()),
                "{} -> {folder}",
                room.folder
            );
        }
    }
}

#[test]
fn recommend_and_report_name_no_simulator() {
    for folder in ["study/recommend", "app/report"] {
        let room = room_of(folder).expect("it is in the table");
        let simulators = room
            .may_use
            .iter()
            .filter(|used| used.contains("simulator"));
        assert_eq!(simulators.count(), 0, "{folder}");
    }
}
