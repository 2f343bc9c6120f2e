"""Loss of detectors that mark the centre of each object on a grid (as CenterNet does).

Problem: the camera's and the laser scanner's detectors differ only in what they see and in how many numbers describe
a box. Units: cells of the output grid. Method: channel 0 is the logit of "an object's centre is in this cell",
trained with a focal loss; then `numbers` channels of regression, trained with absolute error where a centre is; then
one logit a class. Limits: two centres in one cell are one object.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Tree = Any

#: Bias of the first channel: objects are rare.
RARE = -4.0


def centre_loss(output: Tree, target: Tree, numbers: int) -> Tree:
    """Mean loss per object; `target` has the output's shape, with 0/1 for centres and classes.

    Cells beside a centre carry a value between 0 and 1 in channel 0: as negatives they weigh less, by its fourth power.
    """
    centre = (target[:, 0] >= 1).astype(jnp.float32)
    chance = jax.nn.sigmoid(output[:, 0])
    hit = centre * jnp.log(chance + 1e-6) * (1 - chance) ** 2 * 4
    miss = (1 - target[:, 0]) ** 4 * (1 - centre) * jnp.log(1 - chance + 1e-6) * chance**2
    where = centre[:, None]
    numbers_error = (jnp.abs(output[:, 1 : 1 + numbers] - target[:, 1 : 1 + numbers]) * where).sum()
    classes = jax.nn.log_softmax(output[:, 1 + numbers :], axis=1) * target[:, 1 + numbers :]
    return (-hit.sum() - miss.sum() + numbers_error - 0.5 * (classes * where).sum()) / (centre.sum() + 1)
