//! Following one message: its way through timelines, the switch and fetches, its beginning and its end.

use super::attribution::Use;
use super::record::{PERIODS, Place, Timeline, Tracer};
use super::story::{FETCH, Known, Phase, Probe, Story};
use super::{MESSAGES_MAX, Part, Resource, Stage};

impl Tracer {
    /// The message that `pair` has under way, if it is at `phase`.
    pub(crate) fn probe(&mut self, pair: u32, phase: Phase) -> Option<&mut Probe> {
        let story = self.stories[pair as usize].as_mut()?;
        story.probe.as_mut().filter(|probe| probe.phase == phase)
    }

    pub(crate) fn story(&mut self, pair: u32) -> Option<&mut Story> {
        self.stories[pair as usize].as_deref_mut()
    }

    /// The followed message of `pair` has passed the latest work on `lane`.
    pub(crate) fn through(&mut self, pair: u32, stage: Stage, host: usize, lane: Timeline) {
        let nic = &self.nics[host];
        let Use { started, done } = nic.logs[lane.index()].latest;
        let own = self.tenant_of[pair as usize];
        let Some(probe) = self.stories[pair as usize]
            .as_mut()
            .and_then(|story| story.probe.as_mut())
        else {
            return;
        };
        if started > probe.cursor() {
            nic.cut(lane, probe.cursor(), started, own, |piece| {
                let part = Part::waited(stage, host, piece.resource, piece.tenant);
                probe.add(part, piece.ps);
            });
        }
        probe.until(done, Part::served(stage, host, lane.resource(), own));
    }

    /// The switch held the message for a host that pauses.
    pub(crate) fn held_by_switch(&mut self, host: usize, pair: u32) {
        let cursor = |story: &Story| story.probe.as_ref().map(Probe::cursor);
        let story = self.stories[pair as usize].as_deref();
        let Some(from) = story.and_then(cursor) else {
            return;
        };
        let mut pieces = Vec::new();
        self.drains(host, from, self.now, |_, piece| pieces.push(piece));
        let story = self.stories[pair as usize].as_mut();
        if let Some(probe) = story.and_then(|story| story.probe.as_mut()) {
            for piece in pieces {
                let part = Part::waited(Stage::Switch, host, piece.resource, piece.tenant);
                probe.add(part, piece.ps);
            }
        }
    }

    /// Work of `pair` that will be fetched: the bus is used until `started..done`, the data is there at `end`.
    pub(crate) fn fetches(&mut self, host: usize, pair: u32, end: u64) {
        let now = self.now;
        let nic = &self.nics[host];
        let own = self.tenant_of[pair as usize];
        let Some(story) = &mut self.stories[pair as usize] else {
            return;
        };
        let Use { started, done } = nic.logs[Timeline::ToNic.index()].latest;
        let fetch = &mut story.known[FETCH];
        fetch.clear();
        let mut at = now;
        nic.cut(Timeline::ToNic, now, started, own, |piece| {
            at += piece.ps;
            let part = Part::waited(Stage::Fetch, host, piece.resource, piece.tenant);
            fetch.push(Known { part, end: at });
        });
        let bus = Part::served(Stage::Fetch, host, Resource::PcieToNic, own);
        let way = Part::served(Stage::Fetch, host, Resource::Way, own);
        fetch.push(Known {
            part: bus,
            end: done,
        });
        fetch.push(Known { part: way, end });
    }

    /// Messages up to `upto` of `pair` were posted at the times `posted` says; one of them is followed if none is.
    pub(crate) fn posted(
        &mut self,
        host: usize,
        pair: u32,
        (message, posted): (u64, u64),
        (ping_pong, place): (bool, Place),
    ) {
        if ping_pong && let Some(mut probe) = self.handed.take() {
            probe.message = message;
            probe.phase = Phase::Sending;
            self.begin(host, pair, place, probe);
        } else if self.story(pair).is_some_and(|story| story.probe.is_none()) {
            self.begin(host, pair, place, Probe::new(message, posted));
        }
    }

    pub(super) fn begin(&mut self, host: usize, pair: u32, place: Place, probe: Probe) {
        let held = self.held(host, place).clone();
        if let Some(story) = &mut self.stories[pair as usize] {
            (story.place, story.held, story.probe) = ((host, place), held, Some(probe));
        }
    }

    /// A ping-pong message was seen at `at`: the round trip ends there, or goes on with an answer.
    pub(crate) fn handed_over(&mut self, pair: u32, at: u64, host: usize, ends: bool) {
        let own = self.tenant_of[pair as usize];
        let Some(probe) = self.probe(pair, Phase::Delivering) else {
            return;
        };
        let part = Part::served(Stage::Completion, host, Resource::Application, own);
        probe.until(at, part);
        if ends {
            self.done(pair);
        } else if let Some(story) = self.story(pair) {
            self.handed = story.probe.take();
        }
    }

    /// The followed message of `pair` has ended: its parts count in the point of its end.
    pub(crate) fn done(&mut self, pair: u32) {
        let Some(probe) = self.story(pair).and_then(|story| story.probe.take()) else {
            return;
        };
        let end = probe.cursor();
        let Some(point) = self.point(end) else {
            return;
        };
        let message = probe.finish();
        self.messages[point] += 1;
        for span in &message.spans {
            let points = self.points;
            let series = self.waits.entry(span.part);
            series.or_insert_with(|| vec![0; points])[point] += span.ps;
        }
        let kept = &mut self.kept[point * PERIODS / self.points];
        if *kept < MESSAGES_MAX {
            *kept += 1;
            self.followed.push(message);
        }
    }
}
