"""Row filters: conditions on columns of a table, as expressions of pyarrow or as text, which is parsed, never run.

Whether a row is kept depends on that row alone. How many are kept depends on people's values.
"""

from __future__ import annotations

import ast
import datetime
import operator
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, TypeAlias

from dpgep.sources.csv import CsvFiles
from dpgep.sources.encoding import Declared, is_date_type
from dpgep.sources.names import Key, missing
from dpgep.sources.tables import ArrowTable, is_numeric, pyarrow

# Text, or a pyarrow.compute.Expression.
Condition: TypeAlias = Any

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_LONGEST = 10_000
_ALLOWED = (
    "names of columns, numbers, text, True, False, comparisons, in [...], is None, and, or, not, as in "
    "\"age >= 18 and region in ['north', 'south']\""
)


def check_condition(condition: Any) -> Condition:
    """A filter as it was given. Raises TypeError unless it is text or an expression."""
    if not isinstance(condition, (str, pyarrow(".compute").Expression)):
        raise TypeError(f"filter must be text or a pyarrow.compute.Expression, got {type(condition).__name__}")
    return condition


class Filtered(ArrowTable):
    """The rows of a table that meet a condition; nobody knows how many they are."""

    n_rows = None

    def __init__(self, source: ArrowTable, condition: Condition) -> None:
        self._source = source
        self.schema = source.schema
        self.repeatable = source.repeatable
        self.reads_ahead = source.reads_ahead
        self._condition = condition
        self._found_text = source.found_text if isinstance(source, CsvFiles) else frozenset()
        self._needed = _columns_of(self._expression(self.schema), self.schema)
        if isinstance(source, CsvFiles) and not isinstance(condition, str):
            for name in source.found_types.intersection(self._needed):
                raise _only_in_text(name)

    @property
    def types(self) -> Any:
        return self._source.types

    def declared(self, key: Key) -> Declared | None:
        return self._source.declared(key)

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
        return parsed(self._condition, schema, self._found_text) if is_text else self._condition


def _kept(table: Any, expression: Any) -> Iterator[Any]:
    """The rows that meet a condition, in tables; not those of which it cannot be computed: 6 / y where y is 0.

    Otherwise one person would decide whether a run fails. Rows are halved until what fails is one of them.
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

    A comparison with a missing value (NaN, too) is neither true nor false: three-valued logic, as in SQL. Raises
    ValueError for what is no condition, names no column, or compares values of different kinds. Of ``found_text``,
    columns that one person's value may have made text, it takes only what keeps the same other people or is refused
    where they are none: otherwise that person would decide who else is kept.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"the filter is longer than {_LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _Parser(schema, found_text).condition(tree.body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"the filter {text!r} is no condition; allowed are {_ALLOWED}") from None


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
        name = self._name(node)
        if name is None:
            raise _not_allowed(node)
        if self._kind(name) != "true or false":
            raise ValueError(f"the filter takes column {name!r} for true or false, but it holds {self._kind(name)}")
        return self._column(name)

    def _comparison(self, left: ast.expr, how: ast.cmpop, right: ast.expr) -> Any:
        name = self._name(left)
        if isinstance(how, (ast.Is, ast.IsNot)):
            if name is None or not (isinstance(right, ast.Constant) and right.value is None):
                raise ValueError("in a filter, 'is' asks for a missing value: column is None, column is not None")
            self._require_declared(name)
            column = self._column(name)
            return column.is_null() if isinstance(how, ast.Is) else column.is_valid()
        if isinstance(how, (ast.In, ast.NotIn)):
            if name is None or not isinstance(right, (ast.List, ast.Tuple, ast.Set)) or not right.elts:
                raise ValueError("in a filter, 'in' asks for a list of values: column in ['a', 'b']")
            found = self._is_in(name, right.elts)
            return found if isinstance(how, ast.In) else ~found
        other = self._name(right)
        if name is None and other is None:
            raise ValueError(f"a comparison in a filter needs a column: {ast.unparse(left)} and {ast.unparse(right)}")
        if name is not None and other is not None and self._kind(name) != self._kind(other):
            raise ValueError(
                f"the filter compares column {name!r}, which holds {self._kind(name)}, with {other!r}, which holds "
                f"{self._kind(other)}"
            )
        if (name is not None and other is not None) or not isinstance(how, (ast.Eq, ast.NotEq)):
            self._require_declared(name, other)
        compare = _COMPARISONS[type(how)]
        if name is None:
            assert other is not None  # one of two operands is a column
            value, column = self._beside(self._value(left, other), other)
            return compare(value, column)
        if other is None:
            value, column = self._beside(self._value(right, name), name)
            return compare(column, value)
        return compare(*self._columns(name, other))

    def _is_in(self, name: str, nodes: Iterable[ast.expr]) -> Any:
        pairs = [self._beside(self._value(node, name), name) for node in nodes]
        return reduce(operator.or_, [column == value for value, column in pairs])

    def _beside(self, value: Any, name: str) -> tuple[Any, Any]:
        """A value and the column with which it is compared, of one type: pyarrow's own casts fail at some values."""
        column, kind = self._column(name), self._type(name)
        if self._kind(name) != "numbers":
            return self._pc.scalar(value), column
        if isinstance(value, int) and self._pa.types.is_integer(kind):
            try:
                return self._pc.scalar(self._pa.scalar(value, kind)), column
            except (OverflowError, self._pa.ArrowInvalid):
                pass
        return self._pc.scalar(self._pa.scalar(float(value), self._pa.float64())), self._rounded(column)

    def _columns(self, name: str, other: str) -> tuple[Any, Any]:
        """Two columns that are compared, in types whose comparison cannot fail."""
        columns, kinds = (self._column(name), self._column(other)), {self._type(name), self._type(other)}
        if self._kind(name) != "numbers" or _compare_exactly(kinds):
            return columns
        return self._rounded(columns[0]), self._rounded(columns[1])

    def _rounded(self, column: Any) -> Any:
        """Numbers in floating point, whole ones beyond 2^53 rounded."""
        return column.cast(self._pa.float64(), safe=False)

    def _name(self, node: ast.expr) -> str | None:
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
        return str(name)

    def _type(self, name: str) -> Any:
        kind = self._schema.field(name).type
        return kind.value_type if self._pa.types.is_dictionary(kind) else kind

    def _kind(self, name: str) -> str:
        """What a column holds."""
        kind, types = self._type(name), self._pa.types
        if types.is_boolean(kind):
            return "true or false"
        if is_numeric(kind):
            return "numbers"
        if types.is_string(kind) or types.is_large_string(kind):
            return "text"
        if is_date_type(kind):
            return "dates"
        raise ValueError(
            f"column {name!r} ({kind}) cannot be in a filter: it holds no numbers, text, dates or booleans"
        )

    def _column(self, name: str) -> Any:
        kind = self._kind(name)  # refuses what cannot be compared
        column, stored = self._pc.field(name), self._schema.field(name).type
        if self._pa.types.is_floating(stored):
            return self._pc.if_else(self._pc.is_nan(column), self._pa.scalar(None, stored), column)
        if self._pa.types.is_dictionary(stored):
            column = column.cast(self._type(name))
        return column.cast(self._moment(name), safe=False) if kind == "dates" else column

    def _moment(self, name: str) -> Any:
        """The type in which dates and times are compared, whatever their own: of a CSV, one person may decide that."""
        zoned = getattr(self._type(name), "tz", None) is not None
        return self._pa.timestamp("us", "UTC" if zoned else None)

    def _value(self, node: ast.expr, name: str) -> Any:
        """A constant beside a column, as a value of its kind."""
        sign, inner = 1, node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            sign, inner = (-1 if isinstance(node.op, ast.USub) else 1), node.operand
        kind = self._kind(name)
        value: Any = inner.value if isinstance(inner, ast.Constant) else None
        if value is None or (inner is not node and not _is_number(value)):
            raise _not_allowed(node)
        if kind == "numbers" and _is_number(value) and abs(value) < 1 << 63:
            return sign * value
        if kind == "dates" and isinstance(value, str):
            return self._date(value, name)
        if (kind, type(value)) in (("text", str), ("true or false", bool)):
            if kind == "text" and _is_date(value):  # beside dates it would mean something else
                self._require_declared(name)
            return value
        raise ValueError(f"the filter compares column {name!r}, which holds {kind}, with {ast.unparse(node)}")

    def _require_declared(self, *names: str | None) -> None:
        for name in self._found_text.intersection(names):
            raise _not_declared(name)

    def _date(self, text: str, name: str) -> Any:
        try:
            return self._pa.scalar(_moment_of(text), self._moment(name))
        except (ValueError, OverflowError):
            raise ValueError(
                f"the filter compares dates of column {name!r} with {text!r}: write 2024-03-31, or a time of whole "
                "microseconds"
            ) from None


def _compare_exactly(kinds: set[Any]) -> bool:
    """Whether pyarrow compares numbers of these types as they are, whatever they are."""
    types = pyarrow().types
    if not all(map(types.is_integer, kinds)):
        return len(kinds) == 1 and all(map(types.is_decimal, kinds))
    return len(kinds) == 1 or not any(map(types.is_uint64, kinds)) or all(map(types.is_unsigned_integer, kinds))


def _not_declared(name: str) -> ValueError:
    return ValueError(
        f"column {name!r} was inferred to be text from the first megabyte, possibly from one person's value: declare "
        f"categories={{{name!r}: [...]}}, or compare it by == or in alone"
    )


def _only_in_text(name: str) -> ValueError:  # does not name the type, which one person may have decided
    return ValueError(
        f"column {name!r} was inferred not to be numeric from the first megabyte, possibly from one person's value: "
        "write the filter as text instead of an expression of pyarrow"
    )


def _moment_of(text: str) -> datetime.datetime:
    """The time that a text stands for, midnight of a date. Raises ValueError for none, and for one that is finer."""
    if re.search(r"[.,]\d{7}", text):  # Python would leave out these digits
        raise ValueError("finer than a microsecond")
    return datetime.datetime.fromisoformat(text)


def _is_date(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _not_allowed(node: ast.expr) -> ValueError:
    return ValueError(f"{ast.unparse(node)!r} cannot stand in a filter; allowed are {_ALLOWED}")
