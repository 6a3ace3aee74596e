"""What the commands share: a parser whose messages name the nearest right word, kinds of arguments, output files."""

from __future__ import annotations

import argparse
import glob
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

from dpgep._checks import did_you_mean
from dpgep.errors import PrivacyBudgetError
from dpgep.serialization import Part, is_special

# A disk without room for this is full; most answers are smaller.
_ROOM = 1 << 20

T = TypeVar("T")
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

EXIT_CODES = (
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 the budget refuses, 130 interrupted.\n"
    "Results go to stdout, messages to stderr."
)


def say(text: str) -> None:
    """Write a line to stderr; where that is full or gone, the command goes on."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


ONE_VALUE = "an option takes one value: repeat it for each, --categories a=x,y --categories b=u,v"


class UsageError(ValueError):
    """Arguments that are no use together, or name what is not there; nothing was read or spent."""


@contextmanager
def usage() -> Iterator[None]:
    """What goes wrong inside is the fault of the arguments."""
    try:
        yield
    except PrivacyBudgetError:
        raise
    except (ValueError, TypeError, OSError) as error:
        raise UsageError(str(error)) from error


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations, and says which option or command was meant."""

    def __init__(self, *args: Any, **options: Any) -> None:
        usual = {"epilog": EXIT_CODES, "formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
        super().__init__(*args, **{**usual, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but an unknown option is refused before a missing one."""
        if self._subparsers is None and isinstance(args, list):
            for word in args[: args.index("--") if "--" in args else None]:
                name = word.partition("=")[0]
                if name.startswith("--") and name not in self._option_string_actions:
                    longer = [option for option in self._option_string_actions if option.startswith(name)]
                    self.error(f"no option {name}{did_you_mean(name, longer or self._option_string_actions)}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and a line, without the usage: ``--help`` has it."""
        wrong = re.search(r"invalid choice: '([^']*)'", message)
        if wrong:
            choices = [str(each) for action in self._actions for each in action.choices or ()]
            message = f"{message.partition(' (')[0]}{did_you_mean(wrong[1], choices)}"
        elif re.match(r"unrecognized arguments: [^-\s]", message):
            message += f" (words without an option stand together, and {ONE_VALUE})"
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def add_output(parser: Any, metavar: str, help: str, **options: Any) -> None:
    parser.add_argument("-o", "--output", type=Path, metavar=metavar, help=help, **options)
    parser.add_argument("--force", action="store_true", help="replace the output if it exists")


def add_action(
    actions: Any, name: str, summary: str, run: Callable[..., int], *, file: str, **defaults: Any
) -> argparse.ArgumentParser:
    """A command of a command, about a FILE; ``name``: both words."""
    description = f"{summary[0].upper()}{summary[1:]}."
    action: argparse.ArgumentParser = actions.add_parser(name.split()[1], help=summary, description=description)
    action.add_argument("file", metavar="FILE", help=file)
    action.set_defaults(run=run, command=name, **defaults)
    return action


class Output(Part):
    """The file of ``-o``: written as a whole or not at all, and known to be writable before anything is spent.

    Raises UsageError where it cannot be written, or is one of the ``inputs``.
    """

    def __init__(self, path: Path, *, force: bool, inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
        if is_special(path):
            raise UsageError(f"-o: {path} is a folder, a pipe or a device, not a file: choose another name")
        if os.path.exists(path) and not force:
            raise UsageError(f"-o: {path} exists: choose another name, or --force to replace it")
        places = (each for word in inputs for each in (word, *glob.glob(str(word))))
        if os.path.exists(path) and any(_holds(each, path) for each in places):
            raise UsageError(f"-o: {path} is read by this command: choose another name")
        super().__init__(path)
        self._shown, self._force = path, force

    def try_place(self) -> None:
        """Make it, with some room. Raises UsageError where that is impossible."""
        try:
            self.write(bytes(_ROOM))
        except OSError as error:
            raise UsageError(f"-o: {self._shown} cannot be written ({error.strerror})") from None

    def take(self) -> Path:
        """Give what was written its name; another one where that was taken meanwhile. Returns the path."""
        if self._force:
            self.replace()
            return self._shown
        kept = self.keep()
        return self._shown if kept == self.target else kept


def written(
    options: argparse.Namespace, make: Callable[[], T], content: Callable[[T], bytes], inputs: Iterable[Any]
) -> T:
    """What ``make()`` returns, once its content is in the file of -o, if there is one: known to be writable before."""
    if options.output is None:
        return make()
    with Output(options.output, force=options.force, inputs=inputs) as output:
        output.try_place()
        found = make()
        output.write(content(found))
        say(f"kept in {output.take()}")
        return found


def saved(save: Callable[[Any], object]) -> bytes:
    """What ``save(file)`` writes."""
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


def _holds(place: str | os.PathLike[str], path: Path) -> bool:
    if os.path.isdir(place):
        return Path(os.path.realpath(place)) in path.resolve().parents
    return os.path.exists(place) and os.path.samefile(place, path)
