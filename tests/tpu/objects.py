"""A stand-in for the JSON API of Cloud Storage: listing and reading objects."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from tests.tpu.http import ApiError

Json = dict[str, Any]
_WRITTEN = "2026-01-02T03:04:05.678Z"
_BUCKET = re.compile(r"(?P<media>/download)?/storage/v1/b/(?P<bucket>[^/]+)(?:/o(?:/(?P<object>.+))?)?\Z")


class Objects(dict[str, bytes]):
    """Objects by `bucket/name`."""

    def answer(self, path: str, query: dict[str, str], base: str) -> Json | bytes | None:
        """The answer to a request; None for one that is not about storage.

        Raises:
            ApiError: there is no such object.
        """
        route = _BUCKET.match(path)
        if route is None:
            return None
        bucket, name = route["bucket"], route["object"]
        if name is not None:
            path = f"{bucket}/{name}"
            if path not in self:
                raise ApiError(404, f"No such object: {path}")
            if query.get("alt") == "media":
                return self[path]
            return self._object(path, base)
        if not route.string.endswith("/o"):
            return {"kind": "storage#bucket", "name": bucket, "id": bucket, "location": "US"}
        prefix = f"{bucket}/{query.get('prefix', '')}"
        return {
            "kind": "storage#objects",
            "items": [self._object(p, base) for p in sorted(self) if p.startswith(prefix)],
        }

    def _object(self, path: str, base: str) -> Json:
        bucket, _, name = path.partition("/")
        return {
            "kind": "storage#object",
            "id": f"{path}/1",
            "bucket": bucket,
            "name": name,
            "mediaLink": f"{base}/download/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media",
            "generation": "1",
            "metageneration": "1",
            "size": str(len(self[path])),
            "timeCreated": _WRITTEN,
            "updated": _WRITTEN,
            "storageClass": "STANDARD",
        }
