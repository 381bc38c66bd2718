"""Report of result lines: their outcomes and tables."""

from __future__ import annotations

from benchmarks.outcomes import along, sooner
from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.outcomes.tables import Table
from benchmarks.report import against, sections, subgraph_table, whole
from benchmarks.studies import ceiling

FIRST = "\\* the first measurement: these schedules have not been measured again."


class Report:
    """What is told about some outcomes, in order; Markdown, HTML and README take their parts from here."""

    def __init__(self, data: Outcomes) -> None:
        self.data = data

    @property
    def simulated(self) -> bool:
        return any(o.line.get("simulated") for o in self.data.all.values())

    @property
    def title(self) -> str:
        return "Benchmark results" + (
            " (simulated: recorded measurements replayed)" if self.simulated else ""
        )

    @property
    def unconfirmed(self) -> bool:
        """Whether some latency is a first measurement only."""
        return not self.simulated and not all(o.again for o in self.data.all.values())

    def overview(self) -> list[Table]:
        """The paper's figures and ours, and the means."""
        data = self.data
        return [
            *against.claims(data),
            *sections.summary(data),
            *sections.cross_budget(data),
            *sections.smaller_rounds(data),
        ]

    def details(self) -> list[Table]:
        """Every task, model and time."""
        data, tables = self.data, against.table3(self.data)
        for setting in data.settings:
            tables += sections.latencies(data, setting) + sections.speedups(data, setting)
        for setting in data.settings:
            tables += sections.models(data, setting)
        tables += sections.coverage(data) + whole.tables(data) + subgraph_table.tables(data)
        tables += (
            sections.headroom(data)
            + ceiling.tables(data)
            + ceiling.models(data)
            + sections.times(data)
            + along.tables(data)
            + sooner.tables(data)
            + against.efficiency(data)
            + against.ablations(data)
        )
        return tables + sections.costs(data) + self.offline()

    def offline(self) -> list[Table]:
        """The ranking of recorded programs, if `benchmarks.offline.offline` has written any."""
        lines = self.data.others.get("offline")
        if not lines:
            return []
        from benchmarks.offline import offline

        return [offline.table(lines)]

    def markdown(self) -> str:
        """All tables that the lines have data for."""
        troubles = sections.troubles(self.data)
        if not self.data.all and not self.data.others:
            return "No run has finished.\n" + troubles
        parts = [f"# {self.title}", sections.provenance(self.data)]
        parts += [table.markdown() for table in self.overview() + self.details()]
        parts += [FIRST] if self.unconfirmed else []
        return "\n\n".join(part for part in [*parts, troubles] if part) + "\n"
