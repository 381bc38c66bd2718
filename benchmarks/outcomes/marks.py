"""Generated text between two marks of a page, which a command writes and a test compares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Marks:
    """The lines that a text stands between, once each in its page."""

    begin: str
    end: str

    def between(self, page: str) -> str:
        """The text there. ValueError if a mark is missing, or there twice, or the last comes first."""
        once = page.count(self.begin) == 1 == page.count(self.end)
        if not once or page.index(self.begin) > page.index(self.end):
            raise ValueError(
                f"the file needs the lines {self.begin} and {self.end}, once each and in this order"
            )
        return page.split(self.begin)[1].split(self.end)[0].strip("\n")

    def replaced(self, page: str, text: str) -> str:
        """The page with `text` there instead. ValueError as for `between`."""
        self.between(page)
        before, after = page.split(self.begin)[0], page.split(self.end)[1]
        text = text.strip("\n")
        return f"{before}{self.begin}\n{text}\n{self.end}{after}"
