"""What a template, a plan or an export declares, and how a namespace comes to have it. Knows no file and no protocol.

Readers (of ARM templates, of Terraform, of Pulumi) make values of `resources`; appliers take them.
"""
