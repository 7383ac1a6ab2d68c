"""`waycode models` and `waycode doctor`: what is installed, and whether it works."""

from dataclasses import asdict, dataclass

from waycode.cli.console import FAILED, Flag, say, say_result


@dataclass(frozen=True, kw_only=True)
class Models:
    """List the bundled models: the names that --model takes."""

    json: Flag = False
    """Print the list as JSON."""

    def run(self) -> int:
        from waycode.cli.tables import models_table
        from waycode.evaluation.doctor import describe_models

        described = describe_models()
        say_result([asdict(one) for one in described], models_table(described), as_json=self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check the installation: packages, extras, numerics, bundled models, and the score of log replay.

    The exit code is 1 if a check fails. Extras that are not installed are listed and are no failure.
    """

    json: Flag = False
    """Print the checks as JSON."""

    def run(self) -> int:
        import torch

        from waycode.evaluation.doctor import run_checks

        torch.set_num_threads(1)
        checks = []
        for check in run_checks():
            checks.append(check)
            if not self.json:
                say(f"{check.result:8}{check.name:27}{check.detail}")
        failed = sum(check.result == "failed" for check in checks)
        text = f"{failed} of {len(checks)} checks failed" if failed else "everything works"
        say_result([asdict(check) for check in checks], text, as_json=self.json)
        return FAILED if failed else 0
