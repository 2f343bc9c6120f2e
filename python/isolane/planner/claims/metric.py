"""The formulas of claims: numbers of runs, arithmetic, comparisons.

Problem: a claim says what it measures as a formula over its runs, `vs:plan.profiling_cost_s / v:plan.profiling_cost_s`; the
program in Rust reads the same text, so the grammar is the one that `docs/internals/claims.md` gives, as far as claims of the
planner need it. Method: measurements become calls, and what Python's own parser makes of the rest is walked over a short
list of allowed nodes; nothing is executed. Units: those of the measurements.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

MEASUREMENT = re.compile(r"\b([A-Za-z_]\w*):plan\.([A-Za-z_]\w*)")

#: What a run gave, by name.
Numbers = Mapping[str, float]


class MetricError(Exception):
    """A formula that cannot be read, or that has no value."""


OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


class Metric:
    """One formula."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        replaced = MEASUREMENT.sub(r'plan("\1", "\2")', self.text)
        try:
            self.tree = ast.parse(replaced, mode="eval").body
        except SyntaxError as error:
            raise MetricError(f"metric {self.text!r}: {error.msg}") from error
        self.labels = list(dict.fromkeys(label for label, _ in MEASUREMENT.findall(self.text)))

    @property
    def is_ordering(self) -> bool:
        """Whether it is true or false instead of a number."""
        return isinstance(self.tree, (ast.Compare, ast.BoolOp))

    def value(self, runs: Mapping[str, Numbers]) -> float | bool:
        """The formula's value; `runs` are by label."""
        try:
            return self._walk(self.tree, runs)
        except ZeroDivisionError as error:
            raise MetricError(f"metric {self.text!r} divides by zero") from error

    def _walk(self, node: ast.expr, runs: Mapping[str, Numbers]) -> float | bool:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return float(number)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -self._walk(inner, runs)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATIONS:
                return OPERATIONS[type(operator)](self._walk(left, runs), self._walk(right, runs))
            case ast.Compare(left=left, ops=[comparison], comparators=[right]) if type(comparison) in COMPARISONS:
                return COMPARISONS[type(comparison)](self._walk(left, runs), self._walk(right, runs))
            case ast.BoolOp(op=ast.And(), values=parts):
                return all([self._walk(part, runs) for part in parts])
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=arguments, keywords=[]) if arguments:
                values = [self._walk(argument, runs) for argument in arguments]
                return min(values) if name == "min" else max(values)
            case ast.Call(func=ast.Name(id="plan"), args=[ast.Constant(value=str(label)), ast.Constant(value=str(field))]):
                if label not in runs:
                    raise MetricError(f"metric {self.text!r}: no [[run]] has the label {label!r}")
                if field not in runs[label]:
                    raise MetricError(f"run {label!r} measured no {field}; it has {', '.join(sorted(runs[label]))}")
                return runs[label][field]
        raise MetricError(f"metric {self.text!r}: {ast.unparse(node)!r} is no part of the language")
