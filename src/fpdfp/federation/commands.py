"""The commands ``fpdfp federation …``: for a coordinator, for a site, and to rehearse both on one machine."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fpdfp.federation.text import LONGEST, printable, read_path

if TYPE_CHECKING:
    from fpdfp.federation.keys import Identity, Study

TEMPLATE = Path(__file__).parent / "template"

#: The groups of commands, by who runs them.
REHEARSAL, COORDINATOR = "Try it on one machine", "The coordinator"
SITE, ANALYST = "A site (an analyst joins as well)", "The analyst"
app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, help="Fit models to rows that stay at several organisations."
)

StudyFolder = Annotated[Path, typer.Argument(help="The folder of the study.")]
Name = Annotated[str, typer.Argument(help="The name of a site or an analyst.")]
SiteFolder = Annotated[Path, typer.Argument(help="The folder of the site, which join has made.")]


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """Within this, what goes wrong is one sentence and an exit status: 2 where to try again is of no use."""
    from fpdfp.federation.framing import RefusedError

    try:
        yield
    except typer.Exit:
        raise
    except RefusedError as error:
        say(error, err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        say("interrupted", err=True)
        raise typer.Exit(130) from None
    except ImportError as error:
        say(f"{error}: pip install cryptography formulaic grpcio", err=True)
        raise typer.Exit(1) from None
    except (OSError, RuntimeError, ValueError) as error:
        say(error, err=True)
        raise typer.Exit(1) from None


def command(name: str | None = None, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what registers a command; what goes wrong in it is one sentence."""
    return lambda function: app.command(name, **options)(leaving()(function))


@command(rich_help_panel=COORDINATOR)
def new(
    study: Annotated[Path, typer.Argument(help="A folder that is not there yet; its name becomes the study's.")],
    sites: Annotated[
        list[str], typer.Option("--sites", help="The names of the sites: --sites north --sites east, or north,east.")
    ],
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address by which sites reach this machine; the first is used.")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The hub's port.")] = 8443,
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Create a study.

    Its folder has an authority, the hub's certificate, the coordinator's key, and an invitation for each site.

    Example: fpdfp federation new study --sites north east south --host hub.example
    """
    from fpdfp.federation.keys import Study

    names = [name for one in [*sites, *(more or [])] for name in one.split(",") if name]
    made = Study.create(study, names, hosts=host or ["localhost"], port=port)
    write_service("hub", study, study=made.name, port=port)
    if not host:
        say("no --host was given: sites on other machines will not find this one as localhost", err=True)
    for path in made.invitations():
        say(path)
    say("hand each site its invitation, over a way that only it can read; each serves once, within 14 days")
    say(f"then: fpdfp federation serve {study}")


@command(rich_help_panel=COORDINATOR)
def serve(
    study: StudyFolder,
    bind: Annotated[str, typer.Option(help="The address to listen at; by default all of this machine.")] = "[::]",
    unit: Annotated[
        bool, typer.Option("--unit", help="Write a unit for systemd and a container file, and leave.")
    ] = False,
) -> None:
    """Run the hub until Ctrl-C or SIGTERM.

    Example: fpdfp federation serve study
    """
    from fpdfp.federation.hub import serve as run

    found = _study(study)
    if unit:
        for path in write_service("hub", study, study=found.name, port=found.port):
            say(path)
        return
    for line in found.warnings():
        say(line, err=True)
    log_to_stderr()
    run(found, bind)


@command(rich_help_panel=SITE)
def join(
    invitation: Annotated[Path, typer.Argument(help="The file that the coordinator has sent.")],
    data: Annotated[Path | None, typer.Option(help="The site's table: a CSV or Parquet file.")] = None,
    policy: Annotated[
        Path | None, typer.Option(help="The site's policy; by default the safe one of the package.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the site keeps its key and its log; by default NAME next to the invitation."),
    ] = None,
    unit: Annotated[
        bool, typer.Option("--unit", help="Enrol, write a unit for systemd and a container file, and leave.")
    ] = False,
) -> None:
    """Join a study as a site or an analyst.

    A site makes a key, has it signed, and answers until Ctrl-C or SIGTERM. An analyst only enrols.

    The invitation serves once; the same command starts the site again later, with the key in its folder.

    Example: fpdfp federation join invitation-north.zip --data patients.csv --policy policy.toml
    """
    from fpdfp.federation.agent import alone, attend, digest_of_data, open_guard

    identity = find_identity(invitation, folder)
    about = identity.about
    warning = identity.warn()
    if warning is not None:
        say(warning, err=True)
    if about.role == "analyst":
        say(f"{about.name} has joined: fpdfp.Federation({str(identity.folder)!r})")
        return
    if data is None:
        raise ValueError("--data must name the site's table")
    if unit:
        written = write_service(
            "site", identity.folder, study=about.study, site=about.name, data=data.resolve(),
            data_name=data.name, policy=(policy or identity.folder / "policy.toml").resolve(),
            invitation=invitation.resolve(),
        )  # fmt: skip
        for path in written:
            say(path)
        return
    log_to_stderr()
    with alone(identity.folder), open_guard(about.name, identity.folder, data, policy) as desk:
        fingerprint = str(getattr(desk.table, "fingerprint", ""))
        attend(identity, desk, digest_of_data(identity.folder, fingerprint))


def find_identity(invitation: Path, folder: Path | None) -> Identity:
    """Return who a site is: as its folder says, or as it enrols with an invitation."""
    from fpdfp.federation.connection import enrol
    from fpdfp.federation.keys import Identity, read_invitation

    if folder is not None and (folder / "identity.toml").exists():
        return Identity(folder)  # the invitation has served, and may be gone
    invited = read_invitation(invitation)
    folder = folder or invitation.parent / invited.about.name
    if (folder / "identity.toml").exists():
        known = Identity(folder)
        if known.about[:3] != invited.about[:3] or known.credentials.authority != invited.credentials.authority:
            raise ValueError(f"{folder} belongs to {known.about.name} of another study: give another --folder")
        return known
    return enrol(invited, folder)


@command(rich_help_panel=COORDINATOR)
def status(study: StudyFolder) -> None:
    """Show sites and certificates that end soon.

    Example: fpdfp federation status study
    """
    from fpdfp.federation.analyst import Federation

    with Federation(study) as federation:
        say(*str(federation.status()).splitlines())


@command(rich_help_panel=ANALYST)
def describe(study: StudyFolder) -> None:
    """Show the columns of all sites.

    Policies decide what is shown.

    Example: fpdfp federation describe study
    """
    from fpdfp.federation.analyst import Federation

    with Federation(study) as federation:
        for line in federation.status().warnings:
            say(line, err=True)
        say(*str(federation.describe()).splitlines())


@command(rich_help_panel=ANALYST)
def repeat(
    study: StudyFolder,
    run: Annotated[Path, typer.Argument(help="The folder of a run, in the folder runs of the study.")],
) -> None:
    """Repeat a fit and compare its digits.

    If they differ, the cause is named.

    Example: fpdfp federation repeat study study/runs/first
    """
    from fpdfp.federation.analyst import Federation
    from fpdfp.federation.analyst import repeat as run_again

    with Federation(study) as federation:
        said = run_again(run, federation)
    say(*str(said).splitlines())
    if not said.same:
        raise typer.Exit(1)


@command(rich_help_panel=COORDINATOR)
def remove(study: StudyFolder, name: Name) -> None:
    """Remove a site or an analyst.

    Its connection is dropped, and its key is refused.

    Example: fpdfp federation remove study north
    """
    _study(study).remove(name)
    say(f"{name} was removed")


@command(rich_help_panel=COORDINATOR)
def forget(study: StudyFolder, name: Name) -> None:
    """Accept a site's log that begins anew or lost lines.

    The hub and analysts forget the old one.

    Do so when the site has explained why, for example after a power cut or when an old copy of its folder was restored.

    Example: fpdfp federation forget study north
    """
    _study(study).registry.forget(name)
    say(f"{name} may connect with the log that it has now")


@command(rich_help_panel=COORDINATOR)
def invite(study: StudyFolder, name: Name) -> None:
    """Invite a new site, or replace a lost key.

    An old key is refused from then on.

    Example: fpdfp federation invite study north
    """
    say(_study(study).invite(name, "site"))


@command(rich_help_panel=COORDINATOR)
def analyst(study: StudyFolder, name: Name) -> None:
    """Invite an analyst on another machine.

    The analyst then calls fpdfp federation join with the invitation.

    Example: fpdfp federation analyst study ada
    """
    say(_study(study).invite(name, "analyst"))


@command("log", rich_help_panel=SITE)
def show_log(
    folder: SiteFolder,
    last: Annotated[int | None, typer.Option(min=1, help="The number of lines, from the end.")] = None,
) -> None:
    """Show the log of a site: requests, askers and answers.

    Example: fpdfp federation log north --last 20
    """
    from fpdfp.federation import audit

    lines = list(audit.entries(folder))
    for entry in lines[-last:] if last else lines:
        say(str(entry))


@command(rich_help_panel=SITE)
def verify(
    folder: SiteFolder,
    known: Annotated[str | None, typer.Option(help="A hash that was noted earlier: it must be that of a line.")] = None,
) -> None:
    """Check that a site's log is complete and unchanged.

    Note the hash that this prints.

    Example: fpdfp federation verify north
    """
    from fpdfp.federation import audit

    verdict = audit.verify(folder, known)
    for fault in verdict.faults:
        say(fault, err=True)
    say(f"{verdict.entries} lines, the last with the hash {verdict.hash}")
    if verdict.faults:
        raise typer.Exit(1)


@command("inspect", rich_help_panel=SITE)
def inspect_reply(
    place: Annotated[Path, typer.Argument(help="A site's folder, for all that waits, or a file in its outbox.")],
) -> None:
    """Show the content of waiting replies.

    Every number, text and array is listed, with its bytes.

    Replies are kept in the folder's outbox where the policy states it (copies, or hold with kinds that wait).

    Example: fpdfp federation inspect north
    """
    from fpdfp.federation import outbox

    for path in _waiting(place):
        say(path)
        for line in outbox.lines(path.read_bytes()):
            say(line)


Kept = Annotated[Path, typer.Argument(help="A site's folder, for all that waits, or a file in its outbox.")]


@command(rich_help_panel=SITE)
def release(place: Kept) -> None:
    """Release waiting replies.

    A site that stopped after too many refused points answers again.

    Example: fpdfp federation release north
    """
    from fpdfp.federation import outbox
    from fpdfp.federation.guard import STOPPED

    if (place / STOPPED).exists():
        (place / STOPPED).unlink()
        say("the site answers again")
    for file in _waiting(place):
        outbox.release(file)
        say(f"{file} may leave")


@command(rich_help_panel=SITE)
def refuse(place: Kept) -> None:
    """Refuse waiting replies.

    The analyst learns only that they were not released.

    Example: fpdfp federation refuse north
    """
    from fpdfp.federation import outbox

    for file in _waiting(place):
        outbox.refuse(file)
        say(f"{file} stays here")


def _waiting(place: Path) -> list[Path]:
    """Return the replies that wait in a site's folder, or the one that is given."""
    from fpdfp.federation import outbox

    found = outbox.waiting(place / "outbox") if place.is_dir() else [place]
    if not found:
        say("nothing waits")
    return found


@command(rich_help_panel=SITE)
def approve(
    folder: SiteFolder,
    name: Annotated[str | None, typer.Argument(help="The variable; without it all proposals are shown.")] = None,
    answer: Annotated[str, typer.Argument(help="yes, no or later.")] = "yes",
) -> None:
    """Show or answer proposed variables.

    Counts are shown with each; answers are yes, no or later.

    Example: fpdfp federation approve north elderly yes
    """
    from fpdfp.federation.approvals import Approvals

    approvals = Approvals(folder)
    if name is not None:
        approvals.answer(name, answer)
    for one in approvals.read().values():
        say(*str(one).splitlines())


def _study(folder: Path) -> Study:
    """Return the study of a folder."""
    from fpdfp.federation.keys import Study

    return Study(folder)


def _member(folder: Path) -> Path:
    """Return the folder of an identity: a site's, or the analyst's in the folder of a study."""
    inner = folder / "analyst"
    found = inner if (inner / "identity.toml").is_file() else folder
    if not (found / "identity.toml").is_file():
        raise ValueError(f"{folder} must be the folder of a site, of an analyst or of a study")
    return found


@command(rich_help_panel=SITE)
def key(folder: SiteFolder) -> None:
    """Show the public key of a site or an analyst.

    Members of masked sums name each other's in policy.toml; `trust` takes the key of the person you speak with. Read it
    to each other by telephone: who gives you a wrong one can read what you send.

    Example: fpdfp federation key north
    """
    from fpdfp.federation.keys import Identity
    from fpdfp.federation.seal import Secret

    member = _member(folder)
    say(f'{Identity(member).about.name} = "{Secret.of(member).public.hex()}"')


@command(rich_help_panel=SITE)
def trust(
    folder: SiteFolder,
    name: Name,
    key: Annotated[str, typer.Argument(help="The 64 digits that `fpdfp federation key` shows there.")],
) -> None:
    """Trust the key of a site or an analyst.

    From then on both exchange sealed messages only.

    The hub then hands on what it cannot read or change. Restart the process.

    Example: fpdfp federation trust north ann 3ccd…
    """
    from fpdfp.federation.seal import Pins

    Pins(_member(folder)).add(name, key)


@command(rich_help_panel=SITE)
def budget(
    folder: SiteFolder,
    policy: Annotated[Path | None, typer.Option(help="The site's policy; by default that in its folder.")] = None,
    data: Annotated[Path | None, typer.Option(help="A table for which an account is opened.")] = None,
) -> None:
    """Show a site's privacy budget.

    With --data, open an account for changed data.

    A new account is a new budget: open one only for data of other people, or if you accept that both add up. The site's
    process must not be running.

    Example: fpdfp federation budget north
    """
    from fpdfp.federation.policy import Policy
    from fpdfp.federation.protected import LEDGER
    from fpdfp.federation.table import SiteTable
    from fpdfp.privacy.ledger import Ledger

    rules = Policy.read(policy or folder / "policy.toml")
    if rules.level != "private":
        raise ValueError(f"{folder} has the level {rules.level!r}: only 'private' has such a budget")
    with Ledger(folder / LEDGER, rules.epsilon, rules.delta) as ledger:
        if data is not None:
            ledger.open(SiteTable.read(data, rules.columns_of_the_table).fingerprint)
        say(*map(str, ledger.accounts()))


@command(rich_help_panel=SITE)
def policy() -> None:
    """Print a policy with comments and all defaults.

    Example: fpdfp federation policy > policy.toml
    """
    from fpdfp.federation.policy import template

    say(*template().splitlines())


@command(rich_help_panel=REHEARSAL)
def example(
    file: Annotated[Path, typer.Argument(help="The CSV file to write; one that is there is not overwritten.")],
    rows: Annotated[int, typer.Option(help="The number of patients, at least 100.")] = 900,
) -> None:
    """Write a table of simulated patients.

    Example: fpdfp federation example patients.csv
    """
    from fpdfp.federation.rehearse import write_patients

    say(write_patients(file, rows))


@command(rich_help_panel=REHEARSAL)
def rehearse(
    data: Annotated[Path, typer.Option(help="A table with the rows of all sites: a CSV or Parquet file.")],
    by: Annotated[str, typer.Option(help="The column that names each row's site.")],
    model: Annotated[str, typer.Option(help='The model, as "died ~ age + C(stage)".')],
    policy: Annotated[Path | None, typer.Option(help="The policy of all sites; by default the safe one.")] = None,
    family: Annotated[
        str, typer.Option(help="logistic, linear, cox, poisson, …; by default what the response looks like.")
    ] = "auto",
    penalty: Annotated[str | None, typer.Option(help="l1, ridge, graph, …; by default none, and l1 with --cv.")] = None,
    cv: Annotated[
        str | None, typer.Option(help='Choose the penalty weight with this many folds of rows, or by "sites".')
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="A new folder to keep everything in, logs included.")] = None,
) -> None:
    """Rehearse a federation on this machine.

    The hub and every site run as real processes, on your own table.

    Example: fpdfp federation rehearse --data patients.csv --by hospital --model "died ~ age + C(stage)"

    With cross-validation: … --model "died ~ age + C(stage) + pressure" --penalty graph --cv 5
    """
    from fpdfp.federation.rehearse import rehearse as run

    folds = int(cv) if cv is not None and cv.isdigit() else cv
    options: dict[str, Any] = {"policy": policy, "family": family, "penalty": penalty, "cv": folds, "keep": keep}
    say(*str(run(data, by, model, **options, say=say)).splitlines())


def write_service(kind: str, folder: Path, **values: object) -> list[Path]:
    """Write a unit and a container file for a ``"hub"`` or a ``"site"`` into its folder, and return them.

    ``values`` are what stands in the templates: the study, and for a site its name, its data, policy and invitation.
    Each is a path or a name of letters that mean nothing to systemd, to a shell or to a container file.
    """
    program = shutil.which("fpdfp")
    filled = {name.upper(): read_path(name, value) for name, value in values.items()}
    filled |= {
        "PROGRAM": f"{read_path('python', sys.executable)} -m fpdfp"
        if program is None
        else read_path("fpdfp", program),
        "FOLDER": read_path("folder", folder.resolve()),
        "PYTHON": f"{sys.version_info.major}.{sys.version_info.minor}",
        "HARDENING": (TEMPLATE / "hardening.in").read_text().rstrip(),
    }
    written = []
    for end in ("service", "container"):
        path = folder / f"{kind}.{end}"
        template = (TEMPLATE / f"{kind}.{end}.in").read_text()
        path.write_text(re.sub("@([A-Z_]+)@", lambda found: filled[found[1]], template))
        path.chmod(0o600)
        written.append(path)
    return written


def say(*lines: object, err: bool = False) -> None:
    """Print lines: whatever is in one of them, it stays one."""
    for line in lines:
        typer.echo(printable(line, LONGEST), err=err)


def log_to_stderr() -> None:
    """Write what the federation says to standard error, with the time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger("fpdfp")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
