"""Audio arithmetic of the speech query, in numpy alone: resampling, spectra, features.

Problem: sampler, spectral gate, recogniser and truth must agree on frames and bins at every sampling rate. Units:
hertz, seconds; samples are single-precision numbers around -1 to 1, or 16-bit integers on the wire. Method:
resampling by cutting or padding the spectrum; frames of 25 ms every 10 ms, whose bins are 40 Hz apart at every rate;
40 mel bands from 60 Hz to 8 kHz, and at lower rates the upper ones are empty. Limits: whole clips, no streaming;
the ends of a resampled clip ring a little.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

Signal = npt.NDArray[np.float32]

#: The microphone's rate.
FULL_RATE = 16000
#: Frame, step between frames, and the distance of bins that follows.
FRAME_S, STEP_S, BIN_HZ = 0.025, 0.010, 40.0
BANDS = 40
LOWEST_HZ, HIGHEST_HZ = 60.0, 8000.0
#: Energy below which a band is silence, relative to a signal of unit power.
SILENCE = 1e-2


def to_float(samples: npt.NDArray[np.int16]) -> Signal:
    """16-bit samples as numbers below 1."""
    return samples.astype(np.float32) / np.float32(32768)


def to_int(signal: npt.NDArray[np.floating]) -> npt.NDArray[np.int16]:
    """Numbers as 16-bit samples, cut off at full scale."""
    return np.clip(np.round(signal * 32768), -32768, 32767).astype(np.int16)


def resample(signal: Signal, rate: int, new_rate: int) -> Signal:
    """The signal at another rate; what the new rate cannot hold is cut off sharply."""
    if rate == new_rate:
        return signal
    length = round(len(signal) * new_rate / rate)
    # A multiple of 256 transforms quickly; what is padded is cut off again.
    padded = -(-len(signal) // 256) * 256
    target = round(padded * new_rate / rate)
    spectrum = np.fft.rfft(signal, padded)
    kept = np.zeros(target // 2 + 1, np.complex128)
    common = min(len(kept), len(spectrum))
    kept[:common] = spectrum[:common]
    result: Signal = (np.fft.irfft(kept, target) * (target / padded))[:length].astype(np.float32)
    return result


def power(signal: Signal, rate: int) -> npt.NDArray[np.float64]:
    """Power by frame and bin (BIN_HZ apart)."""
    frame, step = round(FRAME_S * rate), round(STEP_S * rate)
    if len(signal) < frame:
        signal = np.pad(signal, (0, frame - len(signal)))
    frames = np.lib.stride_tricks.sliding_window_view(signal, frame)[::step]
    spectrum = np.fft.rfft(frames * np.hanning(frame), axis=1)
    result: npt.NDArray[np.float64] = np.abs(spectrum) ** 2 / frame
    return result


@functools.cache
def mel_bands() -> npt.NDArray[np.float64]:
    """Weights of bins (rows) in bands (columns) at the full rate."""
    ends = 2595 * np.log10(1 + np.array([LOWEST_HZ, HIGHEST_HZ]) / 700)
    edges = 700 * (10 ** (np.linspace(ends[0], ends[1], BANDS + 2) / 2595) - 1)
    bins = np.arange(int(FULL_RATE / 2 / BIN_HZ) + 1) * BIN_HZ
    rise = (bins[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
    weights: npt.NDArray[np.float64] = np.maximum(0, np.minimum(rise, fall))
    weights /= np.maximum(weights.sum(axis=0), 1e-9)
    return weights


def features(signal: Signal, rate: int) -> npt.NDArray[np.float32]:
    """Bands x frames: logarithms of the energy in mel bands, each band's mean taken off."""
    level = float(np.sqrt(np.mean(signal.astype(np.float64) ** 2))) + 1e-6
    energy = power((signal / level).astype(np.float32), rate)
    bands = mel_bands()
    common = min(energy.shape[1], bands.shape[0])
    logs = np.log(energy[:, :common] @ bands[:common] + SILENCE)
    result: npt.NDArray[np.float32] = ((logs - logs.mean(axis=0)) / 2).T.astype(np.float32)
    return result
