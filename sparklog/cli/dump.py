"""`sparklog dump`: print the content of segment and index files, without a broker."""

from __future__ import annotations

import sys

import click

from sparklog.base.fs import LocalFs
from sparklog.log.dump import DumpFindings, DumpOptions, dump_file, dump_json
from sparklog.offsets_topic.decoders import decode_offsets, decode_text
from sparklog.transaction_topic.decoder import decode_transactions

DOES_NOT_FIT = 1


@click.command("dump")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--deep-iteration", is_flag=True, help="Also print a line for each record.")
@click.option("--print-data-log", is_flag=True, help="Also print keys and values; implies --deep-iteration.")
@click.option("--offsets-decoder", is_flag=True, help="Decode keys and values as those of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode keys and values as those of __transaction_state.")
@click.option("--verify-index-only", is_flag=True, help="Check index entries against the log without printing them.")
@click.option(
    "--index-sanity-check", is_flag=True, help="Run only the checks that a broker makes before it trusts an index."
)
@click.option("--json", "as_json", is_flag=True, help="Print records as JSON lines, with bytes in base64.")
def command(
    files: tuple[str, ...],
    deep_iteration: bool,
    print_data_log: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    as_json: bool,
) -> None:
    """Print what is inside .log, .index, .timeindex and .snapshot files, as Apache Kafka's DumpLogSegments does.

    \b
      sparklog dump sparklog-data/orders-0/00000000000000000000.log --print-data-log
      sparklog dump sparklog-data/orders-0/*.index --verify-index-only
      sparklog dump --json sparklog-data/orders-0/*.log

    It reads files of sparklog and of Apache Kafka. Exit status 1 means that the files are inconsistent: standard error
    lists what does not match.
    """
    if offsets_decoder and transaction_log_decoder:
        raise click.UsageError("--offsets-decoder and --transaction-log-decoder exclude each other")
    decode = decode_offsets if offsets_decoder else decode_transactions if transaction_log_decoder else decode_text
    options = DumpOptions(
        deep_iteration=deep_iteration or print_data_log,
        print_data_log=print_data_log or offsets_decoder or transaction_log_decoder,
        decode=decode,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
    )
    findings = DumpFindings()
    fs = LocalFs()
    for path in files:
        lines = dump_json(fs, path) if as_json else dump_file(fs, path, options, findings)
        sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()
    for line in findings.lines():
        click.echo(line, err=True)
    if findings:
        sys.exit(DOES_NOT_FIT)
