"""`python -m docs.generate`: write the reference pages, and the example files into the pages that show them."""

from docs.generate.pages import generated_pages


def main() -> None:
    for path, text in generated_pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
