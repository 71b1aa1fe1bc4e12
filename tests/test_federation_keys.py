"""Who may connect to a federation: enrolment, renewal, removal, roles, versions and clocks."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from fpdfp.errors import ArgumentError, MessageError
from fpdfp.federation import framing, keys
from fpdfp.federation.connection import Connection, Stream, enrol
from fpdfp.federation.framing import LostError, Message, RefusedError
from fpdfp.federation.keys import Identity, Study, read_invitation
from tests.federation_trial import AgentThread, HubThread, Trial, TrialDesk, free_port


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(tmp_path, ["north", "east"])
    with HubThread(trial.study), contextlib.closing(trial.link):
        yield trial


def invitation(trial: Trial, site: str = "north") -> Any:
    return read_invitation(trial.study.folder / "invitations" / f"invitation-{site}.zip")


def wait_until(true: Any, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_nothing_is_readable_by_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        study = Study.create(tmp_path / "study", ["north"], port=free_port())
        with HubThread(study):
            enrol(invitation_of(study), tmp_path / "north")
    finally:
        os.umask(before)
    for folder in (tmp_path / "study", tmp_path / "north"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for path in folder.rglob("*"):
            if path.is_dir():
                assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
            elif path.suffix == ".pem" and path.name in ("ca.pem", "server.pem"):
                assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0, path
            else:
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def handshake(server: keys.Pair, authority: Path, name: str) -> None:
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


def test_the_hub_is_believed_under_its_names_only(tmp_path: Path) -> None:
    authority = keys.make_authority(tmp_path)
    server = keys.make_server_certificate(tmp_path, authority, ["hub.example", "127.0.0.1", "::1"])
    for name in ("hub.example", "127.0.0.1", "::1"):
        handshake(server, authority.public, name)
    for name in ("other.example", "127.0.0.2"):
        with pytest.raises(ssl.SSLCertVerificationError, match="match"):
            handshake(server, authority.public, name)


def test_another_authority_is_not_believed(tmp_path: Path) -> None:
    authority, other = (keys.make_authority(tmp_path / name) for name in ("ours", "other"))
    server = keys.make_server_certificate(tmp_path, authority, ["localhost"])
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        handshake(server, other.public, "localhost")


def test_certificates_say_what_they_are_for(tmp_path: Path) -> None:
    from cryptography import x509

    authority = keys.make_authority(tmp_path, days=10)
    server = keys.make_server_certificate(tmp_path, authority, ["localhost"], days=5)
    own = x509.load_pem_x509_certificate(server.public.read_bytes())
    assert not own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not own.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    own.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.public.read_bytes()))
    left = own.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=4.9) < left < datetime.timedelta(days=5.1)


def test_private_keys_are_not_overwritten(tmp_path: Path) -> None:
    authority = keys.make_authority(tmp_path)
    server = keys.make_server_certificate(tmp_path, authority, ["localhost"])
    before = {pair.key: pair.key.read_bytes() for pair in (authority, server)}
    with pytest.raises(FileExistsError, match=r"ca\.key"):
        keys.make_authority(tmp_path)
    with pytest.raises(FileExistsError, match=r"server\.key"):
        keys.make_server_certificate(tmp_path, authority, ["localhost"])
    assert {path: path.read_bytes() for path in before} == before
    keys.make_server_certificate(tmp_path, authority, ["localhost"], overwrite=True)
    assert server.key.read_bytes() != before[server.key]
    assert stat.S_IMODE(server.key.stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".*"))  # nothing half written is left


@pytest.mark.parametrize("hosts", [[], "localhost", ["a b"], ["a/b"], [""], [7]])
def test_hosts_are_checked(tmp_path: Path, hosts: Any) -> None:
    with pytest.raises(ValueError, match="hosts"):
        Study.create(tmp_path / "study", ["north"], hosts=hosts)
    assert not list(tmp_path.iterdir())


def invitation_of(study: Study, site: str = "north") -> Any:
    return read_invitation(study.folder / "invitations" / f"invitation-{site}.zip")


def test_a_private_key_never_travels_and_an_invitation_serves_once(trial: Trial, tmp_path: Path) -> None:
    invited = invitation(trial)
    mine = enrol(invited, tmp_path / "mine")
    key = mine.credentials.key
    assert key != invited.credentials.key
    for path in trial.study.folder.rglob("*"):
        assert path.is_dir() or key.splitlines()[1] not in path.read_bytes(), path
    with pytest.raises(RefusedError, match=r"the invitation of north was used on 20\d\d-.*serves once"):
        enrol(invited, tmp_path / "copy")
    assert not (tmp_path / "copy" / "identity.toml").exists()
    assert trial.study.registry.named("north").state == "joined"


def test_a_lost_answer_can_be_asked_for_again(trial: Trial, tmp_path: Path) -> None:
    """The hub has signed the key, but the site never got the certificate: the same key may ask again."""
    invited, folder = invitation(trial), tmp_path / "mine"
    request = keys.make_request(keys.pending_key(folder), "north")
    with Stream(invited.about, invited.credentials) as line:
        line.send(Message("enrol", {"request": request.decode()}))
        wait_until(lambda: trial.study.registry.named("north").state == "joined")
    mine = enrol(invited, folder)
    with Stream(mine.about, mine.credentials):
        pass
    assert not (folder / "pending.pem").exists()


def test_an_invitation_does_nothing_but_enrol(trial: Trial) -> None:
    invited = invitation(trial)
    with Stream(invited.about, invited.credentials) as line:
        line.send(Message("reply", {"id": 1}))
        with pytest.raises(RefusedError, match="'reply' is not accepted from north"):
            next(iter(line))


def test_a_request_for_another_name_is_not_signed(trial: Trial) -> None:
    invited = invitation(trial)
    with Stream(invited.about, invited.credentials) as line:
        line.send(Message("enrol", {"request": keys.make_request(keys.make_key(), "coordinator").decode()}))
        with pytest.raises(RefusedError, match="must be for north"):
            next(iter(line))


@pytest.mark.parametrize("request_", ["", "no PEM", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n"])
def test_what_is_no_signing_request_is_refused(trial: Trial, request_: str) -> None:
    with pytest.raises(MessageError):
        keys.sign_request(trial.study.authority, request_.encode(), "north", "site")


def test_a_sites_key_does_not_serve_an_analyst(trial: Trial) -> None:
    site = trial.join("north")
    for about in (site.about._replace(role="analyst"), site.about._replace(name="east")):
        with pytest.raises(RefusedError, match="this key belongs to the site north, and does not serve for"):
            Stream(about, site.credentials)
    with Stream(site.about, site.credentials) as line:
        line.send(Message("ask", {"id": 1, "to": [["east", 0]]}))
        with pytest.raises(RefusedError, match="'ask' is not accepted from"):
            next(iter(line))


def test_somebody_elses_certificate_is_refused(trial: Trial, tmp_path: Path) -> None:
    other = Study.create(tmp_path / "other", ["north"], port=trial.study.port)
    stranger = invitation_of(other)
    with pytest.raises(LostError, match="does not believe"):
        Stream(stranger.about, stranger.credentials)
    # One that the authority has signed, but that is not on the list.
    key = keys.make_key()
    signed = keys.sign_request(trial.study.authority, keys.make_request(key, "north"), "north", "site")
    own = invitation(trial)
    with pytest.raises(RefusedError, match="is not, or no longer, one of the study study"):
        Stream(own.about, own.credentials._replace(key=key, certificate=signed))


def test_a_removed_site_is_dropped_at_once(trial: Trial) -> None:
    with AgentThread(trial.join("north"), TrialDesk(None)) as agent:
        trial.wait(["north"])
        Study(trial.study.folder).remove("north")  # as another process does it
        started = time.monotonic()
        agent.thread.join(5.0)
        assert time.monotonic() - started < 2.0
        assert "north was removed from the study study on" in str(agent.error)
        assert str(trial.asking.ask("x", {"north": {"kind": "echo"}}, 5.0)["north"]) == "it was removed from the study"
    site = Identity(trial.folder / "north")
    with pytest.raises(RefusedError, match="north was removed"):
        Stream(site.about, site.credentials)


def test_a_lost_key_is_replaced(trial: Trial, tmp_path: Path) -> None:
    old = trial.join("north")
    trial.study.invite("north", "site")
    with pytest.raises(RefusedError, match="no longer, one of the study"):
        Stream(old.about, old.credentials)
    new = enrol(invitation(trial), tmp_path / "again")
    with Stream(new.about, new.credentials):
        pass
    with pytest.raises(ArgumentError, match="north is the name of a site"):
        trial.study.invite("north", "analyst")


def test_an_analyst_elsewhere(trial: Trial, tmp_path: Path) -> None:
    ada = enrol(read_invitation(trial.study.invite("ada", "analyst")), tmp_path / "ada")
    with contextlib.closing(Connection(ada)) as link:
        assert [site.name for site in link.status().sites] == ["north", "east"]


def shorten_life(trial: Trial, who: Identity, role: str, days: int = 100) -> str:
    """Give somebody a certificate of which less than a third is left."""
    key, name = who.credentials.key, who.about.name
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "SLACK", datetime.timedelta(days=300))
        certificate = keys.sign_request(trial.study.authority, keys.make_request(key, name), name, role, days=days)
    who.replace(key, certificate)
    trial.study.registry.add_certificate(name, certificate)
    return keys.fingerprint(certificate)


def test_a_site_is_renewed_while_it_runs(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    site = trial.join("north")
    old = shorten_life(trial, site, "site")
    assert "the certificate of north ends in 99 days" in str(site.warn())
    with AgentThread(site, TrialDesk(None)):
        wait_until(lambda: not site.validity.is_due())
        new = keys.fingerprint(site.credentials.certificate)
        # The old one is of no use once the new one was used.
        wait_until(lambda: list(trial.study.registry.named("north").certificates) == [new])
        trial.wait(["north"])
        assert trial.asking.ask("x", {"north": {"kind": "echo", "body": 1}}, 5.0)["north"]["reply"] == {"body": 1}
    assert old != new
    assert site.warn() is None


def test_an_analyst_is_renewed(trial: Trial) -> None:
    analyst = trial.study.analyst
    shorten_life(trial, analyst, "analyst")
    trial.link.status()
    wait_until(lambda: trial.link.status() and not analyst.validity.is_due())
    trial.link.close()
    assert trial.link.status().study == "study"
    assert len(trial.study.registry.named("coordinator").certificates) == 1


def test_the_hub_is_renewed_while_it_runs(trial: Trial) -> None:
    study = trial.study
    trial.link.status()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "SLACK", datetime.timedelta(days=300))
        keys.make_server_certificate(study.folder / "hub", study.authority, ["127.0.0.1"], days=100, overwrite=True)
    assert any("the certificate of the hub ends in 99 days" in line for line in study.warnings())
    assert study.renew_hub()
    assert not study.renew_hub()
    assert study.warnings() == []
    # A new connection, which sees the new certificate; the old one goes on.
    with contextlib.closing(Connection(study.analyst)) as other:
        assert other.status().study == trial.link.status().study


def test_an_expired_certificate_and_a_wrong_clock_are_named(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    site = trial.join("north")
    validity = site.validity
    assert validity.problem(validity.starts + datetime.timedelta(days=1)) is None
    assert "its certificate ended on" in str(validity.problem(validity.ends + datetime.timedelta(days=1)))
    assert "its certificate begins on" in str(validity.problem(validity.starts - datetime.timedelta(days=1)))
    # Two days before it was made it is valid already: a clock that is behind by a day does no harm.
    now = datetime.datetime.now(datetime.UTC)
    assert validity.problem(now - datetime.timedelta(days=1)) is None
    with monkeypatch.context() as patch:
        patch.setattr(keys, "SLACK", datetime.timedelta(days=-1))
        key = site.credentials.key
        late = keys.sign_request(trial.study.authority, keys.make_request(key, "north"), "north", "site")
    with pytest.raises(RefusedError, match=r"its certificate begins on .* this machine's clock says"):
        Stream(site.about, site.credentials._replace(certificate=late))


@pytest.mark.parametrize("hours", [-24, 24])
def test_clocks_that_are_off_by_a_day_are_named_and_survived(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hours: int
) -> None:
    real = framing.hello

    def hello(study: str, role: str, name: str, *others: Any) -> Message:
        message = real(study, role, name, *others)
        if role == "site":
            message.about["time"] += 3600 * hours
        return message

    monkeypatch.setattr("fpdfp.federation.connection.hello", hello)
    with AgentThread(trial.join("north"), TrialDesk(None)):
        trial.wait(["north"])
        assert trial.asking.ask("x", {"north": {"kind": "echo", "body": 1}}, 5.0)["north"]["reply"] == {"body": 1}
        side = "ahead of" if hours > 0 else "behind"
        clocks = {site.name: site.clock for site in trial.link.status().sites}
        assert clocks["north"] == f"24.0 hours {side} this machine's"
    assert f"the clock of north is 24.0 hours {side} this machine's" in caplog.text


@pytest.mark.parametrize(("hub", "site", "upgrade"), [((2, 3), (1, 1), "north"), ((1, 1), (2, 2), "the hub")])
def test_releases_that_do_not_agree_say_which_side_to_upgrade(
    tmp_path: Path, hub: tuple[int, int], site: tuple[int, int], upgrade: str
) -> None:
    trial = Trial(tmp_path, ["north"])
    with HubThread(trial.study):
        joined = trial.join("north")
    with (
        HubThread(trial.study, protocol=hub),
        pytest.raises(RefusedError, match=f"^upgrade fpdfp at {upgrade}: it has"),
    ):
        Stream(joined.about, joined.credentials, protocol=site)


def test_newer_releases_speak_the_version_that_both_know() -> None:
    assert framing.agree({"protocol": [1, 4]}, "the hub", "north", (2, 3)) == 3
    with pytest.raises(RefusedError, match="does not state the versions"):
        framing.agree({"protocol": "new"}, "the hub", "north")


def test_a_second_process_of_a_site_takes_the_place_of_the_first(trial: Trial) -> None:
    site = trial.join("north")
    with AgentThread(site, TrialDesk(None)) as first:
        trial.wait(["north"])
        with AgentThread(site, TrialDesk(None)) as second:
            first.thread.join(5.0)
            assert str(first.error) == "another process has connected as north"
            trial.wait(["north"])
            assert second.error is None


@pytest.mark.parametrize("sites", ["north", [], ["a b"], ["north", "north"], ["coordinator"], ["../x"]])
def test_sites_must_be_different_names(tmp_path: Path, sites: Any) -> None:
    with pytest.raises(ValueError, match="sites"):
        Study.create(tmp_path / "study", sites)
    assert not (tmp_path / "study").exists()


def test_a_study_is_not_overwritten(tmp_path: Path) -> None:
    Study.create(tmp_path / "study", ["north"])
    with pytest.raises(FileExistsError):
        Study.create(tmp_path / "study", ["north"])
    with pytest.raises(ArgumentError, match=r"must be a folder that fpdfp federation new has made"):
        Study(tmp_path)


@pytest.mark.parametrize("contents", [b"", b"PK nothing", None])
def test_what_is_no_invitation_is_refused(tmp_path: Path, contents: bytes | None) -> None:
    path = tmp_path / "invitation.zip"
    if contents is None:
        import zipfile

        with zipfile.ZipFile(path, "w") as file:
            file.writestr("identity.toml", "format = 1")
    else:
        path.write_bytes(contents)
    with pytest.raises(ArgumentError, match="must be a file that fpdfp federation new has written"):
        read_invitation(path)


@pytest.mark.parametrize(
    "parts",
    [[b"XXXX" + bytes(20)], [framing.HEAD.pack(b"FPD1", 1 << 20, 0)], [framing.HEAD.pack(b"FPD1", 2, 0) + b"[]"],
     [framing.HEAD.pack(b"FPD1", 2, 0) + b"{x"]],
)  # fmt: skip
def test_what_is_no_message_is_refused(parts: list[bytes]) -> None:
    decoder = framing.Decoder()
    with pytest.raises(MessageError):
        [list(decoder.feed(part)) for part in parts]


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_messages_are_read_from_parts_of_any_length(size: int) -> None:
    sent = [Message("a", {"n": 1}, b"x" * 10), Message("b", {}, b""), Message("c", {}, b"y" * 1000), Message("d", {})]
    stream = b"".join(piece for message in sent for piece in framing.encode(message))
    decoder = framing.Decoder(limit=100)
    found = [m for at in range(0, len(stream), size) for m in decoder.feed(stream[at : at + size])]
    assert found == [sent[0], sent[1], Message("c", {}, b"", 1000), sent[3]]
    assert all(len(part) <= framing.PART for part in framing.split([bytes(3 * framing.PART + 5)]))
