"""Writes conf/completion.bash from the parsers of the jobs: .venv/bin/python conf/make_completion.py"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "conf" / "completion.bash"
OTHERS = ("test", "python", "bench")
"""What spark-submit.sh runs besides jobs."""

PAGE = """\
# shellcheck shell=bash
# Completion for spark-submit.sh, of bash and zsh: source conf/completion.bash
# Made by conf/make_completion.py from the jobs' parsers.
if [ -n "${{ZSH_VERSION:-}}" ]; then
  autoload -U +X compinit bashcompinit
  compinit
  bashcompinit
fi

_mqsieve() {{
  local job=${{COMP_WORDS[1]:-}} before=${{COMP_WORDS[COMP_CWORD - 1]}} words='' found
  if [ "$COMP_CWORD" -eq 1 ]; then
    words='{jobs}'
  else
    # What follows an option with a value is one of its choices, or a file.
    case $job:$before in
{values}
      *)
        case $job in
{options}
        esac
        ;;
    esac
  fi
  COMPREPLY=()
  while IFS='' read -r found; do
    COMPREPLY+=("$found")
  done < <(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}")
}}

complete -o bashdefault -o default -F _mqsieve spark-submit.sh
"""


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each job by its name on the command line."""
    for file in sorted(ROOT.glob("jobs/[a-z]*.py")):
        yield file.stem.replace("_", "-"), importlib.import_module(f"jobs.{file.stem}").parser()


def page() -> str:
    """The text of conf/completion.bash."""
    found = dict(parsers())
    values = [line for job, parser in found.items() for line in _values(job, parser)]
    options = [f"          {job}) words='{' '.join(_words(parser))}' ;;" for job, parser in found.items()]
    return PAGE.format(jobs=" ".join([*found, *OTHERS]), values="\n".join(values), options="\n".join(options))


def _values(job: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Patterns of options that take a value: those with choices one by one, the others together."""
    plain = []
    for action in parser._actions:
        if not action.option_strings or action.nargs == 0:
            continue
        patterns = [f"{job}:{option}" for option in action.option_strings]
        if action.choices is None:
            plain += patterns
        else:
            yield f"      {' | '.join(patterns)}) words='{' '.join(map(str, action.choices))}' ;;"
    if plain:
        yield f"      {' | '.join(plain)}) ;;"


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Options and named arguments; nothing where a job takes files, which the shell completes."""
    if any(not action.option_strings and action.choices is None for action in parser._actions):
        return
    for action in parser._actions:
        yield from map(str, action.option_strings or action.choices or ())


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    FILE.write_text(page(), "utf-8")
