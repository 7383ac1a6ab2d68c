"""`waycode studio`: plan by clicking, in the browser."""

from dataclasses import dataclass

import tyro

from waycode.cli.console import Flag, UsageError, check_at_least, say

_HOST = "127.0.0.1"  # loopback only: the studio has no users and no passwords


@dataclass(frozen=True, kw_only=True)
class StudioCommand:
    """Open the studio, a web page on this machine: click an agent and a goal, and watch the search find the plan.

    It works offline and serves only this machine. Stop it with Ctrl-C. Needs pip install 'waycode[studio]'.
    """

    data: tyro.conf.Positional[tuple[str, ...]] = ()
    """Folders of datasets, or Parquet files of scenes; the bundled scenes if none is given."""
    model: str = "sumo-small"
    """Name of a bundled model, or folder of a model or of a run."""
    port: int = 8765
    """Port on 127.0.0.1; 0 takes a free one."""
    threads: int = 2
    """Number of plans that are computed at the same time."""
    no_browser: Flag = False
    """Do not open the page in the browser."""

    def run(self) -> int:
        check_at_least(1, threads=self.threads)
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port is {self.port}, expected 0 to 65535")
        try:
            import uvicorn

            from waycode.studio import Studio, StudioLimits, create_app
        except ImportError as error:
            raise UsageError(f"the studio is not installed ({error}): pip install 'waycode[studio]'") from error
        import socket
        import webbrowser

        import torch

        torch.set_num_threads(1)  # each plan has a thread of its own; more would wait for each other
        studio = Studio.open(self.data, model=self.model, limits=StudioLimits(threads=self.threads))
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((_HOST, self.port))
                listening.listen()  # a browser that is faster than the server waits instead of failing
            except OSError as error:
                raise UsageError(f"port {self.port} is taken ({error}): give another --port, or 0") from error
            address = f"http://{_HOST}:{listening.getsockname()[1]}/"
            say(f"{sum(map(len, studio.catalogue.sources.values()))} scenes at {address} (Ctrl-C stops)")
            if not self.no_browser:
                webbrowser.open(address)
            config = uvicorn.Config(create_app(studio), log_level="warning", ws_max_size=2**16, server_header=False)
            uvicorn.Server(config).run(sockets=[listening])
        return 0
