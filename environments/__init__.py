"""Environments to start from. A folder `environments` beside the user adds its own."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
