"""Image arithmetic of the traffic query, in numpy alone.

Units: pixels; images are height x width x 3, red-green-blue, eight bits a channel; boxes are (left, top, right,
bottom). Method: bilinear resizing by gathered rows and columns, and a colour test by ratios of channels, which a
change of brightness leaves alone. Limits: resizing does not low-pass first, which is fine down to half the size, the
least that the query uses.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

#: Sides of a resized image are multiples of this, the stride of the detectors times two.
SIDE_STEP = 16


def scaled_size(height: int, width: int, scale: float) -> tuple[int, int]:
    """Height and width after scaling, each rounded down to a multiple of SIDE_STEP but at least one step."""

    def side(length: int) -> int:
        return max(SIDE_STEP, int(length * scale + 1e-9) // SIDE_STEP * SIDE_STEP)

    return side(height), side(width)


@functools.lru_cache(maxsize=64)
def _taps(source: int, target: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
    """For each target position: the two source positions and the weight of the second."""
    position = (np.arange(target) + 0.5) * source / target - 0.5
    position = np.clip(position, 0, source - 1)
    low = np.floor(position).astype(np.intp)
    high = np.minimum(low + 1, source - 1)
    return low, high, (position - low).astype(np.float32)


def resize(image: Image, scale: float) -> Image:
    """The image scaled by `scale` (sides rounded as `scaled_size` says); the same array where the size stays."""
    height, width = image.shape[:2]
    new_height, new_width = scaled_size(height, width, scale)
    if (new_height, new_width) == (height, width):
        return image
    low, high, weight = _taps(height, new_height)
    rows = image[low].astype(np.float32)
    rows += (image[high] - rows) * weight[:, None, None]
    low, high, weight = _taps(width, new_width)
    columns = rows[:, low]
    columns += (rows[:, high] - columns) * weight[None, :, None]
    return (columns + 0.5).astype(np.uint8)


def red(image: Image) -> Mask:
    """Which pixels are red: the red channel is bright enough, twice the green and 1.7 times the blue.

    The ratios part red paint from orange (green near half of red), pink (blue near two thirds), brown (both near half).
    """
    channels = image.astype(np.uint16)
    value = channels[..., 0]
    mask: Mask = (value > 60) & (value > 2 * channels[..., 1]) & (10 * value > 17 * channels[..., 2])
    return mask


def grey(image: Image) -> Floats:
    """Brightness from 0 to 255 with the usual weights of the three channels."""
    weights = np.array([0.299, 0.587, 0.114], np.float32)
    result: Floats = image.astype(np.float32) @ weights
    return result


def blocks(mask: Mask, side: int) -> npt.NDArray[np.int64]:
    """How many pixels are set in each full block of `side` x `side` pixels."""
    height, width = mask.shape[0] // side * side, mask.shape[1] // side * side
    parts = mask[:height, :width].reshape(height // side, side, width // side, side)
    counts: npt.NDArray[np.int64] = parts.sum(axis=(1, 3), dtype=np.int64)
    return counts
