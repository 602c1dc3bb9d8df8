"""The options of :func:`replace_activations`, and what it finds in a module."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    names: tuple[str, ...] = ()  # of the activations to replace: "gelu", "silu"
    fuse_glu: bool = False
    fuse_bias: bool = False
    recompute: bool = False

    def __or__(self, other: "Options") -> "Options":
        return Options(
            tuple(dict.fromkeys(self.names + other.names)),
            self.fuse_glu or other.fuse_glu,
            self.fuse_bias or other.fuse_bias,
            self.recompute or other.recompute,
        )


@dataclass
class Found:
    """What is found in the methods of one module."""

    operators: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by the method's name
    left_alone: dict[str, str] = field(default_factory=dict)  # names to reasons
    not_fused: dict[str, str] = field(default_factory=dict)
    not_recomputed: dict[str, str] = field(default_factory=dict)
