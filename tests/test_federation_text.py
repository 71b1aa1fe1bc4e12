"""Text of a peer never reaches a terminal, a log, a template or the name of a file as it came: all places."""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

import fpdfp
from fpdfp.cohorts.serialization import pack
from fpdfp.errors import MessageError, RefusalError
from fpdfp.federation import audit, commands, framing, keys, outbox, text
from fpdfp.federation.agent import respond
from fpdfp.federation.analyst import Asking, Federation
from fpdfp.federation.connection import Connection, Stream, read_status, take_certificate
from fpdfp.federation.framing import LostError, Message, RefusedError
from fpdfp.federation.hub import Hub, Limits
from fpdfp.federation.keys import PENDING, About, Study, read_invitation
from fpdfp.federation.rollback import ReplayGuard
from fpdfp.runs import toml
from tests.federation_trial import HubThread, Trial, free_port

SOURCE = Path(fpdfp.__file__).parent / "federation"
#: What does something to a terminal, begins a line of its own, or shows letters in another order.
HOSTILE = [
    "a\nExecStartPre=/bin/sh", "a\r2026-01-01 INFO all is well", "a\x1b[2J\x1b]0;title\x07", "a\x9b31m", "a\x00b",
    "a\u2028b", "a\u202egnp.exe", "a\u200bb", "a\ufeffb", "\x7f", "a\ud800b",
]  # fmt: skip
#: What means something to systemd, a shell, a container file or a file system.
META = ["../x", "a b", "a%h", "a$HOME", 'a"b', "a'b", "a;b", "a`b`", "a\\b", "@FOLDER@", "-v", ".", "", "a" * 65, "ä"]
about = About("study", "site", "north", "localhost:1")


def is_harmless(line: str) -> bool:
    return all(map(text._is_seen, line))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What a handler writes, with tracebacks: each record as a text."""
    written: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(self.format(record))

    handler, log = Handler(), logging.getLogger("fpdfp")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield written
    log.removeHandler(handler)
    log.setLevel(before)


def check_log(written: list[str]) -> None:
    """Every record is one line, and what belongs to it is indented."""
    for record in written:
        first, *rest = record.split("\n")
        assert is_harmless(first)
        assert all(is_harmless(line) and line.startswith("    ") for line in rest)


class TestEveryPlace:
    """Read from the source: there is no way to a terminal or a log but the two that make text harmless."""

    def calls(self) -> Iterator[tuple[Path, str, ast.Call, list[str]]]:
        for path in sorted(SOURCE.glob("*.py")):
            for function in ast.walk(ast.parse(path.read_text())):
                if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                    continue
                body = list(ast.iter_child_nodes(function))
                inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
                while body:
                    one = body.pop()
                    if isinstance(one, inner) and not isinstance(one, ast.ClassDef):
                        continue
                    body += list(ast.iter_child_nodes(one))
                    if isinstance(one, ast.Call):
                        yield path, ast.unparse(one.func), one, [getattr(function, "name", "")]

    def test_only_say_prints(self) -> None:
        printing = {"print", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write", "warnings.warn"}
        found = {(path.name, *where) for path, name, _, where in self.calls() if name in printing}
        assert found == {("commands.py", "say")}

    def test_all_write_to_the_log_that_makes_one_line_of_each_message(self) -> None:
        made = {(path.name, *where) for path, name, _, where in self.calls() if name.endswith("getLogger")}
        assert made == {("text.py", ""), ("commands.py", "log_to_stderr")}
        for name in ("fpdfp.federation", "fpdfp.engines"):
            assert any(isinstance(one, text.OneLine) for one in logging.getLogger(name).filters)
        written = [call for _, name, call, _ in self.calls() if name.startswith("log.")]
        assert len(written) > 20

    def test_templates_hold_what_is_checked_and_nothing_else(self, tmp_path: Path) -> None:
        values = dict.fromkeys(("study", "site", "data", "data_name", "policy", "invitation", "port"), "x")
        for kind in ("hub", "site"):
            for name in values:
                for hostile in (*HOSTILE, *META[1:10]):
                    with pytest.raises(ValueError, match=name):
                        commands.write_service(kind, tmp_path, **{**values, name: hostile})
            for path in commands.write_service(kind, tmp_path, **values):
                assert "@" not in path.read_text().replace("@system-service", "")


class TestNames:
    @pytest.mark.parametrize("name", [*HOSTILE, *META])
    def test_of_studies_sites_analysts_and_runs(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ValueError, match="must be"):
            Study.create(tmp_path / "study", [name])
        if name not in (".", "") and not set(name) & set("/\x00\ud800"):
            with pytest.raises(ValueError, match="the folder's name must be"):
                Study.create(tmp_path / name, ["north"])
        assert not list(tmp_path.iterdir())
        study = Study.create(tmp_path / "study", ["north"], port=free_port())
        for invite in (lambda: study.invite(name, "site"), lambda: study.invite(name, "analyst")):
            with pytest.raises(ValueError, match="must be"):
                invite()
        with pytest.raises(ValueError, match="run must be"):
            Federation(study.folder, run=name)
        with pytest.raises(MessageError, match="name of a run"):
            ReplayGuard().check(name, 1)

    @pytest.mark.parametrize("field", About._fields)
    @pytest.mark.parametrize("value", [*HOSTILE[:-1], "a b", "a%h", ""])
    def test_in_an_invitation(self, tmp_path: Path, field: str, value: str) -> None:
        path = tmp_path / "invitation.zip"
        with zipfile.ZipFile(path, "w") as file:
            tree = {"format": 1, **about._asdict(), field: value}
            file.writestr("identity.toml", toml.dumps(tree))
            file.writestr("ca.pem", "")
            file.writestr("once.pem", "-----BEGIN CERTIFICATE-----")
        with pytest.raises(ValueError, match=r"invitation|folder") as error:
            read_invitation(path)
        assert is_harmless(str(error.value))
        done = CliRunner().invoke(commands.app, ["join", str(path)])
        assert done.exit_code == 1
        assert len(done.output.splitlines()) == 1


class TestHub:
    @pytest.mark.parametrize("field", ["study", "role", "name", "protocol", "software", "time"])
    def test_writes_one_line_whatever_a_hello_says(
        self, tmp_path: Path, field: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trial = Trial(tmp_path, ["north"])
        real = framing.hello
        often = Limits(connections_at_once=1000.0)
        with HubThread(trial.study, limits=often), Federation(trial.study.folder) as federation:
            site = trial.join("north")
            for hostile in (*HOSTILE[:-1], 1e300, -1e300, [1], {"a": "\n"}, 10**4000, True, None):
                said = real(*site.about[:3])
                monkeypatch.setattr(
                    "fpdfp.federation.connection.hello",
                    lambda *_, said=said, value=hostile: said._replace(about={**said.about, field: value}),
                )
                with contextlib.suppress(RefusedError, LostError), Stream(site.about, site.credentials):
                    monkeypatch.setattr("fpdfp.federation.connection.hello", real)
                    shown = str(federation.status())
                    assert all(map(is_harmless, shown.splitlines()))
                    assert len(shown.splitlines()) == 2
        check_log(lines)
        assert lines


class TestAnalyst:
    """What a hub or a site can say to an analyst."""

    def places(self, tree: Any, value: Any) -> Iterator[Any]:
        """Yield the tree with each text of it, and each key, in turn replaced."""
        if isinstance(tree, str):
            yield value
        elif isinstance(tree, dict):
            for key, one in tree.items():
                yield from ({**tree, key: made} for made in self.places(one, value))
                if isinstance(value, str):
                    yield {value if name == key else name: old for name, old in tree.items()}
        elif isinstance(tree, list):
            for i, one in enumerate(tree):
                yield from ([*tree[:i], made, *tree[i + 1 :]] for made in self.places(one, value))

    @pytest.mark.parametrize("value", [*HOSTILE, 1e300, -5, None, [], "nan"])
    def test_status(self, value: Any) -> None:
        ends = "2026-01-01T00:00:00+00:00"
        site = {"name": "n", "state": "joined", "online": True, "since": 1e9, "software": "0.1.0", "ends": ends,
                "clock": "1 hour ahead"}  # fmt: skip
        said = {"study": "s", "software": "0.1.0", "sites": [site], "warnings": ["the certificate ends"]}
        assert read_status(Message("status", {}, json.dumps(said).encode())).sites[0].name == "n"
        numbers = [{**said, "sites": [{**site, "since": value}]}]
        for made in [*self.places(said, value), *numbers]:
            found: Any = None
            try:
                found = read_status(Message("status", {}, json.dumps(made).encode()))
            except MessageError as error:
                found = str(error)
            text.refuse_unprintable(found)

    @pytest.mark.parametrize("value", HOSTILE)
    def test_replies(self, value: str) -> None:
        asking = Asking(Connection.__new__(Connection))
        reply = {"run": "r", "sequence": 1, "site": "north", "reply": {"columns": [{"name": "age", "levels": ["I"]}]}}
        words = [{**reply, name: value} for name in ("error", "refused", "seen")]
        for made in [*self.places(reply, value), *words]:
            with contextlib.suppress(UnicodeEncodeError):  # half a letter cannot even be sent
                found = asking._open(pack(made), {"run": "r", "sequence": 1, "site": "north"}, "north")
                assert isinstance(found, MessageError | RefusalError)
                assert is_harmless(str(found))

    @pytest.mark.parametrize("value", HOSTILE[:-1])
    def test_what_the_hub_says_of_absent_sites_and_of_refusals(
        self, tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch, lines: list[str]
    ) -> None:
        trial = Trial(tmp_path, ["north"])
        with HubThread(trial.study), contextlib.closing(trial.link):
            monkeypatch.setattr(Hub, "_why_absent", lambda *_: value)
            said = trial.asking.ask("x", {"north": {"kind": "echo"}}, 5.0)["north"]
            assert is_harmless(str(said))
            monkeypatch.setattr(Hub, "_why_not", lambda *_: value)
            own = trial.study.analyst
            trial.study.registry.add_certificate("coordinator", own.credentials.certificate)
            monkeypatch.setattr("fpdfp.federation.keys.Registry.find", lambda *_: None)
            with pytest.raises(RefusedError) as error, Stream(own.about, own.credentials):
                pass
            assert is_harmless(str(error.value))
        check_log(lines)


class TestSite:
    @pytest.mark.parametrize("value", HOSTILE)
    def test_requests(self, value: str, lines: list[str]) -> None:
        """Every field of a request, and what the hub says of the asker."""
        asked = {"kind": "echo", "run": "r", "sequence": 1, "site": "north", "body": {"column": "age"}}
        asker = {"name": "ann", "role": "analyst", "fingerprint": "ab"}

        class Failing:
            def answer(self, asked: dict[str, Any], asker: Any) -> dict[str, Any]:
                assert all(map(is_harmless, asker))
                raise KeyError(value)

        for made in TestAnalyst().places(asked, value):
            with contextlib.suppress(UnicodeEncodeError):
                respond(Message("ask", {"asker": asker}, pack(made)), about, Failing(), ReplayGuard())
        for told in TestAnalyst().places(asker, value):
            respond(Message("ask", {"asker": told}, pack(asked)), about, Failing(), ReplayGuard())
        respond(Message("ask", {"asker": asker}, pack(asked)), about, Failing(), ReplayGuard())
        assert any("Traceback" in line for line in lines)
        check_log(lines)

    @pytest.mark.parametrize("value", HOSTILE[:-1])
    def test_the_outbox_and_the_log_are_shown_line_by_line(self, tmp_path: Path, value: str) -> None:
        envelope = {"run": "r", "sequence": 1, "site": "north", "contents": {"reply": {"key": "text", "many": ["a"]}}}
        plain = len(list(outbox.lines(pack(envelope))))
        for made in TestAnalyst().places(envelope, value):
            with contextlib.suppress(MessageError):
                shown = list(outbox.lines(pack(made)))
                assert all(map(is_harmless, shown))
                assert len(shown) <= plain + len(value) + 1
            path = tmp_path / "1.parcel"
            path.write_bytes(pack(made))
            done = CliRunner().invoke(commands.app, ["inspect", str(path)])
            assert all(map(is_harmless, done.output.splitlines()))
        fields = {"asker": value, "role": value, "fingerprint": value, "study": value, "run": value, "kind": value,
                  "asked": value, "outcome": value, "why": value}  # fmt: skip
        with contextlib.closing(audit.Audit(tmp_path / "north")) as log:
            log.append(left=1, spent={}, **fields)
        done = CliRunner().invoke(commands.app, ["log", str(tmp_path / "north")])
        assert len(done.output.splitlines()) == 1
        assert is_harmless(done.output.rstrip("\n"))


def test_a_hub_cannot_give_a_certificate_that_was_not_asked_for(tmp_path: Path) -> None:
    """It would stand in a file beside the key, and a site that took it could not connect any more."""
    trial = Trial(tmp_path, ["north"])
    with HubThread(trial.study), contextlib.closing(trial.link):
        site = trial.join("north")
    before = (site.folder / "own.pem").read_bytes()
    for words in ("not requested", "is not a certificate|is for another key"):
        for said in ("\n[Service]", None, site.credentials.certificate.decode()):
            with pytest.raises(MessageError, match=words):
                take_certificate(site, Message("certificate", {"certificate": said}))
        (site.folder / PENDING).write_bytes(keys.make_key())
    assert (site.folder / "own.pem").read_bytes() == before
