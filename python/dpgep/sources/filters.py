"""Row filters: conditions on columns of a table, as expressions of pyarrow or as text, which is parsed, never run.

Whether a row is kept depends on that row alone. How many are kept depends on people's values.
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import operator
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

from dpgep._checks import quoted
from dpgep.sources.encoding import is_date_type
from dpgep.sources.names import Key, missing, stands_for
from dpgep.sources.tables import ArrowTable, is_numeric, pyarrow

# Text, or a pyarrow.compute.Expression.
Condition: TypeAlias = Any

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_LONGEST = 10_000
_ALLOWED = (
    "names of columns, numbers, text, True, False, comparisons, in [...], is None, and, or, not, as in "
    "\"age >= 18 and region in ['north', 'south']\""
)


class Filtered(ArrowTable):
    """The rows of a table that meet a condition; nobody knows how many they are."""

    n_rows = None
    types: Any = None  # those of the source

    def __init__(self, source: ArrowTable, condition: Condition) -> None:
        if not isinstance(condition, (str, pyarrow(".compute").Expression)):
            raise TypeError(f"filter must be text or a pyarrow.compute.Expression, got {type(condition).__name__}")
        self._source = source
        self.repeatable = source.repeatable
        self.reads_ahead = source.reads_ahead
        self._condition = condition
        self.found_text = source.found_text
        self._take_types()
        for name in () if isinstance(condition, str) else source.found_types.intersection(self._needed):
            # does not name the type, which one person may have decided
            found = "was inferred not to be numeric from the first megabyte, possibly from one person's value"
            advice = "write the filter as text instead of an expression of pyarrow"
            raise ValueError(f"column {quoted(name)} {found}: {advice}")

    def _take_types(self) -> None:
        self.schema, self.types = self._source.schema, self._source.types
        self._needed = _columns_of(self._expression(self.schema), self.schema)

    def read_as_text(self, key: Key) -> None:
        self._source.read_as_text(key)
        self._take_types()

    def needed(self, keys: Sequence[Key]) -> list[Hashable]:
        return list(dict.fromkeys([*super().needed(keys), *self._needed]))

    def record_batches(self, names: list[str], rows: int) -> Iterator[Any]:
        schema = None
        for batch in self._source.record_batches(list(dict.fromkeys([*names, *self._needed])), rows):
            if batch.schema != schema:  # of another file, whose numbers may be of another type
                schema = batch.schema
                expression = self._expression(schema)
                _check_fits(schema, expression)
            # as a table: pyarrow 17 fails at a batch of which nothing is left
            for kept in _kept(pyarrow().Table.from_batches([batch]), expression):
                yield from kept.to_batches()

    def _expression(self, schema: Any) -> Any:
        is_text = isinstance(self._condition, str)
        return parsed(self._condition, schema, self.found_text) if is_text else self._condition


def _kept(table: Any, expression: Any) -> Iterator[Any]:
    """The rows that meet a condition, in tables; not those of which it cannot be computed, as 6 / 0: one person would
    decide whether a run fails. Rows are halved until what fails is one of them.
    """
    pa = pyarrow()
    try:
        found = table.filter(expression)
    except (MemoryError, pa.ArrowCancelled):
        raise
    except pa.ArrowException:
        found = None
    if found is not None:
        yield found
    elif table.num_rows > 1:
        half = table.num_rows // 2
        yield from _kept(table.slice(0, half), expression)
        yield from _kept(table.slice(half), expression)


def _columns_of(expression: Any, schema: Any) -> list[str]:
    """The columns that a condition needs, in the order of the table. Raises ValueError for one that does not fit it."""
    if "FieldPath(" in str(expression):  # a place among columns, which moves as others are left out
        raise ValueError("a filter must name its columns, not number them: pyarrow.compute.field('age')")
    _check_fits(schema, expression)
    return [name for i, name in enumerate(schema.names) if _misfit(schema.remove(i), expression) is not None]


def _check_fits(schema: Any, expression: Any) -> None:
    misfit = _misfit(schema, expression)
    if misfit is not None:
        raise ValueError(f"the filter does not fit the columns: {misfit}")


def _misfit(schema: Any, expression: Any) -> Exception | None:
    """Why an expression cannot be computed of any rows, None if it can: their types decide, as there are no rows."""
    try:
        schema.empty_table().filter(expression)
    except (pyarrow().ArrowException, TypeError) as error:
        return error
    return None


def parsed(text: str, schema: Any, found_text: frozenset[str] = frozenset()) -> Any:
    """The pyarrow expression that a condition in Python's syntax stands for, of columns of a schema.

    A comparison with a missing value (NaN, too) is neither true nor false: three-valued logic, as in SQL. Of
    ``found_text``, columns that one person's value may have made text, it takes only what keeps the same other people
    or is refused where they are none: otherwise that person would decide who else is kept.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"the filter is longer than {_LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _Parser(schema, found_text).condition(tree.body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"the filter {text!r} is no condition; allowed are {_ALLOWED}") from None


@dataclass(frozen=True)
class _Column:
    """A column in a condition: what it holds, the type of its values, and the expression that stands for it."""

    name: str
    holds: str
    type: Any
    values: Any

    @classmethod
    def of(cls, name: str, schema: Any) -> _Column:
        pa, pc, stored = pyarrow(), pyarrow(".compute"), schema.field(name).type
        kind = stored.value_type if pa.types.is_dictionary(stored) else stored
        holds, values = _holds(name, kind), pc.field(name)
        if pa.types.is_floating(stored):
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, stored), values)
        if kind != stored:
            values = values.cast(kind)
        if holds == "dates":
            # whatever the resolution of the column is: of a CSV, one person may decide that
            kind = pa.timestamp("us", "UTC" if getattr(kind, "tz", None) is not None else None)
            values = values.cast(kind, safe=False)
        return cls(name, holds, kind, values)

    def __str__(self) -> str:
        return f"column {quoted(self.name)}, which holds {self.holds}"

    @property
    def rounded(self) -> Any:
        """Numbers in floating point, whole ones beyond 2^53 rounded."""
        return self.values.cast(pyarrow().float64(), safe=False)


class _Parser:
    def __init__(self, schema: Any, found_text: frozenset[str]) -> None:
        self._schema = schema
        self._found_text = found_text
        self._pa, self._pc = pyarrow(), pyarrow(".compute")

    def condition(self, node: ast.expr) -> Any:
        if isinstance(node, ast.BoolOp):
            join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return reduce(join, map(self.condition, node.values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.condition(node.operand)
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            return reduce(operator.and_, map(self._comparison, operands, node.ops, operands[1:]))
        column = self._column(node)
        if column is None:
            raise _not_allowed(node)
        if column.holds != "true or false":
            raise ValueError(f"the filter takes {column}, for true or false")
        return column.values

    def _comparison(self, left: ast.expr, how: ast.cmpop, right: ast.expr) -> Any:
        column, other = self._column(left), self._column(right)
        if isinstance(how, (ast.Is, ast.IsNot)):
            if column is None or not (isinstance(right, ast.Constant) and right.value is None):
                raise ValueError("in a filter, 'is' asks for a missing value: column is None, column is not None")
            self._require_declared(column)
            return column.values.is_null() if isinstance(how, ast.Is) else column.values.is_valid()
        if isinstance(how, (ast.In, ast.NotIn)):
            if column is None or not isinstance(right, (ast.List, ast.Tuple, ast.Set)) or not right.elts:
                raise ValueError("in a filter, 'in' asks for a list of values: column in ['a', 'b']")
            found = reduce(operator.or_, [operator.eq(*self._beside(column, node)) for node in right.elts])
            return found if isinstance(how, ast.In) else ~found
        compare = _COMPARISONS[type(how)]
        if column is not None and other is not None:
            self._require_declared(column, other)
            return compare(*_alike(column, other))
        known = column or other
        if known is None:
            raise ValueError(f"a comparison in a filter needs a column: {ast.unparse(left)} and {ast.unparse(right)}")
        if not isinstance(how, (ast.Eq, ast.NotEq)):
            self._require_declared(known)
        return compare(*self._beside(known, right)) if other is None else compare(*self._beside(known, left)[::-1])

    def _beside(self, column: _Column, node: ast.expr) -> tuple[Any, Any]:
        """A column and the constant it is compared with, of one type: pyarrow's own casts fail at some values."""
        value = self._value(node, column)
        if column.holds != "numbers":
            return column.values, self._pc.scalar(value)
        if isinstance(value, int) and self._pa.types.is_integer(column.type):
            try:
                return column.values, self._pc.scalar(self._pa.scalar(value, column.type))
            except (OverflowError, self._pa.ArrowInvalid):
                pass
        return column.rounded, self._pc.scalar(self._pa.scalar(float(value), self._pa.float64()))

    def _column(self, node: ast.expr) -> _Column | None:
        """The column that a node names, None for what is no column."""
        if isinstance(node, ast.Name):
            name: Any = node.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "column":
            if len(node.args) != 1 or node.keywords or not isinstance(node.args[0], ast.Constant):
                raise _not_allowed(node)
            name = node.args[0].value
        else:
            return None
        if name not in self._schema.names:
            raise missing(name, self._schema.names)
        return _Column.of(name, self._schema)

    def _value(self, node: ast.expr, column: _Column) -> Any:
        value: Any = None
        with contextlib.suppress(ValueError, TypeError):
            value = ast.literal_eval(node)
        if type(value) not in (bool, int, float, str):
            raise _not_allowed(node)
        is_number = not isinstance(value, (str, bool))
        if column.holds == "numbers" and is_number and abs(value) < 1 << 63:
            return value
        if column.holds == "dates" and isinstance(value, str):
            return self._date(value, column)
        if (column.holds, type(value)) not in (("text", str), ("true or false", bool)):
            raise ValueError(f"the filter compares {column}, with {ast.unparse(node)}")
        # beside dates it would mean something else
        if column.holds == "text" and stands_for(value, datetime.datetime.fromisoformat):
            self._require_declared(column)
        return value

    def _require_declared(self, *columns: _Column) -> None:
        for name in (column.name for column in columns):
            if name in self._found_text:
                found = "was inferred to be text from the first megabyte, possibly from one person's value"
                advice = f"declare categories={{{name!r}: [...]}}, or compare it by == or in alone"
                raise ValueError(f"column {quoted(name)} {found}: {advice}")

    def _date(self, text: str, column: _Column) -> Any:
        try:
            if re.search(r"[.,]\d{7}", text):  # Python would leave out these digits
                raise ValueError("finer than a microsecond")
            return self._pa.scalar(datetime.datetime.fromisoformat(text), column.type)
        except (ValueError, OverflowError):
            shown = f"{text!r}: write 2024-03-31, or a time of whole microseconds"
            raise ValueError(f"the filter compares dates of column {quoted(column.name)} with {shown}") from None


def _holds(name: str, kind: Any) -> str:
    """What a column of this type holds. Raises ValueError for what cannot be compared."""
    types = pyarrow().types
    if types.is_boolean(kind):
        return "true or false"
    if is_numeric(kind):
        return "numbers"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if is_date_type(kind):
        return "dates"
    raise ValueError(f"column {quoted(name)} ({kind}) is not numbers, text, dates or booleans, as filters need")


def _alike(column: _Column, other: _Column) -> tuple[Any, Any]:
    """Two columns that are compared, in types whose comparison cannot fail."""
    if column.holds != other.holds:
        raise ValueError(f"the filter compares {column}, with {other}")
    types, kinds = pyarrow().types, {column.type, other.type}
    # whether pyarrow compares numbers of these types as they are, whatever they are
    if not all(map(types.is_integer, kinds)):
        exactly = len(kinds) == 1 and all(map(types.is_decimal, kinds))
    else:
        exactly = len(kinds) == 1 or not any(map(types.is_uint64, kinds)) or all(map(types.is_unsigned_integer, kinds))
    if column.holds != "numbers" or exactly:
        return column.values, other.values
    return column.rounded, other.rounded


def _not_allowed(node: ast.expr) -> ValueError:
    return ValueError(f"{ast.unparse(node)!r} cannot stand in a filter; allowed are {_ALLOWED}")
