"""What `Executor.stream` tells of a running call, for `match` and `isinstance`."""

from toolcell._events import Answered, Asked, Event, Output, Progress, Started, Stream

__all__ = ["Answered", "Asked", "Event", "Output", "Progress", "Started", "Stream"]
