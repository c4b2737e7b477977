"""What routes use of the web framework. Only this module and the machinery around routes name the framework."""

from __future__ import annotations

from litestar import Litestar, MediaType, Request, Response, Router
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

__all__ = ["HeaderParameter", "Litestar", "MediaType", "QueryParameter", "Request", "Response", "Router", "Stream"]
