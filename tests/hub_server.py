"""A small Hugging Face hub on 127.0.0.1, for whoever sets HF_ENDPOINT to it.

  with Hub() as hub:
    first = hub.commit("org/name", {"train.jsonl": b"..."})
    hub.tag("org/name", "v1", first)
    run(..., env={"HF_ENDPOINT": hub.url, "HF_HOME": fresh_folder})
    assert hub.downloads() == ["train.jsonl"]

It speaks what `datasets`, `transformers` and `huggingface_hub` ask for: files
of a commit (whole and by range), a repository's information and its trees. A
commit is a whole set of files; its name is a digest of them and of the one
before. Every request is kept, and faults can be set for the next ones.
"""

import dataclasses
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

_FILE = re.compile(r"/(datasets/)?([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)")
_API = re.compile(
  r"/api/(datasets|models)/([\w.-]+/[\w.-]+)"
  r"(?:/(revision|tree|paths-info|refs)(?:/([^/]+)(?:/(.*))?)?)?"
)
# How the hub calls what is missing, in a header that the client reads.
_STATUS = {"RepoNotFound": 401, "GatedRepo": 403}


@dataclasses.dataclass(frozen=True)
class Request:
  """A request that came."""

  method: str
  path: str
  status: int


@dataclasses.dataclass
class Fault:
  """What befalls the next requests whose path has a word in it.

  "unavailable" answers 503; "truncated" sends half of the bytes that it
  announced, then hangs up.
  """

  word: str
  kind: str
  times: int


@dataclasses.dataclass
class _Repo:
  """A repository: its commits by name, and what branches and tags name."""

  commits: dict[str, dict[str, bytes]] = dataclasses.field(default_factory=dict)
  branches: dict[str, str] = dataclasses.field(default_factory=dict)
  tags: dict[str, str] = dataclasses.field(default_factory=dict)
  gated: bool = False

  def find(self, revision):
    """The name of the commit that a revision stands for, or None."""
    named = {**self.tags, **self.branches}.get(revision)
    if named:
      return named
    found = [name for name in self.commits if name.startswith(revision)]
    return found[0] if len(found) == 1 and len(revision) >= 7 else None


class Hub:
  """The hub; `url` is its address."""

  def __init__(self):
    """Begins to listen; nothing is in it yet."""
    self.requests = []
    self._faults = []
    self._repos = {}
    self._lock = threading.Lock()
    hub = self

    class Handler(_Handler):
      def answer(self):
        return hub._answer(self)

    self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    self._server.daemon_threads = True
    self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

  def __enter__(self):
    threading.Thread(target=self._server.serve_forever, daemon=True).start()
    return self

  def __exit__(self, *exception):
    self._server.shutdown()
    self._server.server_close()

  def commit(self, repo, files, *, kind="datasets", branch="main"):
    """Makes a commit of these files, and nothing else, on a branch."""
    made = self._repos.setdefault((kind, repo), _Repo())
    parent = made.branches.get(branch, "")
    name = hashlib.sha1(
      repr((kind, repo, parent, sorted(files.items()))).encode()
    ).hexdigest()
    made.commits[name] = dict(files)
    made.branches[branch] = name
    return name

  def tag(self, repo, name, commit):
    """Names a commit of a dataset."""
    self._repos["datasets", repo].tags[name] = commit

  def gate(self, repo):
    """Lets nobody have the files of a dataset."""
    self._repos["datasets", repo].gated = True

  def fail(self, word, kind, *, times=1):
    """Sets a fault: see `Fault`."""
    self._faults.append(Fault(word, kind, times))

  def heal(self):
    """Takes all faults away."""
    with self._lock:
      self._faults.clear()

  def find(self, repo, revision):
    """The commit of a dataset that a branch or tag names."""
    return self._repos["datasets", repo].find(revision)

  def forget(self):
    """Forgets the requests that came."""
    self.requests.clear()

  def downloads(self):
    """The data files that were sent, by name, in order of their sending."""
    found = [
      _FILE.fullmatch(request.path)
      for request in self.requests
      if request.method == "GET" and request.status in (200, 206)
    ]
    return [match[4] for match in found if match and match[4] != "README.md"]

  def _fault(self, path):
    with self._lock:
      for fault in self._faults:
        if fault.times and fault.word in path:
          fault.times -= 1
          return fault.kind
    return None

  def _answer(self, request):
    url = urlsplit(request.path)
    path = unquote(url.path)
    fault = self._fault(path)
    status = self._status(request, path, dict(parse_qsl(url.query)), fault)
    self.requests.append(Request(request.command, path, status))

  def _status(self, request, path, query, fault):
    """Answers; returns the status."""
    length = int(request.headers.get("Content-Length") or 0)
    form = parse_qs(request.rfile.read(length).decode())
    if fault == "unavailable":
      return request.send(503)
    if match := _FILE.fullmatch(path):
      kind = "datasets" if match[1] else "models"
      return self._file(request, kind, match, truncated=fault == "truncated")
    if match := _API.fullmatch(path):
      return self._api(request, match, query, form)
    return request.send(404, {"error": "There is no such page."})

  def _file(self, request, kind, match, *, truncated):
    repo = self._repos.get((kind, match[2]))
    if repo is None:
      return request.missing("RepoNotFound")
    commit = repo.find(match[3])
    if commit is None:
      return request.missing("RevisionNotFound")
    if repo.gated:
      return request.missing("GatedRepo", commit)
    data = repo.commits[commit].get(match[4])
    if data is None:
      return request.missing("EntryNotFound", commit)
    head = {
      "X-Repo-Commit": commit,
      "ETag": f'"{hashlib.sha1(data).hexdigest()}"',
      "Accept-Ranges": "bytes",
    }
    asked = re.fullmatch(
      r"bytes=(\d+)-(\d*)", request.headers.get("Range") or ""
    )
    if not asked:
      return request.send(200, data, head, truncated=truncated)
    start = int(asked[1])
    stop = min(int(asked[2] or len(data)) + 1, len(data))
    if start >= len(data):
      return request.send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
    head["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
    return request.send(206, data[start:stop], head, truncated=truncated)

  def _api(self, request, match, query, form):
    kind, name, what, revision, folder = match.groups()
    repo = self._repos.get((kind, name))
    if repo is None:
      return request.missing("RepoNotFound")
    if what == "refs":
      return request.send(200, _refs(repo))
    commit = repo.find(revision or "main")
    if commit is None:
      return request.missing("RevisionNotFound")
    files = repo.commits[commit]
    folder = (folder or "").strip("/")
    if what == "paths-info":
      return request.send(200, _entries(files, form.get("paths", [])))
    if what == "tree":
      deep = query.get("recursive", "").lower() in ("true", "1")
      below = _below(files, folder, deep=deep)
      if not below:
        return request.missing("EntryNotFound", commit)
      return request.send(200, _entries(files, below))
    return request.send(
      200,
      {
        "_id": commit,
        "id": name,
        "sha": commit,
        "private": False,
        "gated": "auto" if repo.gated else False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "lastModified": "2026-01-01T00:00:00.000Z",
        "siblings": [{"rfilename": path} for path in sorted(files)],
      },
      {"X-Repo-Commit": commit},
    )


class _Handler(BaseHTTPRequestHandler):
  """Reads requests and writes answers."""

  protocol_version = "HTTP/1.1"

  def log_message(self, *arguments):
    """Says nothing."""

  def do_GET(self):
    self.answer()

  do_HEAD = do_POST = do_GET

  def answer(self):
    raise NotImplementedError

  def send(self, status, body=b"", head=(), *, truncated=False):
    """Writes an answer; returns its status."""
    kind = "application/octet-stream"
    if not isinstance(body, bytes):
      kind, body = "application/json", json.dumps(body).encode()
    self.send_response(status)
    for name, value in dict(head).items():
      self.send_header(name, value)
    self.send_header("Content-Type", kind)
    self.send_header("Content-Length", str(len(body)))
    self.end_headers()
    if self.command != "HEAD":
      self.wfile.write(body[: len(body) // 2] if truncated else body)
      if truncated:
        self.close_connection = True
    return status

  def missing(self, code, commit=None):
    """Says what is not there, in the hub's words."""
    head = {"X-Error-Code": code, "X-Error-Message": code}
    if commit:
      # Lets the client keep in mind that the file is not there.
      head["X-Repo-Commit"] = commit
    return self.send(_STATUS.get(code, 404), {"error": code}, head)


def _refs(repo):
  """What the hub tells of branches and tags."""

  def named(kind, names):
    return [
      {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": commit}
      for name, commit in names.items()
    ]

  return {
    "branches": named("heads", repo.branches),
    "tags": named("tags", repo.tags),
    "converts": [],
  }


def _folders(files):
  return {
    "/".join(parts[:depth])
    for parts in (path.split("/") for path in files)
    for depth in range(1, len(parts))
  }


def _below(files, folder, *, deep):
  """The files and folders in a folder; deep: and in its folders."""
  start = f"{folder}/" if folder else ""
  return [
    path
    for path in sorted({*files, *_folders(files)})
    if path.startswith(start) and (deep or "/" not in path[len(start) :])
  ]


def _entries(files, paths):
  """What the hub tells of files and folders, of those that are there."""
  folders = _folders(files)
  return [
    {
      "type": "file" if path in files else "directory",
      "path": path,
      "size": len(files.get(path, b"")),
      "oid": hashlib.sha1(files.get(path, path.encode())).hexdigest(),
    }
    for path in paths
    if path in files or path in folders
  ]
