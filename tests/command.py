"""The command line, run in this process."""

from diht.cli import main


def run(*argv):
    """Run the command in this process; argparse's exit is an exit status too."""
    try:
        return main([str(word) for word in argv])
    except SystemExit as leaving:
        return leaving.code


def refused(capsys, *argv):
    """Run a command that must fail: one line on standard error, nothing else. Return the line."""
    assert run(*argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("diht: error: ")
    assert err.count("\n") == 1
    return err
