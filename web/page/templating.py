"""The templates of the page, compiled from HTML files. Knows how they are written; does not know what they show."""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined

from . import rendering

FILTERS = ("instant", "span", "span_input", "size", "rate", "spark")


def page_templates(values: Mapping[str, object]) -> Environment:
    """The templates, with `values` for all of them; takes tenths of a second."""
    templates = Environment(
        loader=PackageLoader(__name__.rpartition(".")[0]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= values
    templates.filters |= {name: getattr(rendering, name) for name in FILTERS}
    templates.globals["parts"] = templates.get_template("parts.html").module
    return templates
