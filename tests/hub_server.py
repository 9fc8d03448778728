"""A stand-in for the Hugging Face Hub on loopback: one repository folder, as `datasets` asks for it."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

REPOSITORY = "nyu-mll/glue"
COMMIT = "a1b2c3d4" * 5


@dataclass(frozen=True)
class HubServer:
    """A running stand-in."""

    address: str
    """What HF_ENDPOINT must be."""
    asked: list[str] = field(default_factory=list)
    """Method and path of each request, in order."""

    def downloads(self, name: str) -> int:
        """Return how often the content of a file was asked for."""
        return sum(line.startswith("GET ") and line.endswith(f"/{name}") for line in self.asked)


@contextmanager
def hub_server(folder: Path) -> Iterator[HubServer]:
    """Serve a folder as the data set nyu-mll/glue."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        """Answers one connection."""

        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            asked.append(f"{self.command} {path}")
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            api, files = f"/api/datasets/{REPOSITORY}", f"/datasets/{REPOSITORY}/resolve/"
            if path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
                self._send(json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": []}).encode())
            elif path.startswith(f"{api}/tree/"):
                below = path.removeprefix(f"{api}/tree/").partition("/")[2]
                found = (folder / below).rglob("*") if "recursive=True" in self.path else (folder / below).iterdir()
                self._send(json.dumps([_entry(folder, each) for each in found]).encode())
            elif path.startswith(f"{api}/paths-info/"):
                names = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body)["paths"]
                found = [folder / name for name in names if (folder / name).exists()]
                self._send(json.dumps([_entry(folder, each) for each in found]).encode())
            elif path.startswith(files) and (file := folder / path.removeprefix(files).partition("/")[2]).is_file():
                self._send(file.read_bytes(), etag=_digest(file))
            else:
                self._send(b"", code=404)

        def _send(self, body: bytes, *, code: int = 200, etag: str = "") -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Repo-Commit", COMMIT)
            if etag:
                self.send_header("ETag", f'"{etag}"')
            if code == 404:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield HubServer(f"http://127.0.0.1:{server.server_address[1]}", asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _entry(folder: Path, path: Path) -> dict[str, object]:
    name = str(path.relative_to(folder))
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": "0" * 40}
    return {"type": "file", "path": name, "size": path.stat().st_size, "oid": _digest(path)}


def _digest(path: Path) -> str:
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
