"""Write every generated file into the checkout; with --check, print the files that are stale."""

import click

from sparklog.docs.pages import stale_pages, write_pages


@click.command(help=__doc__)
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file is stale.")
def main(*, check: bool) -> None:
    if not check:
        write_pages()
    elif stale := stale_pages():
        raise click.ClickException(f"not as make reference writes them: {', '.join(stale)}")


main()
