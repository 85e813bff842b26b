"""PDFs as text, made by hand."""


def pdf(pages: int) -> bytes:
    """A PDF with a sentence on each page."""
    kids = " ".join(f"{4 + 2 * page} 0 R" for page in range(pages))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {pages}/Kids[{kids}]>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for page in range(pages):
        shown = f"BT /F1 12 Tf 72 720 Td (Page {page + 1} tells of the thread.) Tj ET".encode()
        fonts = "/Resources<</Font<</F1 3 0 R>>>>/MediaBox[0 0 612 792]"
        objects.append(f"<</Type/Page/Parent 2 0 R{fonts}/Contents {5 + 2 * page} 0 R>>".encode())
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(shown), shown))
    body, places = b"%PDF-1.4\n", []
    parts = [body]
    size = len(body)
    for number, each in enumerate(objects, 1):
        places.append(size)
        parts.append(b"%d 0 obj\n%s\nendobj\n" % (number, each))
        size += len(parts[-1])
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count = len(objects) + 1
    parts.append(b"xref\n0 %d\n0000000000 65535 f \n%s" % (count, table))
    parts.append(b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (count, size))
    return b"".join(parts)
