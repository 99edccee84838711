"""The web page: browse and control the namespace in a browser. Rendered on the server, one script, no build step.

`routes` has the table of addresses, `gate` the access checks. The views (`overview`, `entity`, `browsing`, `sending`,
`rules`, `creating`, `namespace`) call the broker's verbs and pass their results to templates, which make the HTML and
escape everything. Works without the script: each action is a form, answered by a redirect, or by the same page with the
error beside the form.
"""

from .routes import add_page

__all__ = ["add_page"]
