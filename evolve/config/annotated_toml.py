"""An experiment as TOML that explains its settings: by the docstrings of their models, and by their limits."""

from collections.abc import Iterator

from evolve.config.choice import Choice
from evolve.config.descriptions import docstrings, limits
from evolve.config.options import Options, Table
from evolve.config.settings import Config


def annotated_toml(config: Config) -> str:
    """Return an experiment as TOML with comments; it reads back as the same experiment."""
    tables = config.model_dump(mode="json", exclude_none=True)
    model: type[Options] | None = Config
    lines = [*_meaning(Config), *_not_set(Config, tables)]
    for line in config.to_toml().rstrip("\n").split("\n"):
        if not line.startswith("["):
            lines.append(_with_limits(line, model))
            continue
        section = line[1:-1]
        model = _model(config, section)
        lines += [line] if model is None else [*_meaning(model), line, *_not_set(model, tables[section])]
    return "\n".join(lines)


def _model(config: Config, section: str) -> type[Options] | None:
    """Return the model of a section; None for a table of the user's own, such as `env.kwargs`."""
    found = getattr(config, section) if section in Config.model_fields else None
    if isinstance(found, Choice):
        return type(found.options)
    return type(found) if isinstance(found, Options) else None


def _meaning(model: type[Options]) -> Iterator[str]:
    """Yield as comments the docstrings of a model, and of those of its bases that have settings."""
    for text in docstrings(model):
        yield from (f"# {line}".rstrip() for line in text.split("\n") if line)


def _not_set(model: type[Options], table: Table) -> Iterator[str]:
    """Yield comments for the settings that have no value, which TOML cannot say."""
    for name, field in model.model_fields.items():
        if name not in table:
            allowed = limits(field.annotation, field.metadata)
            yield f"# {name} is not set{f': {allowed}' if allowed else ''}"


def _with_limits(line: str, model: type[Options] | None) -> str:
    """Return a line `name = value` with the limits of that setting as a comment."""
    name = line.partition(" = ")[0]
    if model is None or name not in model.model_fields:
        return line
    field = model.model_fields[name]
    allowed = limits(field.annotation, field.metadata)
    return f"{line}  # {allowed}" if allowed else line
