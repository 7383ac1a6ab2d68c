"""The FastAPI application: the routes of /api/v1, the live socket, and the built page.

Handlers only pass requests on: everything that computes runs in the studio's pool, also the writing of JSON, so that
the event loop is free.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from waycode import __version__
from waycode.dataset.dataset import save_scene
from waycode.dataset.files import parse_json
from waycode.scene import WaycodeError
from waycode.studio.drives import DriveQueueError
from waycode.studio.messages import (
    AboutReply,
    CodeReply,
    DatasetName,
    DecodeRequest,
    DrawReply,
    DrawRequest,
    DriveReply,
    DriveRequest,
    EncodeRequest,
    LiveReply,
    LiveRequest,
    ObjectiveTextRequest,
    ParsedObjective,
    PlanReply,
    PlanRequest,
    Problem,
    PythonReply,
    SceneIndex,
    SceneList,
    SceneReply,
    StatusReply,
    Theme,
)
from waycode.studio.objective_rows import parsed_objective
from waycode.studio.planning import exported, python_code
from waycode.studio.protection import Protection
from waycode.studio.scenes import SceneNotFoundError, scene_reply, thumbnail
from waycode.studio.studio import Studio, StudioBusyError

PAGE_FOLDER = Path(__file__).parent / "page"
API = "/api/v1"
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        400: "the request cannot be read",
        403: "the Host or the Origin is not that of this server",
        413: "the request is too large",
        422: "the request is not valid, or the planner cannot use it",
        503: "too many requests wait",
    }.items()
}
_MISSING: dict[int | str, dict[str, Any]] = {**_PROBLEMS, 404: {"model": Problem, "description": "not there"}}
_FilterText = Annotated[str | None, Query(max_length=100)]


def create_app(studio: Studio) -> FastAPI:
    """The application that serves a studio; it closes the studio when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await studio.start()
        yield
        await studio.close()

    # The interactive documentation of FastAPI loads scripts from outside: only the schema itself is served.
    app = FastAPI(
        title="Waycode studio", version=__version__, lifespan=lifespan, openapi_url=f"{API}/openapi.json",
        docs_url=None, redoc_url=None,
    )  # fmt: skip
    app.add_middleware(Protection, max_request_bytes=studio.limits.max_request_bytes)
    _add_problem_handlers(app)
    _add_scene_routes(app, studio)
    _add_plan_routes(app, studio)
    _add_drive_routes(app, studio)
    _add_live_socket(app, studio)
    if PAGE_FOLDER.is_dir():
        app.mount("/", StaticFiles(directory=PAGE_FOLDER, html=True), name="page")
    return app


async def _json(studio: Studio, work: Callable[[], BaseModel], *, status_code: int = 200) -> Response:
    """Computes a reply and writes it as JSON, both in the pool."""
    body = await studio.run(lambda: work().model_dump_json())
    return Response(body, status_code=status_code, media_type="application/json")


def _add_scene_routes(app: FastAPI, studio: Studio) -> None:
    @app.get(f"{API}/about", response_model=AboutReply, responses=_PROBLEMS)
    async def about() -> Response:
        """The model, the datasets, the objectives and the limits."""
        return await _json(studio, studio.about)

    @app.get(f"{API}/status", responses=_PROBLEMS)
    async def status() -> StatusReply:
        """Counters of the server."""
        return studio.status()

    @app.get(f"{API}/scenes", response_model=SceneList, responses=_MISSING)
    async def scenes(
        dataset: _FilterText = None,
        family: _FilterText = None,
        manoeuvre: _FilterText = None,
        source: _FilterText = None,
        text: _FilterText = None,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 60,
    ) -> Response:
        """The scenes that fit all filters; filters that are not given fit every scene."""
        return await _json(
            studio,
            lambda: studio.catalogue.list(
                dataset=dataset,
                family=family,
                manoeuvre=manoeuvre,
                source=source,
                text=text,
                offset=offset,
                limit=limit,
            ),
        )

    @app.get(f"{API}/scenes/{{dataset}}/{{scene}}", response_model=SceneReply, responses=_MISSING)
    async def one_scene(dataset: DatasetName, scene: SceneIndex) -> Response:
        """A whole scene, to draw."""
        return await _json(
            studio, lambda: scene_reply(studio.plans.scene((dataset, scene)), dataset=dataset, index=scene)
        )

    @app.get(
        f"{API}/scenes/{{dataset}}/{{scene}}/thumbnail",
        response_class=Response,
        responses={**_MISSING, 200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}}},
    )
    async def scene_thumbnail(dataset: DatasetName, scene: SceneIndex, theme: Theme = "light") -> Response:
        """A small picture of a scene (SVG)."""
        # Not through the cache of scenes: browsing a list must not push out the scenes that are planned in.
        text = await studio.run(lambda: thumbnail(studio.catalogue.source(dataset).read(scene), theme=theme))
        return Response(text, media_type="image/svg+xml", headers={"cache-control": "private, max-age=3600"})

    @app.get(
        f"{API}/scenes/{{dataset}}/{{scene}}/parquet",
        response_class=Response,
        responses={
            **_MISSING,
            200: {"content": {"application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}}}},
        },
    )
    async def scene_parquet(dataset: DatasetName, scene: SceneIndex) -> Response:
        """A scene as a Parquet file, which `waycode.load_scene` reads."""
        body = await studio.run(lambda: _parquet(studio, dataset, scene))
        headers = {"content-disposition": f'attachment; filename="scene-{scene}.parquet"'}
        return Response(body, media_type="application/vnd.apache.parquet", headers=headers)


def _parquet(studio: Studio, dataset: str, scene: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.parquet"
        save_scene(studio.plans.scene((dataset, scene)), path)
        return path.read_bytes()


def _add_plan_routes(app: FastAPI, studio: Studio) -> None:
    desk = studio.plans

    @app.post(f"{API}/objectives/parse", response_model=ParsedObjective, responses=_PROBLEMS)
    async def parse(request: ObjectiveTextRequest) -> Response:
        """What the registry's parser makes of an objective."""
        return await _json(studio, lambda: parsed_objective(request.text))

    @app.post(f"{API}/plans", response_model=PlanReply, responses=_MISSING)
    async def plan(request: PlanRequest) -> Response:
        """Plans, and tells every candidate of the search."""
        return await _json(studio, lambda: desk.plan(request))

    @app.post(
        f"{API}/plans/export",
        response_class=Response,
        responses={**_MISSING, 200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
    )
    async def export(request: PlanRequest) -> Response:
        """The same plan in the library's own JSON, which `Plan.from_json` reads; a list of them if it is joint."""
        return Response(await studio.run(lambda: exported(desk.search(request)[1])), media_type="application/json")

    @app.post(f"{API}/plans/python", response_model=PythonReply, responses=_MISSING)
    async def python(request: PlanRequest) -> Response:
        """Python code that makes the same plan."""

        def work() -> PythonReply:
            view, source = desk.view(request), studio.catalogue.source(request.dataset)
            model = desk.joint.name if request.agents else studio.model
            return PythonReply(code=python_code(request, source, model=model, view=view))

        return await _json(studio, work)

    @app.post(f"{API}/decode", response_model=PlanReply, responses=_MISSING)
    async def decode(request: DecodeRequest) -> Response:
        """The trajectory of given tokens in a scene."""
        return await _json(studio, lambda: desk.decode(request))

    @app.post(f"{API}/encode", response_model=CodeReply, responses=_MISSING)
    async def encode(request: EncodeRequest) -> Response:
        """The tokens of what a road user was recorded to do."""
        return await _json(studio, lambda: desk.encode(request))

    @app.post(f"{API}/draws", response_model=DrawReply, responses=_MISSING)
    async def draws(request: DrawRequest) -> Response:
        """Samples of the model's prior, or its most likely codes."""
        return await _json(studio, lambda: desk.draw(request))


def _add_drive_routes(app: FastAPI, studio: Studio) -> None:
    @app.post(f"{API}/drives", response_model=DriveReply, status_code=202, responses=_MISSING)
    async def start_drive(request: DriveRequest) -> Response:
        """Starts a closed-loop drive, or finds the one that is there."""
        return await _json(studio, lambda: studio.drives.start(request), status_code=202)

    @app.get(f"{API}/drives/{{drive}}", response_model=DriveReply, responses=_MISSING)
    async def get_drive(drive: str) -> Response:
        """The state of a drive, with the result when it is done."""
        return await _json(studio, lambda: studio.drives.get(drive))


def _add_live_socket(app: FastAPI, studio: Studio) -> None:
    num_open = 0

    @app.websocket(f"{API}/live")
    async def live(socket: WebSocket) -> None:
        """Plans while a goal is dragged: takes `LiveRequest`, sends `LiveReply`, the latest request wins."""
        nonlocal num_open
        await socket.accept()
        if num_open >= studio.limits.max_sockets:
            await socket.close(1013, f"{num_open} live connections are open already")
            return
        num_open += 1
        inbox = _LatestMessage()
        answering = asyncio.create_task(_answer(studio, socket, inbox))
        try:
            while True:
                text = await socket.receive_text()
                if len(text) > studio.limits.max_request_bytes:
                    await socket.close(1009, "the message is too large")
                    return
                inbox.put(text)
        except (WebSocketDisconnect, KeyError):  # KeyError: a binary message
            pass
        finally:
            num_open -= 1
            answering.cancel()


class _LatestMessage:
    """A mailbox for one message; a newer one replaces it."""

    def __init__(self) -> None:
        self._text: str | None = None
        self._arrived, self._skipped = asyncio.Event(), 0

    def put(self, text: str) -> None:
        self._skipped += self._text is not None
        self._text = text
        self._arrived.set()

    async def take(self) -> tuple[str, int]:
        """The message, and how many it has replaced."""
        await self._arrived.wait()
        text, skipped = self._text, self._skipped
        self._text, self._skipped = None, 0
        self._arrived.clear()
        return text or "", skipped


async def _answer(studio: Studio, socket: WebSocket, inbox: _LatestMessage) -> None:
    while True:
        text, skipped = await inbox.take()
        try:
            reply = await studio.run(partial(_live_reply, studio, text, skipped))
        except StudioBusyError as error:
            reply = LiveReply(
                sequence=_sequence(text), problem=Problem(kind="busy", message=str(error)), skipped=skipped
            ).model_dump_json()
        await socket.send_text(reply)


def _live_reply(studio: Studio, text: str, skipped: int) -> str:
    try:
        request = LiveRequest.model_validate_json(text)
        reply = LiveReply(sequence=request.sequence, plan=studio.plans.plan(request.plan), skipped=skipped)
    except ValidationError as error:
        problem = Problem(kind="bad-request", message=_sentence(error.errors()))
        reply = LiveReply(sequence=_sequence(text), problem=problem, skipped=skipped)
    except WaycodeError as error:
        problem = Problem(kind=_kind_of(error), message=str(error))
        reply = LiveReply(sequence=_sequence(text), problem=problem, skipped=skipped)
    return reply.model_dump_json()


def _sequence(text: str) -> int:
    """The number of a request that failed; 0 if it has none."""
    try:
        sequence = parse_json(text)["sequence"]
    except (ValueError, TypeError, KeyError):
        return 0
    return sequence if isinstance(sequence, int) else 0


def _add_problem_handlers(app: FastAPI) -> None:
    def problem(status: int, kind: Any, message: str) -> JSONResponse:
        return JSONResponse(Problem(kind=kind, message=message).model_dump(), status_code=status)

    @app.exception_handler(WaycodeError)
    async def on_waycode_error(_: Request, error: WaycodeError) -> JSONResponse:
        kind = _kind_of(error)
        return problem({"not-found": 404, "busy": 503}.get(kind, 422), kind, str(error))

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem(422, "bad-request", _sentence(error.errors()))

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, error: HTTPException) -> JSONResponse:
        kind = "not-found" if error.status_code in (404, 405) else "bad-request"
        reply = problem(error.status_code, kind, f"{error.detail}: see {API}/openapi.json for what there is")
        reply.headers.update(error.headers or {})  # such as the allowed methods
        return reply


def _kind_of(error: WaycodeError) -> Any:
    if isinstance(error, SceneNotFoundError):
        return "not-found"
    return "busy" if isinstance(error, StudioBusyError | DriveQueueError) else "bad-request"


def _sentence(errors: Any) -> str:
    """The first mistake of a request, as a sentence."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body") or "the request"
    got = first.get("input")
    shown = "" if isinstance(got, dict) else f" (got {got!r:.60})"
    return f"{place}: {str(first['msg'])[:200]}{shown}"
