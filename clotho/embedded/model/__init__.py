"""A small real model behind the HTTP API of a large one: what runs where no other model server is configured."""

from clotho.embedded.model.process import EmbeddedModelServer

__all__ = ["EmbeddedModelServer"]
