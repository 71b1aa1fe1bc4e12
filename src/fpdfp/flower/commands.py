"""The commands ``fpdfp flower …``: a project, certificates and keys, and what leaves a site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="A federation across organisations.")

SITES = "north,east,south"
Sites = Annotated[str, typer.Option(help="The names of the sites, with commas between them.")]


def _names(sites: str) -> list[str]:
    return [site.strip() for site in sites.split(",") if site.strip()]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to write the project into.")],
    sites: Sites = SITES,
    rounds: Annotated[int, typer.Option(min=1, help="Communication rounds of the run.")] = 30,
    host: Annotated[str, typer.Option(help="The name by which the sites reach the server.")] = "superlink.example",
) -> None:
    """Write a project: the app, units for systemd, start scripts, and a README for the server and the sites.

    Example: fpdfp flower init federation --sites north,east,south --host superlink.example
    """
    from fpdfp.flower.project import write_project

    try:
        for path in write_project(folder, sites=_names(sites), rounds=rounds, host=host):
            typer.echo(path)
    except (OSError, ValueError) as error:
        _leave(error)
    typer.echo(f"read {folder / 'README.md'} next")


@app.command("certificates")
def make_certificates(
    folder: Annotated[Path, typer.Argument(help="The folder for certificates and keys.")],
    host: Annotated[list[str], typer.Option(help="A name or address of the server; may be given more than once.")],
    sites: Sites = SITES,
    renew: Annotated[bool, typer.Option("--renew", help="Make a new certificate for the server.")] = False,
) -> None:
    """Make the authority, the server's certificate and a key pair for each site; keep what is there already.

    Example: fpdfp flower certificates certificates --host superlink.example --sites north,east,south
    """
    from fpdfp.flower.certificates import make_all
    from fpdfp.flower.expiry import warn_of_end

    # The server speaks to itself, too: its own app and the command flwr.
    hosts = list(dict.fromkeys([*host, "localhost", "127.0.0.1"]))
    try:
        made, kept = make_all(folder, hosts, _names(sites), renew=renew)
    except (ImportError, OSError, ValueError) as error:
        _leave(error)
    for path in made:
        typer.echo(f"made  {path}")
    for path in kept:
        typer.echo(f"kept  {path}")
        if path.suffix == ".pem" and (warning := warn_of_end(path)):
            typer.echo(f"warning: {warning}", err=True)
    typer.echo(f"{folder / 'superlink'} goes to the server, {folder / 'sites' / 'NAME'} to the site of that name;")
    typer.echo(f"{folder / 'authority'} stays with you, offline")


@app.command()
def key(
    site: Annotated[str, typer.Argument(help="The name of your site.")],
    folder: Annotated[Path, typer.Option(help="Where the pair goes.")] = Path(),
) -> None:
    """Make your site's key pair yourself: NAME.key stays with you, NAME.pub goes to whoever runs the federation.

    Example: fpdfp flower key north
    """
    from fpdfp.flower.certificates import make_node_key

    try:
        pair = make_node_key(folder, name=site)
    except (ImportError, OSError, ValueError) as error:
        _leave(error)
    typer.echo(f"{pair.key} stays here, readable by you alone; send {pair.public}")


@app.command()
def nodes(
    superlink: Annotated[str, typer.Option(help="The server's HOST:PORT, seen from the server itself.")],
    authority: Annotated[Path, typer.Option(help="The file ca.pem of the federation.")],
) -> None:
    """List the nodes whose keys are registered: site, id, and whether it is online.

    Example: fpdfp flower nodes --superlink 127.0.0.1:8000 --authority /etc/fpdfp/superlink/ca.pem
    """
    try:
        from fpdfp.flower.control import Control

        with Control(superlink, authority) as control:
            for node in control.nodes():
                typer.echo(f"{node.name:20} {node.node_id:>20} {node.status}")
    except (ImportError, OSError) as error:
        _leave(error)


Kept = Annotated[Path, typer.Argument(help="A file NUMBER.parcel in the site's outbox.")]


@app.command()
def inspect(file: Annotated[Path, typer.Argument(help="A file in the site's outbox.")]) -> None:
    """Show what leaves a site, or would: every number, text and array in a message, and its bytes.

    Example: fpdfp flower inspect /var/lib/fpdfp/outbox/1763263000000000000.parcel
    """
    from fpdfp.engines import outbox

    try:
        for line in outbox.lines(outbox.read(file)):
            typer.echo(line)
    except (OSError, ValueError) as error:
        _leave(error)


@app.command()
def release(file: Kept) -> None:
    """Let a message go that waits in a site's outbox.

    Example: fpdfp flower release /var/lib/fpdfp/outbox/1763263000000000000.parcel
    """
    from fpdfp.engines import outbox

    try:
        outbox.release(file)
    except OSError as error:
        _leave(error)
    typer.echo(f"{file} may leave")


@app.command()
def refuse(file: Kept) -> None:
    """Keep a message from leaving that waits in a site's outbox; the server learns only that it was not released.

    Example: fpdfp flower refuse /var/lib/fpdfp/outbox/1763263000000000000.parcel
    """
    from fpdfp.engines import outbox

    try:
        outbox.refuse(file)
    except OSError as error:
        _leave(error)
    typer.echo(f"{file} stays here")


def _leave(error: Exception) -> NoReturn:
    typer.echo(f"{error}", err=True)
    raise typer.Exit(1) from None
