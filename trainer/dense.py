"""Dense parameters in one flat array, and their Adam.

Parameters and gradients of a torch module become views into two flat arrays, so that one loop over numbers is the whole
optimizer step (a torch optimizer costs more than the model at 64 rows a step).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numba
import numpy as np
import numpy.typing as npt
import torch

from experiments.experiment import Adam as AdamSpec
from preprocess.contracts import Float32
from streams.errors import SchemaMismatch

_LARGEST = float(np.finfo(np.float32).max)
State = dict[str, dict[str, npt.NDArray[np.generic]]]


def adam_reference(values: Float32, grads: Float32, moments: tuple[Float32, Float32], factors: Float32) -> None:
    """One step of Adam (Kingma and Ba 2015) in place; plain numpy. All arrays float32 of one length.

    With ``factors`` = (1 − β1, 1 − β2, lr / (1 − β1^t), 1 / √(1 − β2^t), eps), each rounded to float32:
    ``m += (g − m)·(1 − β1)``; ``v += (g·g − v)·(1 − β2)``; ``x −= lr' · m / (√v · c + eps)``.
    """
    first, second = moments
    rate1, rate2, step_size, correction, eps = factors
    first += (grads - first) * rate1
    second += (grads * grads - second) * rate2
    values -= step_size * (first / (np.sqrt(second) * correction + eps))


@numba.njit(cache=True, error_model="numpy")  # no fastmath: each number is rounded as in the reference, on any CPU
def adam_fast(
    values: Float32, grads: Float32, moments: tuple[Float32, Float32], factors: Float32
) -> None:  # pragma: no cover
    """As ``adam_reference``, in one pass; the same bits."""
    first, second = moments
    rate1, rate2, step_size, correction, eps = factors[0], factors[1], factors[2], factors[3], factors[4]
    for i in range(len(values)):
        grad = grads[i]
        m = first[i] + (grad - first[i]) * rate1
        v = second[i] + (grad * grad - second[i]) * rate2
        first[i] = m
        second[i] = v
        values[i] -= step_size * (m / (np.sqrt(v) * correction + eps))


class Dense:
    """The dense parameters of a model with their gradients and Adam state.

    ``steps`` counts the optimizer steps made. Not thread safe.
    """

    def __init__(self, module: torch.nn.Module, spec: AdamSpec) -> None:
        self._spec = spec
        self._parameters = dict(sorted(module.named_parameters()))
        size = sum(parameter.numel() for parameter in self._parameters.values())
        self.values, self.grads = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self._moments = (np.zeros(size, np.float32), np.zeros(size, np.float32))
        self._slices: dict[str, tuple[slice, tuple[int, ...]]] = {}
        self.steps = 0
        at = 0
        for name, parameter in self._parameters.items():
            place = slice(at, at := at + parameter.numel())
            self._slices[name] = (place, tuple(parameter.shape))
            self.values[place] = parameter.detach().numpy().reshape(-1)
            parameter.data = torch.from_numpy(self.values[place]).view(parameter.shape)
            parameter.grad = torch.from_numpy(self.grads[place]).view(parameter.shape)

    def clear_grads(self) -> None:
        """Zero all gradients; ``backward`` adds to them."""
        self.grads.fill(0)

    def apply(self, share: float) -> None:
        """One Adam step on the gradients. ``share`` in (0, 1]: rows of the step / nominal rows; it scales the learning
        rate, because Adam ignores that the loss of a short step is divided by the nominal rows."""
        self.steps += 1
        spec = self._spec
        factors = np.array(
            [
                1 - spec.beta1,
                1 - spec.beta2,
                min(spec.lr * share / (1 - spec.beta1**self.steps), _LARGEST),
                1 / math.sqrt(1 - spec.beta2**self.steps),
                spec.eps,
            ],
            np.float32,
        )
        adam_fast(self.values, self.grads, self._moments, factors)

    def parameters(self) -> dict[str, Float32]:
        """Copies by name."""
        return {name: self.values[place].reshape(shape).copy() for name, (place, shape) in self._slices.items()}

    def optimizer(self) -> State:
        """Copies by name and slot: ``exp_avg``, ``exp_avg_sq`` of the parameter's shape, ``step`` int64."""
        first, second = self._moments
        return {
            name: {
                "exp_avg": first[place].reshape(shape).copy(),
                "exp_avg_sq": second[place].reshape(shape).copy(),
                "step": np.array(self.steps, np.int64),
            }
            for name, (place, shape) in self._slices.items()
        }

    def load(self, parameters: Mapping[str, Float32], optimizer: Mapping[str, Mapping[str, npt.NDArray]]) -> None:  # type: ignore[type-arg]
        """Take over saved values. Raises ``SchemaMismatch`` unless names and shapes are exactly those of the model."""
        shapes = {name: shape for name, (_, shape) in self._slices.items()}
        for saved in (parameters, *({n: s[slot] for n, s in optimizer.items()} for slot in ("exp_avg", "exp_avg_sq"))):
            got = {name: tuple(value.shape) for name, value in saved.items()}
            if got != shapes:
                raise _mismatch(str(shapes), str(got))
        steps = {int(slots["step"]) for slots in optimizer.values()}
        if len(steps) > 1:
            raise _mismatch("one number of optimizer steps for all parameters", str(sorted(steps)))
        for name, (place, _) in self._slices.items():
            self.values[place] = parameters[name].reshape(-1)
            self._moments[0][place] = optimizer[name]["exp_avg"].reshape(-1)
            self._moments[1][place] = optimizer[name]["exp_avg_sq"].reshape(-1)
        self.steps = steps.pop() if steps else 0


def _mismatch(expected: str, got: str) -> SchemaMismatch:
    return SchemaMismatch(
        expected=expected,
        got=got,
        where="dense parameters of a checkpoint",
        do="The checkpoint belongs to another model. Move it away, or publish the experiment under another name.",
    )
