"""The speech query: audio arithmetic, clips, decoder, truth and profile data."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from isolane.pipeline.item import Item, ItemError
from isolane.planner.live import pass_through
from isolane.planner.profiles import Replay, load_profile
from isolane.queries.registry import builtin
from isolane.queries.speech import grammar
from isolane.queries.speech.audio import BANDS, FULL_RATE, features, power, resample, to_float, to_int
from isolane.queries.speech.clips import decode, encode, noisy, spoken
from isolane.queries.speech.operators import (
    Decoder,
    Gate,
    Microphone,
    Recogniser,
    Sampler,
    best_sentence,
    likeliest_words,
)
from isolane.queries.speech.query import Home, Party


def tone(hertz: float, rate: int = FULL_RATE, seconds: float = 1.0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """A sine."""
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def test_resampling_keeps_tones_that_fit_and_cuts_the_others() -> None:
    low = resample(tone(1000), FULL_RATE, 8000)
    assert len(low) == 8000
    assert np.abs(low - tone(1000, 8000))[200:-200].max() < 0.02
    assert np.abs(resample(tone(6000), FULL_RATE, 8000))[200:-200].max() < 0.02
    assert resample(tone(500), FULL_RATE, FULL_RATE) is not None


def test_bins_lie_forty_hertz_apart_at_every_rate() -> None:
    for rate in (8000, 10000, 12000, 14000, 16000):
        cells = power(tone(2000, rate), rate)
        assert cells.shape[1] == rate // 80 + 1
        assert set(cells.argmax(axis=1).tolist()) == {50}
        assert features(tone(2000, rate), rate).shape == (BANDS, len(cells))


def test_the_codec_keeps_speech_and_refuses_other_files() -> None:
    random = np.random.default_rng(5)
    signal = (tone(440, seconds=0.7) * np.linspace(0, 1, 11200) + 0.01 * random.standard_normal(11200)).astype(
        np.float32
    )
    content = encode([signal, signal[:5000]], ["call john at one", "call mary at two"], ["a", "b"])
    (text, voice, one), (_, _, two) = decode(content)
    assert (text, voice, len(one), len(two)) == ("call john at one", "a", 11200, 5000)
    error = np.mean((one - signal) ** 2) / np.mean(signal**2)
    assert 10 * np.log10(error) < -12
    assert np.allclose(one[:4000], two[:4000], atol=0.02)
    with pytest.raises(ValueError, match="no file of clips"):
        decode(b"RIFF" + bytes(40))


def test_the_committed_clips_are_commands_of_the_grammar() -> None:
    clips = spoken()
    assert len(clips) == 64
    assert len({voice for _, voice, _ in clips}) == 4
    for text, _, signal in clips:
        assert text in grammar.sentences()
        assert 0.5 < len(signal) / FULL_RATE < 3
        assert 0.3 < np.abs(signal).max() < 0.8


@pytest.mark.parametrize("wanted_db", [-3.0, 6.0, 20.0])
def test_noise_is_as_loud_as_asked(wanted_db: float) -> None:
    clean, other = spoken()[0][2], [spoken()[1][2]]
    mixture, noise = noisy(clean, other, np.random.default_rng(2), wanted_db)
    speech = (mixture - noise).astype(np.float64)
    loud = speech[np.abs(speech) > 1e-4]
    power_of_speech = np.sum(speech**2) / len(clean)
    assert 10 * np.log10(power_of_speech / np.mean(noise.astype(np.float64) ** 2)) == pytest.approx(wanted_db, abs=0.2)
    assert len(loud) > 0 and np.abs(mixture).max() < 0.71


def test_mistakes_agree_with_the_definition() -> None:
    def slow(one: tuple[int, ...], two: tuple[int, ...]) -> int:
        if not one or not two:
            return len(one) + len(two)
        return min(slow(one[1:], two) + 1, slow(one, two[1:]) + 1, slow(one[1:], two[1:]) + (one[0] != two[0]))

    for seed in range(40):
        random = np.random.default_rng(seed)
        one, two = (tuple(random.integers(0, 3, random.integers(0, 6)).tolist()) for _ in range(2))
        assert grammar.mistakes([str(v) for v in one], [str(v) for v in two]) == slow(one, two), f"seed {seed}"


def scores(seed: int, frames: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Random scores, as a net gives them."""
    raw = np.random.default_rng(seed).normal(size=(frames, len(grammar.WORDS) + 1)) * 3
    return (raw - np.log(np.exp(raw).sum(axis=1, keepdims=True))).astype(np.float32)


def test_the_best_sentence_is_the_likeliest_over_all_alignments() -> None:
    """Against the recursion on (frame, state) written out for one sentence at a time."""

    def likelihood(table: np.ndarray[tuple[int, int], np.dtype[np.float32]], words: tuple[int, ...]) -> float:
        states = [0]
        for word in words:
            states += [word, 0]

        @functools.cache
        def chance(frame: int, state: int) -> float:
            here = float(np.exp(table[frame, states[state]]))
            if frame == 0:
                return here if state < 2 else 0.0
            before = [state, state - 1]
            if state > 1 and states[state] and states[state] != states[state - 2]:
                before.append(state - 2)
            return here * sum(chance(frame - 1, one) for one in before if one >= 0)

        return chance(len(table) - 1, len(states) - 1) + chance(len(table) - 1, len(states) - 2)

    for seed in range(3):
        table = scores(seed, 9)
        slow = max(grammar.sentences(), key=lambda text: likelihood(table, tuple(grammar.numbers(text))))
        assert best_sentence(table) == slow, f"seed {seed}"


def test_greedy_words_drop_repetitions_and_silence() -> None:
    table = np.full((8, len(grammar.WORDS) + 1), -9.0, np.float32)
    for frame, word in enumerate((0, 1, 1, 0, 1, 2, 2, 0)):
        table[frame, word] = 0
    assert likeliest_words(table) == "turn turn on"


def test_the_sampler_shrinks_and_never_raises_the_rate() -> None:
    sampler = Sampler()
    item = Item(0, 0.0, {"audio": to_int(tone(300)), "rate_hz": 16000.0})
    sampler.configure({"rate_hz": 8000})
    (low,) = sampler.process(item)
    assert low.payload["rate_hz"] == 8000 and len(low.payload["audio"]) == 8000  # type: ignore[arg-type]
    sampler.configure({"rate_hz": 12000})
    assert sampler.process(low) == [low]


def test_the_gate_quietens_noise_more_than_speech() -> None:
    clean = spoken()[3][2]
    random = np.random.default_rng(9)
    silence = np.zeros(8000, np.float32)
    speech = np.concatenate([silence, clean, silence])
    noise = (0.02 * random.standard_normal(len(speech))).astype(np.float32)
    gate = Gate()
    for width in Gate.KNOBS["mask_hz"]:
        gate.configure({"mask_hz": width})
        (item,) = gate.process(Item(0, 0.0, {"audio": to_int(speech + noise), "rate_hz": 16000.0}))
        result = to_float(item.payload["audio"])  # type: ignore[arg-type]
        assert len(result) == len(speech)
        before = speech
        quiet = np.abs(before) < 1e-3
        assert np.std(result[quiet]) < 0.5 * np.std(noise)
        assert np.std(result[~quiet]) > 0.6 * np.std(before[~quiet])


def test_accuracy_is_one_for_the_truth_and_zero_for_silence() -> None:
    workload = Home(6)
    truths = [Item(number, 0.0, {"text": text}) for number, text in enumerate(workload.texts)]
    assert workload.accuracy(truths) == 1.0
    assert workload.accuracy([]) == 0.0
    assert workload.accuracy(truths, reference=truths) == 1.0
    wrong = [item.with_payload(text=" ".join(["no", *str(item.payload["text"]).split()[1:]])) for item in truths]
    words = sum(len(text.split()) for text in workload.texts)
    assert workload.accuracy(wrong) == pytest.approx(1 - 6 / words)
    precision, recall = workload.filter_score(workload.items())
    assert recall > 0.99 and 0.0 < precision < 0.6
    assert workload.filter_score([]) == (1.0, 0.0)


def test_the_party_is_louder_than_home_and_clips_are_checked() -> None:
    assert max(Party.ratio_db) < max(Home.ratio_db)
    assert Microphone().process(Item(0, 0.0, {"audio": np.zeros(0, np.int16)})) == []
    for operator in (Microphone(), Sampler(), Gate(), Recogniser()):
        with pytest.raises(ItemError, match="item 3: needs an array 'audio'; it carries nothing"):
            operator.process(Item(3, 0.0, {}))


@pytest.mark.parametrize("scene", ["home"])
def test_the_committed_profile_has_every_launch(scene: str) -> None:
    query = builtin("speech").query()
    replay = Replay(query, load_profile(builtin("speech").profile(scene)))
    assert len(query.orders()) == 2
    for order in query.orders():
        for configuration in query.configurations():
            assert 0 < replay.launch(order, configuration).accuracy <= 1


def test_the_committed_profile_says_what_the_pipeline_does() -> None:
    query = builtin("speech").query()
    order = query.orders()[0]
    settings = {
        "sampler": {"rate_hz": 12000},
        "gate": {"mask_hz": 1000},
        "recogniser": {"model": "medium"},
        "decoder": {"search": "grammar"},
    }
    recorded = Replay(query, load_profile(builtin("speech").profile("home"))).launch(
        order, query.configuration(settings)
    )
    workload = Home()
    items = list(workload.items())
    for name, operator in zip(order, (Microphone(), Sampler(), Gate(), Recogniser(), Decoder()), strict=True):
        operator.configure(settings.get(name, {}))
        items, result = pass_through(query.operator(name), operator, items)
        assert result.output_bytes == pytest.approx(recorded.operators[name].output_bytes, rel=0.02), name
    assert workload.accuracy(items) == pytest.approx(recorded.accuracy, abs=0.03)
