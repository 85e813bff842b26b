"""AdamW (arXiv 1711.05101), with gradients clipped by their common norm."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from examples.grpo_tiny.layers import Array

EPSILON = 1e-8


@dataclass
class AdamW:
    """Changes weights in place. Vectors, which are gains and biases, don't decay."""

    rate: float
    decay: float = 0.0
    largest_norm: float = 1.0
    betas: tuple[float, float] = (0.9, 0.95)
    steps: int = 0
    first: dict[str, Array] = field(default_factory=dict)
    second: dict[str, Array] = field(default_factory=dict)

    def step(self, weights: dict[str, Array], gradients: Mapping[str, Array]) -> float:
        """One update. Returns the gradients' norm before clipping."""
        norm = float(np.sqrt(sum(float(np.square(each).sum()) for each in gradients.values())))
        scale = min(1.0, self.largest_norm / norm) if norm > 0 else 1.0
        self.steps += 1
        beta1, beta2 = self.betas
        for name, gradient in gradients.items():
            clipped = gradient * scale
            self.first[name] = beta1 * self.first.get(name, 0.0) + (1 - beta1) * clipped
            self.second[name] = beta2 * self.second.get(name, 0.0) + (1 - beta2) * np.square(clipped)
            mean = self.first[name] / (1 - beta1**self.steps)
            spread = np.sqrt(self.second[name] / (1 - beta2**self.steps)) + EPSILON
            decay = self.decay if gradient.ndim > 1 else 0.0
            change = self.rate * (mean / spread + decay * weights[name])
            weights[name] = (weights[name] - change).astype(weights[name].dtype)
        return norm
