"""The web page: the namespace seen and handled with a browser, made on the server, with one script and no build step.

`routes` has the one table of what is asked for, `gate` who may ask. The views (`overview`, `entity`, `browsing`,
`sending`, `ruling`, `creating`, `namespace`) turn requests into the broker's own verbs and their answers into the
templates' values; the templates turn these into HTML and escape everything. Works without the script: each action is a
form whose answer is a redirect, or the same page with the error beside the form.
"""

from .routes import add_page

__all__ = ["add_page"]
