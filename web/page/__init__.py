"""The web page: browse and control the namespace in a browser. Rendered on the server, one script, no build step.

`routes` has the table of addresses, `gate` the access checks. A file is a page, or what several pages share: `site`
(all of them), `forms`, `message_form`, `entity_fields`, `rendering`. A page calls the broker's verbs and passes their
results to a template, which makes the HTML and escapes everything. Works without the script: each action is a form,
answered by a redirect, or by the same page with the error beside the form.
"""

from .routes import add_page

__all__ = ["add_page"]
