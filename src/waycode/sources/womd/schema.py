"""Reads `scenario.proto` and makes message classes from it, so that no generated code ties us to a protobuf version."""

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from waycode.sources.base import SourceError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_MESSAGE = re.compile(r"message (\w+) \{([^{}]*)\}")
_FIELD = re.compile(r"(optional|repeated) (\w+) (\w+) = (\d+);")
_PACKAGE = re.compile(r"package ([\w.]+);")
_COMMENT = re.compile(r"//[^\n]*")


def proto_text() -> str:
    """The text of `scenario.proto`."""
    return files(__package__).joinpath("scenario.proto").read_text(encoding="utf-8")


@cache
def scenario_class() -> Any:
    """The message class `Scenario`, in a descriptor pool of its own: Waymo's package may be loaded beside it."""
    try:
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass
    except ImportError as error:
        raise SourceError("reading WOMD needs protobuf: run `pip install 'waycode[womd]'`") from error
    descriptor = file_descriptor(proto_text())
    pool = DescriptorPool()
    pool.Add(descriptor)
    return GetMessageClass(pool.FindMessageTypeByName(f"{descriptor.package}.Scenario"))


def file_descriptor(text: str) -> "FileDescriptorProto":
    """Parses the small part of the proto2 language that `scenario.proto` uses: flat messages of plain fields."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    text = _COMMENT.sub("", text)
    package = _PACKAGE.findall(text)[0]
    descriptor = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for message_name, body in _MESSAGE.findall(text):
        message = descriptor.message_type.add(name=message_name)
        for label, kind, name, number in _FIELD.findall(body):
            field = message.field.add(name=name, number=int(number))
            field.label = FieldDescriptorProto.Label.Value(f"LABEL_{label.upper()}")
            scalar = f"TYPE_{kind.upper()}"
            if scalar in FieldDescriptorProto.Type.keys():  # noqa: SIM118 (an enum wrapper, not a dict)
                field.type = FieldDescriptorProto.Type.Value(scalar)
            else:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{package}.{kind}"
    return descriptor
