"""Certificates, keys, guard and project of a federation: everything about Flower that needs no running process."""

from __future__ import annotations

import asyncio
import datetime
import importlib
import importlib.util
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from examples.flower import demo, processes

import fpdfp.flower
from fpdfp.flower import certificates, expiry, guard, project
from fpdfp.flower.commands import app


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def handshake(server: certificates.Pair, authority: Path, name: str) -> None:
    """Connect by TLS to a server with that certificate, as somebody who knows the authority and expects the name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.public, server.key)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with context.wrap_socket(theirs, server_side=True) as connection:
                connection.recv(1)
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client = ssl.create_default_context(cafile=authority)
        client.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's default from 3.13 on
        with client.wrap_socket(ours, server_hostname=name) as connection:
            connection.send(b"x")
    finally:
        ours.close()
        thread.join()


def test_the_server_is_believed_under_its_names_only(tmp_path: Path) -> None:
    authority = certificates.make_authority(tmp_path)
    server = certificates.make_server_certificate(tmp_path, authority, ["superlink.example", "127.0.0.1", "::1"])
    for name in ("superlink.example", "127.0.0.1", "::1"):
        handshake(server, authority.public, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="match"):
        handshake(server, authority.public, "other.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="match"):
        handshake(server, authority.public, "127.0.0.2")


def test_another_authority_is_not_believed(tmp_path: Path) -> None:
    authority = certificates.make_authority(tmp_path / "ours")
    other = certificates.make_authority(tmp_path / "other")
    server = certificates.make_server_certificate(tmp_path, authority, ["localhost"])
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        handshake(server, other.public, "localhost")


def test_certificates_say_what_they_are_for(tmp_path: Path) -> None:
    from cryptography import x509

    authority = certificates.make_authority(tmp_path, days=10)
    server = certificates.make_server_certificate(tmp_path, authority, ["localhost"], days=5)
    own = x509.load_pem_x509_certificate(server.public.read_bytes())
    assert not own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not own.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    own.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.public.read_bytes()))
    left = certificates.certificate_end(server.public) - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=4.9) < left < datetime.timedelta(days=5.1)


def test_private_keys_are_their_owners_and_are_not_overwritten(tmp_path: Path) -> None:
    previous = os.umask(0)  # the most open there is: modes must not depend on it
    try:
        authority = certificates.make_authority(tmp_path)
        server = certificates.make_server_certificate(tmp_path, authority, ["localhost"])
        node = certificates.make_node_key(tmp_path)
    finally:
        os.umask(previous)
    before = {pair.key: pair.key.read_bytes() for pair in (authority, server, node)}
    assert [mode(path) for path in before] == [0o600] * 3
    with pytest.raises(FileExistsError, match=r"ca\.key"):
        certificates.make_authority(tmp_path)
    with pytest.raises(FileExistsError, match=r"server\.key"):
        certificates.make_server_certificate(tmp_path, authority, ["localhost"])
    with pytest.raises(FileExistsError, match=r"node\.key"):
        certificates.make_node_key(tmp_path)
    assert {path: path.read_bytes() for path in before} == before
    certificates.make_node_key(tmp_path, overwrite=True)
    assert node.key.read_bytes() != before[node.key]
    assert mode(node.key) == 0o600
    assert not list(tmp_path.glob(".*"))  # nothing half written is left


def test_a_node_key_is_what_flower_reads(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve

    pair = certificates.make_node_key(tmp_path, name="north")
    private = load_ssh_private_key(pair.key.read_bytes(), None)
    public = load_ssh_public_key(pair.public.read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert uses_nist_ec_curve(public)
    assert public_key_to_bytes(private.public_key()) == public_key_to_bytes(public)


def test_everything_at_once_has_a_folder_for_each_machine(tmp_path: Path) -> None:
    made = certificates.make_all(tmp_path, ["localhost"], ["north", "east"])
    assert not made.kept
    assert {path.name for path in (tmp_path / "sites" / "north").iterdir()} == {"ca.pem", "node.key", "node.pub"}
    names = {str(path.relative_to(tmp_path / "superlink")) for path in (tmp_path / "superlink").rglob("*.*")}
    assert names == {"ca.pem", "server.pem", "server.key", "nodes/north.pub", "nodes/east.pub"}
    keys = list(tmp_path.rglob("*.key"))
    assert {mode(path) for path in keys} == {0o600}
    assert len({path.read_bytes() for path in keys}) == 4


def test_again_it_adds_sites_and_keeps_the_rest(tmp_path: Path) -> None:
    certificates.make_all(tmp_path, ["localhost"], ["north"])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    made = certificates.make_all(tmp_path, ["localhost"], ["north", "east"])
    assert {path.name for path in made.made} == {"node.key", "node.pub", "east.pub"}
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(FileExistsError, match="renew"):
        certificates.make_all(tmp_path, ["elsewhere.example"], ["north"])
    certificates.make_all(tmp_path, ["elsewhere.example"], ["north"], renew=True)
    changed = {path.name for path, content in before.items() if path.read_bytes() != content}
    assert changed == {"server.pem", "server.key"}


@pytest.mark.parametrize("renew", [False, True])
def test_a_key_that_a_site_has_made_itself_is_left_alone(tmp_path: Path, renew: bool) -> None:
    certificates.make_all(tmp_path, ["localhost"], ["east"])
    nodes = tmp_path / "superlink" / "nodes"
    theirs = certificates.make_node_key(tmp_path / "elsewhere", name="north").public.read_bytes()
    (nodes / "north.pub").write_bytes(theirs)
    (nodes / "east.pub").write_bytes(theirs)  # a site that was given a key, and has made another one since
    made = certificates.make_all(tmp_path, ["localhost"], ["north", "east", "south"], renew=renew)
    assert (nodes / "north.pub").read_bytes() == (nodes / "east.pub").read_bytes() == theirs
    assert {path.name for path in (tmp_path / "sites" / "north").iterdir()} == {"ca.pem"}
    assert {nodes / "north.pub", nodes / "east.pub"} <= set(made.kept)
    server = {"server.key", "server.pem"} if renew else set()
    assert {path.name for path in made.made} == {"node.key", "node.pub", "south.pub"} | server


def test_a_private_key_that_has_gone_to_its_site_is_not_made_again(tmp_path: Path) -> None:
    certificates.make_all(tmp_path, ["localhost"], ["north"])
    (tmp_path / "sites" / "north" / "node.key").unlink()
    before = (tmp_path / "superlink" / "nodes" / "north.pub").read_bytes()
    assert not certificates.make_all(tmp_path, ["localhost"], ["north"]).made
    assert (tmp_path / "superlink" / "nodes" / "north.pub").read_bytes() == before
    assert not (tmp_path / "sites" / "north" / "node.key").exists()


def answer_to(app: Any, path: str, client: str | None, headers: list[tuple[bytes, bytes]]) -> int:
    """The status with which an ASGI app answers a call."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    peer = None if client is None else (client, 4711)
    scope = {"type": "http", "path": path, "scheme": "https", "client": peer, "headers": headers}
    asyncio.run(app(scope, receive, send))
    return int(sent[0]["status"])


async def welcome(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


CONTROL, FLEET = "/v1/control/start-run", "/v1/fleet/pull-messages"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # uvicorn's, of websockets
@pytest.mark.parametrize("trusted", [None, "*", "192.0.2.7", "127.0.0.1,192.0.2.0/24"])
def test_the_guard_believes_no_caller_who_says_where_he_is(
    monkeypatch: pytest.MonkeyPatch, trusted: str | None
) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    if trusted is not None:
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)
    config = uvicorn.Config(guard.Guard(welcome))  # with what SuperLink leaves at its default
    config.load()
    served = config.loaded_app
    assert type(served).__name__ == "ProxyHeadersMiddleware"  # it is outside of the guard, and called first
    assert answer_to(served, CONTROL, "127.0.0.1", []) == 200
    assert answer_to(served, CONTROL, "::1", []) == 200
    assert answer_to(served, CONTROL, "192.0.2.7", []) == 403
    assert answer_to(served, CONTROL, None, []) == 403
    for name in (b"x-forwarded-for", b"x-real-ip", b"forwarded", b"via"):
        for address in (b"127.0.0.1", b"127.0.0.1, 127.0.0.1", b"[::1]:80", b"192.0.2.9", b""):
            for client in ("192.0.2.7", "127.0.0.1", None):
                assert answer_to(served, CONTROL, client, [(name, address)]) == 403
                assert answer_to(served, FLEET, client, [(name, address)]) == 200
    assert answer_to(served, "/v1/fleet/register-node", "192.0.2.7", [(b"x-forwarded-for", b"127.0.0.1")]) == 403


@pytest.mark.parametrize("trusted", ["*", "192.0.2.7", "127.0.0.1, 192.0.2.7", "0.0.0.0/0", "localhost", "127.0.0.0/7"])
def test_the_guard_does_not_start_where_proxies_are_trusted(trusted: str) -> None:
    environment = {**os.environ, "FORWARDED_ALLOW_IPS": trusted}
    reason = guard.refusal(environment)
    assert reason is not None
    assert "FORWARDED_ALLOW_IPS" in reason
    assert repr(trusted) in reason


@pytest.mark.parametrize("trusted", ["", "127.0.0.1", "127.0.0.1, ::1", "127.0.0.0/8"])
def test_the_guard_starts_where_only_this_machine_is_trusted(trusted: str) -> None:
    assert guard.refusal({"FORWARDED_ALLOW_IPS": trusted}) is None


@pytest.mark.parametrize(
    "path", ["/v1/fleet/register-node\n", "/v1/fleet/a%0a", "/v1/fleet/../control/start-run", "/v1/fleet/a b"]
)
def test_the_guard_knows_no_odd_paths(path: str) -> None:
    assert not guard.is_allowed(path, ("192.0.2.7", 4711))
    assert guard.is_allowed("/v1/fleet/pull-messages", ("192.0.2.7", 4711))


def test_there_are_warnings_before_certificates_end(tmp_path: Path) -> None:
    pair = certificates.make_authority(tmp_path, days=20)
    (sentence,) = expiry.warn_of_arguments(["superlink", f"--ssl-ca-certfile={pair.public}", "--insecure", "none.pem"])
    assert "ends in 19 days" in sentence
    late = certificates.certificate_end(pair.public) + datetime.timedelta(days=3)
    assert "has ended 3 days ago" in str(expiry.warn_of_end(pair.public, now=late))
    certificates.make_authority(tmp_path / "new")
    assert expiry.warn_of_arguments([str(tmp_path / "new" / "ca.pem")]) == []


def test_the_guard_says_why_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    with pytest.raises(SystemExit, match="FORWARDED_ALLOW_IPS must be unset"):
        guard.superlink()
    monkeypatch.delenv("FORWARDED_ALLOW_IPS")
    monkeypatch.setenv("FLWR_INTERNAL_GRPC_CONTROL_API", "1")
    with pytest.raises(SystemExit, match="FLWR_INTERNAL_GRPC_CONTROL_API must be unset"):
        guard.superlink()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flower's own
def test_the_guard_is_the_first_that_flower_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    command = importlib.import_module("flwr.superlink.cli.flower_superlink")
    extensions = importlib.import_module("flwr.superlink.extensions")
    main = importlib.import_module("flwr.superlink.main")
    for name in ("FORWARDED_ALLOW_IPS", *guard.UNGUARDED):
        monkeypatch.delenv(name, raising=False)
    asked: list[object] = []
    monkeypatch.setattr(extensions, "get_middleware", extensions.get_middleware)  # put back afterwards
    monkeypatch.setattr(command, "flower_superlink", lambda: asked.extend(each.cls for each in main._get_middleware()))
    guard.superlink()
    assert asked[0] is guard.Guard
    assert len(asked) > 1


@pytest.mark.parametrize("site", ["", "../north", "north east", 'a"b', "-north", "n" * 65, 3])
def test_names_of_sites_are_checked(tmp_path: Path, site: Any) -> None:
    with pytest.raises(ValueError, match=r"sites\[0\]"):
        certificates.make_all(tmp_path, ["localhost"], [site])
    with pytest.raises(ValueError, match=r"sites\[0\]"):
        project.write_project(tmp_path, sites=[site])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("hosts", [[], "localhost", ["a b"], ["a/b"], [""], [7]])
def test_hosts_are_checked(tmp_path: Path, hosts: Any) -> None:
    with pytest.raises(ValueError, match="hosts"):
        certificates.make_all(tmp_path, hosts, ["north"])
    assert not list(tmp_path.iterdir())


def test_sites_must_differ(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sites must be different"):
        certificates.make_all(tmp_path, ["localhost"], ["north", "north"])
    with pytest.raises(ValueError, match="sites must be different"):
        project.write_project(tmp_path, sites=["north", "north"])


def load_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_project_has_no_placeholder_left_and_its_files_are_sound(tmp_path: Path) -> None:
    written = project.write_project(tmp_path, sites=["one", "two"], rounds=7, host="superlink.example")
    for path in written:
        text = path.read_text()
        for name in ("SITES", "SITES_COMMA", "FIRST_SITE", "ROUNDS", "MIN_CLIENTS", "HOST"):
            assert f"@{name}@" not in text, path
        if path.suffix == ".py":
            compile(text, str(path), "exec")
        if path.suffix == ".sh":
            assert mode(path) & 0o111
            subprocess.run(["sh", "-n", str(path)], check=True)
    settings = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert settings["tool"]["flwr"]["app"]["components"]["serverapp"] == "federation.server_app:app"
    assert settings["tool"]["flwr"]["app"]["config"]["rounds"] == 7
    for unit in ("superlink.service", "supernode.service"):
        text = (tmp_path / "deploy" / unit).read_text()
        assert "\nRestart=always\n" in text
        assert f"\nExecStart=/etc/fpdfp/start-{unit.removesuffix('.service')}.sh\n" in text


def test_instructions_name_files_that_there_are(tmp_path: Path) -> None:
    project.write_project(tmp_path)
    guide = Path(__file__).parents[1] / "docs" / "flower.md"
    for page in (tmp_path / "README.md", guide):
        text = page.read_text()
        named = set(re.findall(r"deploy/[\w.-]+\w", text))
        assert named == {f"deploy/{path.name}" for path in (tmp_path / "deploy").iterdir()}, page
        for needed in ("/etc/fpdfp/site/node.key", "/etc/fpdfp/site/ca.pem", "systemctl daemon-reload"):
            assert needed in text, page
        assert "sudo -Hu fpdfp deploy/register.sh /etc/fpdfp/superlink.env" in text, page
    assert "\nCERTIFICATES=/etc/fpdfp/site\n" in (tmp_path / "deploy" / "supernode.env").read_text()
    assert '"$CERTIFICATES/node.key"' in (tmp_path / "deploy" / "start-supernode.sh").read_text()


def test_the_project_is_not_written_over_another(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(FileExistsError, match=r"README\.md"):
        project.write_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flower's own
def test_flower_takes_the_project_for_an_app(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    project.write_project(tmp_path)
    _, warnings = load_and_validate(tmp_path / "pyproject.toml", check_module=False)
    assert not warnings
    assert build_fab_from_disk(tmp_path)


def test_the_sites_of_the_example_hold_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fpdfp.flower, "client_app", lambda load: load, raising=False)
    project.write_project(tmp_path, sites=["north", "east", "south"])
    module = load_module(tmp_path / "federation" / "client_app.py")
    sizes = []
    for site in ("north", "east", "south"):
        state = tmp_path / site
        state.mkdir()
        losses = module.app(site, {"site": site, "state": str(state)})
        assert losses.shape == (31,)
        assert {path.name for path in state.iterdir()} == {"features.npy", "labels.npy", "names.txt"}
        sizes.append(int(np.sum(losses.sizes)))
    assert sum(sizes) == 569


@pytest.mark.parametrize("sites", [["alone"], ["north", "east"]])
def test_the_rows_of_the_example_are_used_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sites: list[str]
) -> None:
    monkeypatch.setattr(fpdfp.flower, "client_app", lambda load: load, raising=False)
    project.write_project(tmp_path, sites=sites)
    module = load_module(tmp_path / "federation" / "client_app.py")
    loaded: list[Any] = []
    load = np.load

    def remember(*given: Any, **options: Any) -> Any:
        loaded.append(load(*given, **options))
        return loaded[-1]

    monkeypatch.setattr(np, "load", remember)
    losses = module.app(sites[0], {"site": sites[0], "state": str(tmp_path)})
    assert isinstance(loaded[0], np.memmap)
    assert np.shares_memory(losses._rows.X, loaded[0])
    assert losses._rows.X.shape == loaded[0].shape
    assert np.isfinite(losses.values(np.ones(31), np.array([0]))).all()


def test_the_server_of_the_example_has_a_graph_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fpdfp.flower, "server_app", lambda **given: given, raising=False)
    project.write_project(tmp_path, sites=["north", "east"], rounds=7)
    given = load_module(tmp_path / "federation" / "server_app.py").app
    assert given["linop"].shape == (60, 31)
    assert given["sites"] == ["north", "east"]
    assert given["min_clients"] == 1


def test_commands(tmp_path: Path) -> None:
    runner = CliRunner()
    keys = tmp_path / "keys"
    answer = runner.invoke(app, ["certificates", str(keys), "--host", "superlink.example", "--sites", "a, b"])
    assert answer.exit_code == 0, answer.output
    hosts = certificates.certificate_hosts(keys / "superlink" / "server.pem")
    assert hosts == ("superlink.example", "localhost", "127.0.0.1")
    answer = runner.invoke(app, ["certificates", str(keys), "--host", "other.example", "--sites", "a,b"])
    assert answer.exit_code == 1
    assert "renew" in answer.output
    answer = runner.invoke(app, ["key", "c", "--folder", str(tmp_path)])
    assert answer.exit_code == 0
    assert mode(tmp_path / "c.key") == 0o600
    answer = runner.invoke(app, ["init", str(tmp_path / "project"), "--sites", "a,b"])
    assert answer.exit_code == 0
    answer = runner.invoke(app, ["init", str(tmp_path / "project"), "--sites", "a,b"])
    assert answer.exit_code == 1
    assert "not overwritten" in answer.output


def test_the_demonstration_empties_no_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(FileExistsError, match="output must be an empty folder"):
        demo.run(tmp_path)
    assert (tmp_path / "mine").exists()


class Watched:
    """In place of a federation of processes: what the demonstration would have run."""

    runs: ClassVar[list[tuple[Path, Any]]] = []
    address, logs = "127.0.0.1:1", Path("logs")

    def __init__(self, *given: Any, **options: Any) -> None:
        self.runs.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def run(self, app: Path, config: Any) -> int:
        self.runs.append((app, config))
        return 1

    def wait(self, *given: Any, **options: Any) -> Any:
        return SimpleNamespace(bytes_received=0, bytes_sent=0)


def test_the_demonstration_gives_rounds_to_an_app_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "Federation", Watched)
    demo.run(tmp_path / "out", rounds=3)
    assert Watched.runs == [(tmp_path / "out" / "app", {})]  # the template's own has them in its settings
    assert (
        tomllib.loads((tmp_path / "out" / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"][
            "rounds"
        ]
        == 3
    )

    own = tmp_path / "own"
    project.write_project(own, rounds=30)
    demo.run(tmp_path / "out", rounds=3, app=own)
    assert Watched.runs == [(own, {"rounds": 3})]
    assert "--rounds" not in capsys.readouterr().out

    settings = own / "pyproject.toml"
    settings.write_text(settings.read_text().replace("rounds = 30\n", ""))
    demo.run(tmp_path / "out", rounds=3, app=own)
    assert Watched.runs == [(own, {})]
    assert "--rounds does not apply" in capsys.readouterr().out
    settings.write_text("[project]\nname = 'own'\n")
    assert demo.run_config(own, 3) == {}


def test_the_demonstration_does_not_delete_the_app(tmp_path: Path) -> None:
    own = tmp_path / "out" / "app"
    project.write_project(own)
    (tmp_path / "out" / demo.OURS).touch()
    with pytest.raises(ValueError, match="does not hold the app"):
        demo.run(tmp_path / "out", app=own)
    assert (own / "pyproject.toml").exists()


def test_a_process_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    # The grandchild leaves the session and ignores SIGTERM: neither the process group nor a polite signal reaches it.
    script = (
        "import subprocess, sys, time\n"
        "ignore = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)'\n"
        "inner = ignore + '; print(1, flush=True); time.sleep(99)'\n"
        "subprocess.Popen([sys.executable, '-c', inner], start_new_session=True)\n"
        "time.sleep(99)\n"
    )
    mark = ("FPDFP_TEST", str(tmp_path))
    child = processes.Child(
        [sys.executable, "-c", script], log=tmp_path / "log", environment=dict(os.environ), mark=mark
    )
    child.start()
    deadline = time.monotonic() + 20
    while not child.text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(child.family()) == 2
    child.stop()
    assert child.returncode == -signal.SIGTERM
    assert not child.family()
    assert not child.running


def test_importing_fpdfp_imports_neither_flower_nor_cryptography() -> None:
    code = (
        "import sys, fpdfp, fpdfp.flower.commands, fpdfp.flower.project, fpdfp.flower.guard\n"
        "assert not {'flwr', 'cryptography', 'grpc'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
