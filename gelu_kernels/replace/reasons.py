"""The reasons in a report: why something stays as it is and, where it helps, what to write
instead."""


def _reason(why: str, instead: str = "") -> str:
    return f"{why}; {instead}" if instead else why


def _use(package: str, *names: str) -> str:
    return f"use gelu_kernels.{package}.{' or '.join(names)} instead"


_FUNCTION = _use("functional", "gelu", "silu")
_MODULE = _use("nn", "GELU", "SiLU")
_ATTRIBUTE = "make it an attribute of the module"
_UNDO = "undo that first"


def left_alone(why: str) -> str:
    return _reason(why, _FUNCTION)


def not_fused(why: str) -> str:
    return _reason(why, _use("functional", "glu", "bias_gelu"))


def not_recomputed(why: str) -> str:
    return _reason(why, _use("functional", "gate_linear", "glu_linear"))


# An activation, or a value named like one

OVERWRITES = _reason("it overwrites its input", "construct it with inplace=False")
ACT_REPLACED = _reason("its act was replaced", _UNDO)
FORWARD_REPLACED = _reason("its forward was replaced", _UNDO)
COMPILED = _reason("it is compiled", "compile it afterwards")
HELD_BY_CLASS = _reason("its class holds it", _ATTRIBUTE)
NOT_CALLED = left_alone("no method calls it")


def kept_in(container: object) -> str:
    return _reason(f"it is kept in a {type(container).__name__}", _ATTRIBUTE)


def not_known(description: str) -> str:
    return _reason(f"{description} is not known to be one of the gates", f"if it is, {_MODULE}")


def not_only_called(method: str) -> str:
    return left_alone(f"{method} does not only call it with a tensor")


# A method

NOT_KNOWN_FORMULA = _reason(
    "it computes a gate that is not known", f"if it is GELU or SiLU, {_FUNCTION}"
)
ONLY_FORWARD = left_alone("of a Sequential, only forward is fused")


def unread(method: str) -> str:
    """Why a method is not read, without a remedy, as that depends on what is in it."""
    if "." in method:
        return f"{method} is reached by super()"
    return f"{method} is no plain method, or no source is found that is the code that runs"


def calls(function: str, why_unread: str = "") -> str:
    why = f"it calls {function} itself" + (f", and {why_unread}" if why_unread else "")
    named = [name for name in ("gelu", "silu") if name in function.lower()]
    return _reason(why, _use("functional", *named)) if named else left_alone(why)


# A fusion

PARAMETRIZED = not_fused("its module is parametrized")
USED_ELSEWHERE = _reason("its result is used elsewhere too", "call it again there")
NO_LINEAR_BEFORE = _reason(
    "no Linear is seen to come before it", "if one does, write act(linear(x)) in one method"
)
NO_LINEAR_AFTER = _reason(
    "no Linear is seen to come after it", "if one does, write linear(act(x)) in one method"
)


def not_derived(cls: type, error: Exception, operators: set[str]) -> str:
    """``operators`` are the functions of fused.py that its methods would call."""
    why = f"no class can be derived from {cls.__name__}: {error}"
    return _reason(why, _use_operator(*operators))


def may_write(operator: str) -> str:
    return _reason("something that may write stands in between", _use_operator(operator))


def stands_between(method: str, is_view: bool) -> str:
    why = f"{method} stands between it and the product"
    return _reason(why, "call it before the activation" if is_view else "")


# Nothing replaces a layer with a hook or an adapter, and a layer without a bias has none to fuse.


def not_plain_before(layer: str) -> str:
    return _reason(f"{layer} before it is no plain Linear with a bias")


def not_plain_after(layer: str) -> str:
    return _reason(f"{layer} after it is no plain Linear")


def _use_operator(*operators: str) -> str:
    """For functions of fused.py. ``weighted_glu`` is ``glu`` with a weight."""
    return _use("functional", *sorted({name.removeprefix("weighted_") for name in operators}))
