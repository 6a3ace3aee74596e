"""The commands that fit a model, as in ``dpgep pca``: data and a budget in, one private answer out.

A command offers what its builder takes: options follow from the names of the builder's parameters.
"""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Callable, Collection
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeAlias

import dpgep
from dpgep.cli.budget import Paying, add_budget
from dpgep.cli.command import Commands, Output, UsageError, add_output, saved, say, usage
from dpgep.cli.data import Data, add_data, is_text_alone, open_data, ranges_of, typed
from dpgep.cli.options import add_options, or_auto, positive
from dpgep.cli.plan import listed_features, show_dry_run
from dpgep.loading import require_storable
from dpgep.problems.builders import BUILDERS
from dpgep.problems.problem import Problem
from dpgep.results.score_density import ScoreDensity
from dpgep.sources.names import identifies, listed

# Options by the parameters of builders that they are for.
_OF_PARAMETERS = {
    "standardize": ["standardize"],
    "center": ["no-center"],
    "classes": ["classes"],
    "target": ["target", "background", "alpha"],
    "by_group": ["by-group"],
    "y_range": ["slices", "y-range", "edges"],
}
# Options with the values of a builder's parameters.
_AS_THEY_ARE = ("rows", "largest_weight", "standardize", "center", "alpha", "by_group")
# What can be bought, and kept in a file.
_Answer: TypeAlias = dpgep.Solution | dpgep.Release | ScoreDensity


def add(commands: Commands) -> None:
    for name, build in BUILDERS.items():
        summary = (build.__doc__ or name).partition("\n")[0].rstrip(".")
        parser = commands.add_parser(name, help=summary, description=f"{summary}, under differential privacy.")
        add_data(parser)
        _add_people(parser, signature(build).parameters)
        add_options(parser, "bound", "ranges", "missing")
        if name == "release":
            add_options(parser, "quartiles")
        else:
            parser.add_argument("--n-components", type=positive, metavar="K", help="components (default: all)")
            parser.add_argument("--sparsity", type=or_auto(positive), metavar="K", help="features of each, or auto")
        add_budget(parser)
        running = add_running(parser, "OUT.dpgep" if name == "release" else "OUT.json")
        running.add_argument("--dry-run", action="store_true", help="print price and expected errors; spend nothing")
        running.add_argument("--people", type=positive, metavar="N", help="for --dry-run, if the files do not say it")
        parser.set_defaults(run=_run, model=name)


def add_running(parser: argparse.ArgumentParser, output: str) -> Any:
    group = parser.add_argument_group("running")
    add_output(group, output, "file of the result")
    add_options(group, "threads", "quiet")
    group.add_argument("--seed", type=int, help="for tests: NOT PRIVATE to anyone who knows the seed")
    return group


def _run(options: argparse.Namespace) -> int:
    data = open_data(options)
    paying = Paying(options)
    problem = _problem(data, options, paying)
    if options.dry_run:
        _say_what_counts(data, options)
        return show_dry_run(problem, options, paying)
    return 0 if bought(lambda: _answer(problem, options, paying), problem, data, options, paying) else 1


def bought(buy: Callable[[], Any], problem: Problem, data: Data, options: argparse.Namespace, paying: Paying) -> Any:
    """What ``buy()`` returns, once it is kept in the file of -o, and shown; None where it could not be kept."""
    if options.output is None:
        raise UsageError("-o OUT is missing: the result must be kept, since another run would be paid for again")
    with Output(options.output, force=options.force, inputs=inputs_of(options)) as output:
        output.try_place()
        _say_what_counts(data, options)
        if not options.quiet:
            say(f"features  {listed_features(problem.model)}")
        with paying.said_on_failure():
            answer = buy()
            options.interrupts.ignore()
            is_kept = _keep(answer, output, options.output)
    options.interrupts.kept()
    if is_kept:
        _show(str(answer.report if isinstance(answer, dpgep.Release) else answer))
    return answer if is_kept else None


def inputs_of(options: argparse.Namespace) -> list[str]:
    """Files that no output may replace."""
    budget = [] if options.budget is None else [options.budget, f"{options.budget}.head"]
    return [*options.data, *budget, *filter(None, [getattr(options, "solution", None)])]


def _say_what_counts(data: Data, options: argparse.Namespace) -> None:
    """That each row is a person's, where a column of the data may say otherwise by its name."""
    ids = [name for name in data.columns or () if identifies(str(name))]
    if ids and options.person is None:
        say(f"people    each row counts as one: if {listed(ids, 40)} says whose rows they are, pass --person")


def _keep(answer: _Answer, output: Output, place: Path) -> bool:
    """Write what was paid for to its file, or, where that fails, to stdout, or to stderr."""
    content = saved(answer.save)
    try:
        output.write(content)
        kept = output.take()
    except OSError as error:
        say(f"{place} cannot be written ({error.strerror}): its content is on stdout")
        text = content.decode() if isinstance(answer, dpgep.Solution) else base64.b64encode(content).decode()
        try:
            print(text, flush=True)
        except OSError:
            say(text)
        return False
    say(f"kept in {kept}" if kept == place else f"kept in {kept}: there is another {place} since this run began")
    return True


def _show(text: str) -> None:
    """Print an answer, whatever names are in it: what is kept is no failure."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def _problem(data: Data, options: argparse.Namespace, paying: Paying) -> Problem:
    quartiles = getattr(options, "quartiles", None)
    if options.bound != "auto" and (options.ranges or options.missing != "error" or quartiles is not None):
        raise UsageError("--ranges, --missing and --quartiles are for an automatic bound: leave out --bound")
    if options.filter is not None and paying.adjacency != "add-remove":
        what = "replace-one publishes how many rows pass. If it is public who does, keep a file of these rows alone"
        raise UsageError(f"--filter needs --adjacency add-remove: {what}")
    common = {"bound": options.bound, "adjacency": paying.adjacency, "public_n": options.public_n}
    if options.bound == "auto":
        with usage():
            ranges = ranges_of(options.ranges, data)
            how = {"ranges": ranges, "missing": options.missing, "quartiles": quartiles}
            common["preprocessing"] = dpgep.AutoPreprocessing(**how)
    build = BUILDERS[options.model]
    takes = signature(build).parameters
    given = {**_people(data, options, takes), **common}
    named = [name for name, each in takes.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if missing := [name for name in named if takes[name].default is Parameter.empty and name not in given]:
        advice = "give the options for it; a builder of your own needs a default for what has none"
        raise UsageError(f"its builder needs {listed(missing)}: {advice} (dpgep {options.model} --help)")
    with usage():
        problem = build(**given)
        require_storable(problem.model)
        return problem


def _answer(problem: Any, options: argparse.Namespace, paying: Paying) -> dpgep.Solution | dpgep.Release:
    common = {"budget": paying.budget, "seed": options.seed, **paying.part}
    if options.model == "release":
        found: dpgep.Release = dpgep.release(problem, n_threads=options.threads, **common)
        return found
    sparse = {} if options.sparsity is None else {"sparsity": options.sparsity}
    return dpgep.solve(problem, n_components=options.n_components, n_threads=options.threads, **common, **sparse)


def _add_people(parser: argparse.ArgumentParser, takes: Collection[str]) -> None:
    if "views" in takes:
        add_options(parser, "view")
    elif "Y" in takes:
        add_options(parser, "x-columns", "y-columns")
    else:
        add_options(parser, "columns", "exclude")
    add_options(parser, "person", "rows", "weights", "largest-weight")
    if "classes" in takes or "target" in takes:
        add_options(parser, "labels", required="labels" in takes)
    if "y_range" in takes:
        add_options(parser, "response", required="y" in takes)
    for name, options in _OF_PARAMETERS.items():
        if name in takes:
            add_options(parser, *options)


def _people(data: Data, options: argparse.Namespace, takes: Collection[str]) -> dict[str, Any]:
    """Arguments of a builder, from the options of `_add_people`."""
    found: dict[str, Any] = {name: getattr(options, name) for name in _AS_THEY_ARE if name in takes}
    beside = {"person": options.person, "weights": options.weights}
    found.update({name: data.vector(column) for name, column in beside.items() if column is not None})
    if "views" in takes:
        return {**found, "views": [data.matrix(columns) for columns in options.views]}
    if "Y" in takes:
        return {**found, "X": data.matrix(options.x_columns), "Y": data.matrix(options.y_columns)}
    labels, response = getattr(options, "labels", None), getattr(options, "response", None)
    if labels and response:
        raise UsageError("the groups of a table are classes or slices: give --labels or --response")
    if "target" in takes:
        options.classes = [options.target, options.background]
        found["labels"], (found["target"], found["background"]) = labels_of(data, options)
    elif labels:
        found["labels" if "labels" in takes else "groups"], found["classes"] = labels_of(data, options)
    if response:
        found["y" if "y" in takes else "groups"] = data.vector(response)
        cuts = {"slices": options.slices or 10, "y_range": options.y_range}
        found.update({"edges": options.edges} if options.edges else cuts)
    others = [each for each in (labels or response, *beside.values()) if each]
    return {**found, "X": rows_of(data, options, others)}


def labels_of(data: Data, options: argparse.Namespace) -> tuple[Any, Any]:
    labels = data.vector(options.labels)
    if options.classes is None:
        if labels.declared is None:
            raise UsageError("--classes A,B is missing: the set of classes is public, so name it from what you know")
        return labels, labels.declared
    if options.labels in data.found_text and not is_text_alone(options.classes):
        found = f"column {options.labels!r} was inferred to be text, possibly from one person's value"
        advice = f"correct the file, or pass --categories {options.labels}={','.join(options.classes)}"
        raise UsageError(f"{found}, but the classes are not text: {advice}")
    return labels, typed(options.classes, data.types.get(options.labels))


def rows_of(data: Data, options: argparse.Namespace, others: list[str]) -> Any:
    """The rows, without the columns of labels or responses, of ids and of weights."""
    for name in others:
        if options.columns and name in options.columns:
            raise UsageError(f"column {name!r} is a person's group, id or weight: leave it out of --columns")
    return data.matrix(options.columns, options.exclude if data.columns is None else [*options.exclude, *others])
