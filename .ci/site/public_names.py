"""What the reference reads differently from how the sources are written."""

import re

import griffe

# `name : what it is` in a section of attributes, where other programs read a type
DESCRIBED = re.compile(r"^(\w+(?:, \w+)*) : (.* .*)$", re.MULTILINE)
KEYWORD_ONLY = griffe.ParameterKind.keyword_only
SECTION = re.compile(r"(?<=^Attributes\n----------\n).*?(?=\n\n\S|\Z)", re.MULTILINE | re.DOTALL)


class PublicNames(griffe.Extension):
    """Public functions in place of modules that share their names; bound ones as methods; what is described."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring:
            obj.docstring.value = SECTION.sub(
                lambda section: DESCRIBED.sub(r"\1\n    \2", section[0]), obj.docstring.value
            )

    def on_package(self, *, pkg: griffe.Module, **kwargs: object) -> None:
        for name in map(str, pkg.exports or []):
            member = pkg.members[name]
            if member.is_module and name in member.members:
                pkg.set_member(name, griffe.Alias(name, member.members[name], parent=pkg))
        # what builders take as **terms, by their names: as `inspect.signature` has them
        of_all = [each for each in pkg["problems.problem.moment_problem"].parameters if each.kind is KEYWORD_ONLY]
        for function in (*pkg["problems.builders"].functions.values(), *pkg["problems.problem"].functions.values()):
            if "terms" in function.parameters:
                own = [each for each in function.parameters if each.name != "terms"]
                function.parameters = griffe.Parameters(*own, *of_all)

    def on_class_members(self, *, cls: griffe.Class, **kwargs: object) -> None:
        for name, member in list(cls.members.items()):
            value = member.value if "class-attribute" in member.labels else None
            if isinstance(value, griffe.ExprAttribute) and value.canonical_path.startswith("dpgep."):
                cls.set_member(name, griffe.Alias(name, value.canonical_path, parent=cls))
