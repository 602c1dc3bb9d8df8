"""The module classes of transformers and timm, and an instance of each on the meta device."""

import contextlib
import copy
import importlib
import importlib.machinery
import inspect
import re
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType

import torch
from torch import nn
from tqdm import tqdm

SECONDS = 20  # for one instance
SIZE = 16  # of what has no default
MODELS = 12  # of one file of timm, in which a class is looked for
_LAYERS = re.compile("layers$|^n_layer|depth$|num_blocks$")
_MISSING = re.compile(r"Config' object has no attribute '(\w+)'")
_SIZES = re.compile("size|num|dim|rank|experts")
_BY_NAME = {  # of an argument without a default
    "layer_idx|layer_id|layer_number|^i$|index|stage": 0,
    "drop|eps|rate": 0.0,
    "bias": True,
    "is_|use_": False,
    "act": "silu",
    "head": 2,
    "stride|dilation|groups": 1,
    "kernel": 3,
}


def transformers_modules() -> Iterator[ModuleType]:
    """One after another, what cannot be imported left out."""
    root = Path(importlib.import_module("transformers").__file__).parent / "models"
    for file in tqdm(sorted(root.glob("*/modeling_*.py")), desc="import"):
        with contextlib.suppress(ImportError):
            yield importlib.import_module(f"transformers.models.{file.parent.name}.{file.stem}")


def timm_modules() -> Iterator[ModuleType]:
    """Where torchvision does not load, without what timm has of it: data, and one norm layer."""
    root = Path(find_spec("timm").origin).parent
    try:
        importlib.import_module("timm")
    except (ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.startswith("timm")]:
            del sys.modules[name]
        for name in ("timm", "timm.data", "torchvision", "torchvision.ops", "torchvision.ops.misc"):
            sys.modules[name] = ModuleType(name)
        sys.modules["timm"].__path__ = [str(root)]
        sys.modules["timm"].__version__ = ""
        sys.modules["timm.data"].__path__ = [str(root / "data")]
        sys.modules["torchvision.ops.misc"].FrozenBatchNorm2d = type("Norm", (nn.Module,), {})
        vars(sys.modules["timm.data"]).update(vars(importlib.import_module("timm.data.constants")))
    for folder in ("layers", "models"):
        for file in sorted((root / folder).glob("[!_]*.py")):
            with contextlib.suppress(ImportError):
                yield importlib.import_module(f"timm.{folder}.{file.stem}")


def classes_of(module: ModuleType) -> list[type[nn.Module]]:
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    return [c for c in classes if issubclass(c, nn.Module) and c.__module__ == module.__name__]


class Configs:
    """The default configurations in the folder of a file of models, with few layers if possible."""

    def __init__(self) -> None:
        self._found: dict[str, list[object]] = {}

    def of(self, cls: type[nn.Module], wanted: object) -> list[object]:
        """The likeliest first."""
        module = sys.modules[cls.__module__]
        if module.__name__ not in self._found:
            self._found[module.__name__] = list(_configs(module))
        names = getattr(wanted, "__name__", wanted), getattr(cls, "config_class", None)

        def order(config: object) -> tuple[bool, bool, int]:
            name = type(config).__name__
            stem = name.removesuffix("Config")
            fits = cls.__name__.startswith(stem)
            return name != names[0], type(config) is not names[1], -len(stem) if fits else 0

        return sorted(self._found[module.__name__], key=order)


def _configs(module: ModuleType) -> Iterator[object]:
    base = importlib.import_module("transformers").PreTrainedConfig
    folder = Path(module.__file__).parent
    files = [f"{module.__package__}.{f.stem}" for f in folder.glob("configuration_*.py")]
    values = [v for m in (module, *map(importlib.import_module, files)) for v in vars(m).values()]
    kinds = [v for v in values if isinstance(v, type) and issubclass(v, base) and v is not base]
    found: dict[type, object] = {}
    for kind in dict.fromkeys(kinds):
        with contextlib.suppress(Exception):  # it has no defaults
            queue = [kind()]
            for config in queue:
                found.setdefault(type(config), config)
                queue += [v for v in vars(config).values() if isinstance(v, base)]
    for config in found.values():
        small = copy.deepcopy(config)
        for name, value in vars(config).items():
            if type(value) is int and value > 2 and _LAYERS.search(name):
                with contextlib.suppress(Exception):  # it is checked, or computed of others
                    setattr(small, name, 2)
        yield small
        yield config


def instance(cls: type[nn.Module], configs: Configs) -> nn.Module | str:
    """A module built alone or found in a model of the same file; else why there is none."""
    alone = build(cls, configs)
    for model in _models(cls.__module__, configs) if isinstance(alone, str) else ():
        for module in model.modules():
            if type(module) is cls:
                return module
    return alone


def _models(module: str, configs: Configs) -> Iterator[nn.Module]:
    if module.startswith("timm."):
        registry = importlib.import_module("timm.models._registry")
        for name in registry.list_models(module=module.rpartition(".")[2])[:MODELS]:
            with contextlib.suppress(Exception), _at_most(SECONDS), torch.device("meta"):
                yield registry.model_entrypoint(name)()
        return
    for cls in classes_of(sys.modules[module]):
        model = build(cls, configs) if hasattr(cls, "config_class") else ""
        if isinstance(model, nn.Module):
            yield model


def build(cls: type[nn.Module], configs: Configs) -> nn.Module | str:
    parameters = [*inspect.signature(cls.__init__).parameters.values()][1:]
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (2, 4)]
    wanted = next((p for p in needed if "config" in p.name), None)
    layer = {"layer_idx": 0} if any(p.name == "layer_idx" for p in parameters) else {}
    why = "no configuration has defaults"
    for config in configs.of(cls, wanted.annotation) if wanted else [None]:
        for more in (layer, {}) if layer else ({},):
            filled = copy.deepcopy(config)
            for _ in range(12):  # attributes that are missing, one by one
                arguments = {p.name: filled if p is wanted else _guess(p, filled) for p in needed}
                try:
                    with _at_most(SECONDS), torch.device("meta"):
                        return cls(**arguments | more)
                except TimeoutError as error:
                    return str(error)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # missing packages are no Exception
                    why = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
                    if not _fill(filled, str(error)):
                        break
    return why


def _fill(config: object, error: str) -> bool:
    """Give the configuration what it lacks; False if nothing is known."""
    missing = _MISSING.search(error)
    names = [k for k, v in vars(config).items() if v is None and _SIZES.search(k)] if config else []
    for name in [missing[1]] if missing and config else names:
        guessed = [value for pattern, value in _BY_NAME.items() if re.search(pattern, name)]
        with contextlib.suppress(Exception):  # it must be a list, for example
            setattr(config, name, SIZE if _SIZES.search(name) or not guessed else guessed[0])
    return bool(config and (missing or names))


def _guess(parameter: inspect.Parameter, config: object) -> object:
    if "config" in parameter.name:
        return config
    if "list" in str(parameter.annotation) or "tuple" in str(parameter.annotation):
        return (SIZE, SIZE)
    guessed = [v for pattern, v in _BY_NAME.items() if re.search(pattern, parameter.name)]
    if config is None and guessed == ["silu"]:
        return nn.SiLU
    held = getattr(config, parameter.name, None)
    return held if type(held) in (int, float, str) else (guessed or [SIZE])[0]


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it takes more than {seconds} s to build")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
