"""A bounded cache whose values are computed once, however many threads ask."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class ComputedOnce(Generic[_Key, _Value]):
    """A cache of the last used values. Threads that ask for the same missing value wait for one computation."""

    def __init__(self, compute: Callable[[_Key], _Value], *, size: int):
        self._compute, self._size, self._lock = compute, size, threading.Lock()
        self._values: OrderedDict[_Key, Future[_Value]] = OrderedDict()  # the last used at the end

    def __call__(self, key: _Key) -> _Value:
        with self._lock:
            value, is_new = self._values.get(key), key not in self._values
            if value is None:
                value = self._values[key] = Future()
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)
        if is_new:
            try:
                value.set_result(self._compute(key))
            except BaseException as error:
                with self._lock:
                    self._values.pop(key, None)  # a failure is not cached: the next request tries again
                value.set_exception(error)
        return value.result()

    def __len__(self) -> int:
        return len(self._values)
