"""Certificates, keys and the project of a federation: everything about Flower that needs no running process."""

from __future__ import annotations

import datetime
import importlib.util
import os
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
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from fpdfp.flower import certificates, processes, project
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
    import fpdfp.flower

    monkeypatch.setattr(fpdfp.flower, "client_app", lambda load: load, raising=False)
    project.write_project(tmp_path, sites=["north", "east", "south"])
    module = load_module(tmp_path / "federation" / "client_app.py")
    sizes = []
    for site in ("north", "east", "south"):
        config = {"site": site, "state": str(tmp_path)}
        (tmp_path / "example.npy").unlink(missing_ok=True)
        losses = module.app(site, config)
        assert losses.shape == (31,)
        sizes.append(int(np.sum(losses.sizes)))
    assert sum(sizes) == 569


def test_the_server_of_the_example_has_a_graph_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fpdfp.flower

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
    answer = CliRunner().invoke(app, ["demo", "--output", str(tmp_path)])
    assert answer.exit_code == 1
    assert "output must be an empty folder" in answer.output
    assert (tmp_path / "mine").exists()


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
        "import sys, fpdfp, fpdfp.flower.federation, fpdfp.flower.commands, fpdfp.flower.project, fpdfp.flower.guard\n"
        "assert not {'flwr', 'cryptography', 'grpc'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
