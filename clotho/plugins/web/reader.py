"""Program that turns one document into text: run as a process, since its parsers are given whatever the web has.

Arguments: media type, charset or an empty text, characters to return. The document comes on standard input; a JSON
object goes to standard output: `title`, `content` and `error`. `ready` goes before it, once the parser is
loaded: what ends the process after that is the document.
"""

import io
import json
import logging
import resource
import sys
from importlib import import_module
from typing import Any

CPU_SECONDS = 20
MEMORY_BYTES = 2 << 30
MOST_PDF_PAGES = 300
"""Pages of a PDF that are looked at."""
HTML = ("text/html", "application/xhtml+xml")
PDF = "application/pdf"
TEXT = ("application/json", "application/xml", "application/yaml", "application/javascript")
UNKNOWN = ("", "application/octet-stream", "binary/octet-stream")


class Unreadable(Exception):
    """Why the document can't be read."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, 2 * CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # it writes no file; its output is a pipe, which has no size
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    logging.disable()
    media_type, charset, most = sys.argv[1:]
    content = sys.stdin.buffer.read()
    import_module("pypdf" if is_pdf(media_type, content) else "trafilatura")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        title, text = read(content, kind_of(media_type, content), charset, int(most))
        result: dict[str, Any] = {"title": whole(title), "content": whole(text), "error": None}
    except Unreadable as error:
        result = {"title": "", "content": "", "error": str(error)}
    sys.stdout.buffer.write(json.dumps(result).encode())


def whole(text: str) -> str:
    """The text without halves of characters, which no file or request can hold."""
    return text.encode(errors="replace").decode()


def is_pdf(media_type: str, content: bytes) -> bool:
    return media_type == PDF or (media_type in UNKNOWN and content[:1_024].lstrip().startswith(b"%PDF-"))


def kind_of(media_type: str, content: bytes) -> str:
    """`html`, `pdf` or `text`, by the type that the server names, or else by how the document begins."""
    if is_pdf(media_type, content):
        return "pdf"
    if media_type in HTML or (not media_type and content[:1_024].lstrip().startswith(b"<")):
        return "html"
    known = media_type.startswith("text/") or media_type in TEXT or media_type.endswith(("+json", "+xml"))
    if known or (not media_type and b"\0" not in content[:1_024]):
        return "text"
    raise Unreadable(
        f"{media_type[:100] or 'A document without a type'} isn't a page that can be read as text"
    )


def read(content: bytes, kind: str, charset: str, most: int) -> tuple[str, str]:
    """Title and text, of which at most `most` characters are kept, with a notice."""
    if kind == "pdf":
        return of_pdf(content, most)
    title, text = of_html(content, charset) if kind == "html" else ("", decoded(content, charset))
    return title, cut(text, most, f"of {len(text):,} characters")


def cut(text: str, most: int, place: str) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[… cut at {most:,} {place}]"


def decoded(content: bytes, charset: str) -> str:
    from trafilatura.utils import decode_file

    try:
        return content.decode(charset or "utf-8", errors="replace" if charset else "strict")
    except (LookupError, UnicodeError):
        return str(decode_file(content))


def of_html(content: bytes, charset: str) -> tuple[str, str]:
    """The main part of a page as Markdown, or all its text where no part is the main one."""
    import trafilatura

    page = decoded(content, charset) if charset else content
    tree = trafilatura.load_html(page)
    if tree is None:
        return "", decoded(content, charset)
    title = " ".join((tree.findtext(".//title") or "").split())[:300]
    found = trafilatura.extract(page, output_format="markdown", include_comments=False, with_metadata=False)
    return title, found or trafilatura.html2txt(page)


def of_pdf(content: bytes, most: int) -> tuple[str, str]:
    """The text of a PDF, page after page until there is enough of it."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        document = PdfReader(io.BytesIO(content))
        if document.is_encrypted and not document.decrypt(""):
            raise Unreadable("The PDF is encrypted")
        total, text, number = len(document.pages), "", 0
        while number < min(total, MOST_PDF_PAGES) and len(text) <= most:
            text += document.pages[number].extract_text().strip() + "\n\n"
            number += 1
        title = str((document.metadata and document.metadata.title) or "")[:300]
    except Unreadable:
        raise
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise Unreadable(f"The PDF is damaged: {type(error).__name__}") from None
    text = text.strip()
    if not text:
        raise Unreadable(f"The PDF's first {number:,} pages have no text: they may be images")
    if number < total:
        return title, f"{text[:most]}\n[… cut in page {number:,} of {total:,}]"
    return title, cut(text, most, f"characters, in page {number:,} of {total:,}")


if __name__ == "__main__":
    main()
