"""The directive `command-options`: the commands of a typer application, with their arguments and options."""

from __future__ import annotations

import importlib
import re
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class CommandOptions(SphinxDirective):
    """`module:name` of a typer application; `:program:` is what a shell calls it."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"program": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """A section for each command."""
        import typer

        module, _, name = self.arguments[0].partition(":")
        group: Any = typer.main.get_command(getattr(importlib.import_module(module), name))
        found: list[nodes.Node] = []
        for command in group.commands.values():
            title = f"{self.options['program']} {command.name}"
            section = nodes.section(ids=[nodes.make_id(title)])
            section += nodes.title(title, title)
            self.state.nested_parse(StringList(lines_of(command), title), 0, section)
            found.append(section)
        return found


def lines_of(command: Any) -> list[str]:
    """What a command does and a table of its parameters, in Markdown."""
    lines = [plain(command.help or ""), "", "| parameter | meaning |", "| --- | --- |"]
    for parameter in command.params:
        if parameter.name == "help":
            continue
        names = [*parameter.opts, *parameter.secondary_opts]
        if parameter.param_type_name == "argument":
            names = [parameter.metavar or parameter.name.upper()]
        default = parameter.default
        shown = default is not None and not callable(default) and default not in ("", False, True, ())
        meaning = plain(getattr(parameter, "help", "") or "")
        if shown and "efault" not in meaning:
            meaning += f" Default: `{default}`."
        lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {meaning} |")
    return [*lines, ""]


def plain(text: str) -> str:
    """Help text as one line that Markdown takes literally."""
    return re.sub(r"([\\|*_<>\[\]$])", r"\\\1", " ".join(text.split()))


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry point."""
    app.add_directive("command-options", CommandOptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
