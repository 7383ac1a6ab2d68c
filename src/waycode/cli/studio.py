"""`waycode studio`: plan by clicking, in the browser."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from waycode.cli.console import Count, DatasetPath, Flag, ModelName, UsageError, check_at_least, say

_HOST = "127.0.0.1"  # loopback only: the studio has no users and no passwords


@dataclass(frozen=True, kw_only=True)
class StudioCommand:
    """Open the studio, a web page on this machine: click an agent and a goal, and watch the search find the plan.

    It works offline and serves only this machine. Stop it with Ctrl-C. Needs pip install 'waycode[studio]'.
    """

    data: tyro.conf.Positional[tuple[DatasetPath, ...]] = ()
    """Folders of datasets or of `waycode simulate --out`, Parquet files of scenes, or `sample`; if none is given, the
    bundled scenes."""
    model: ModelName = "sumo-small"
    """Name of a bundled model (`waycode models` lists them), or folder of a model or of a run."""
    joint_model: ModelName = "sumo-small-joint"
    """The same, of a joint model, for goals of several agents; the page says so if there is none."""
    port: Annotated[int, tyro.conf.arg(metavar="PORT")] = 8765
    """Port on 127.0.0.1; 0 takes a free one."""
    workers: Count = 2
    """Number of processes that plan."""
    no_browser: Flag = False
    """Do not open the page in the browser."""

    def run(self) -> int:
        check_at_least(1, workers=self.workers)
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port is {self.port}, expected 0 to 65535")
        try:
            import uvicorn

            from waycode.studio import Studio, StudioLimits, create_app
        except ImportError as error:
            raise UsageError(f"the studio is not installed ({error}): pip install 'waycode[studio]'") from error
        import gc
        import socket
        import webbrowser

        limits = StudioLimits(workers=self.workers)
        studio = Studio.open(tuple(map(str, self.data)), model=self.model, joint_model=self.joint_model, limits=limits)
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((_HOST, self.port))
                listening.listen()  # a browser that is faster than the server waits instead of failing
            except OSError as error:
                raise UsageError(f"port {self.port} is taken ({error}): give another --port, or 0") from error
            address = f"http://{_HOST}:{listening.getsockname()[1]}/"
            say(f"{sum(len(source) for source in studio.sources)} scenes at {address} (Ctrl-C stops)")
            if not self.no_browser:
                webbrowser.open(address)
            # Nothing is compressed: on this machine it takes longer than sending, and the event loop would wait for it.
            config = uvicorn.Config(create_app(studio), log_level="warning", ws_max_size=2**16, server_header=False,
                                    ws_per_message_deflate=False)  # fmt: skip
            gc.collect()
            gc.freeze()  # the modules stay: the event loop must not pause to search them for garbage
            uvicorn.Server(config).run(sockets=[listening])
        return 0
