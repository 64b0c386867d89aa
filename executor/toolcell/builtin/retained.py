"""read_retained: what was too large to be shown, in pages. The supervisor answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from toolcell.errors import ToolError
from toolcell.markers import AtLeast, Returned

if TYPE_CHECKING:
    from toolcell._answered import Asked
    from toolcell.retained import Page

PAGE_BYTES_MAX: Final = 32 << 10
PAGE_LINES_MAX: Final = 1_900
"""Of one page: so that with a line about what follows it is within the bounds of any content."""
LIMIT: Final = 16_384


def read_retained(
    handle: str, offset: Annotated[int, AtLeast(0)] = 0, limit: Annotated[int, AtLeast(1)] = LIMIT
) -> dict[str, Any]:
    """Read a page of what was left out of a result, by the handle that the result names.

    Args:
        handle: the handle, such as ret_...
        offset: the first byte to read
        limit: how many bytes to read, at most 32768
    """
    raise ToolError("it is answered by an executor; call it through one")


async def answer(*, asked: Asked, handle: str, offset: float = 0, limit: float = LIMIT) -> Returned:
    """A page for the session that asks.

    Raises:
        ToolError: nothing of that name is retained for it, or the offset is past the end.
    """
    import functools

    import trio

    from toolcell.retained import NotRetained, unretained

    read = functools.partial(
        asked.retain.store.read,
        handle,
        int(offset),
        min(int(limit), PAGE_BYTES_MAX),
        session=asked.retain.session,
    )
    try:
        page = await trio.to_thread.run_sync(read)
    except NotRetained as error:
        raise ToolError(
            str(error), hint="A handle is kept for 7 days, for the session that made it."
        ) from None
    except ValueError as error:
        raise ToolError(str(error), retryable="maybe") from None
    except OSError as error:
        raise ToolError(f"what is retained cannot be read: {unretained(error).why}") from None
    page = _in_lines(page)
    return Returned(page.to_json(), content=_shown(page))


def _in_lines(page: Page) -> Page:
    """The page, ended sooner where it has too many lines to be shown."""
    import dataclasses

    lines = page.text.split("\n", PAGE_LINES_MAX)
    if len(lines) <= PAGE_LINES_MAX:
        return page
    text = page.text[: -len(lines[-1])] if lines[-1] else page.text
    following = page.offset + len(text.encode())
    ends = following >= page.size_bytes
    return dataclasses.replace(page, text=text, next_offset=None if ends else following)


def _shown(page: Page) -> str:
    kind = "" if page.encoding == "utf-8" else f" ({page.media_type}, in base64)"
    more = "the end" if page.next_offset is None else f"go on with offset={page.next_offset}"
    note = f"[toolcell: from byte {page.offset} of {page.size_bytes:,}{kind}; {more}]"
    return f"{page.text}\n{note}" if page.text else note
