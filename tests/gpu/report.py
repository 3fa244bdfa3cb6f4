"""Findings of a run, written to report.json and report.md after every finding, so that they survive if the run is killed.

A report is a dictionary: machine, parts, goals, complete. A part has a name, a title, limit_s, seconds, a verdict, and its findings: tests
(name, verdict, seconds, detail), tables (title, columns, rows, notes) and notes. The verdict is passed, failed, late (killed when its time was
used up), skipped (with the reason), or running.
"""

import json
import time

VERDICTS = ("failed", "late", "passed", "skipped", "running")


class Part:
    """Findings of a part. Each is written to the reports immediately."""

    def __init__(self, report, name, title, limit):
        self.report = report
        self.begin = time.monotonic()
        self.findings = {"name": name, "title": title, "limit_s": limit, "seconds": 0, "verdict": "running",
                      "tests": [], "tables": [], "notes": []}  # fmt: skip

    def write(self):
        self.findings["seconds"] = round(time.monotonic() - self.begin, 2)
        self.report.write()

    def test(self, name, verdict, seconds=0.0, detail=""):
        self.findings["tests"].append({"name": name, "verdict": verdict, "seconds": round(seconds, 2), "detail": detail})
        self.write()
        return verdict == "passed"

    def table(self, title, columns, rows, notes=()):
        """Adds a table, or replaces the one with this title."""
        table = {"title": title, "columns": list(columns), "rows": rows, "notes": list(notes)}
        tables = self.findings["tables"]
        tables[:] = [other for other in tables if other["title"] != title] + [table]
        self.write()

    def note(self, text):
        self.findings["notes"].append(text)
        self.write()

    def figure(self, name, value):
        """Adds a number to report.json. Goals refer to these numbers by name."""
        self.report.figures[name] = value
        self.write()

    def end(self, verdict=None, reason=""):
        """Ends the part. verdict: why it was stopped early; None if it was not."""
        verdicts = [test["verdict"] for test in self.findings["tests"]]
        if "failed" in verdicts or verdict == "failed":
            self.findings["verdict"] = "failed"
        elif verdict == "late" or "late" in verdicts:
            self.findings["verdict"] = "late"
        elif verdict == "skipped" or (verdicts and not self.findings["tables"] and all(each == "skipped" for each in verdicts)):
            self.findings["verdict"] = "skipped"
        else:
            self.findings["verdict"] = "passed"
        if reason:
            self.findings["reason"] = reason
        self.write()


class Report:
    """goals: list of (text, figure, "at least" or "at most", value, unit). out: output folder; None writes no files."""

    def __init__(self, out, machine, goals):
        self.out, self.machine, self.goals = out, machine, goals
        self.parts, self.figures = [], {}
        self.begin = time.monotonic()
        self.date = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        self.complete = False

    def part(self, name, title, limit):
        part = Part(self, name, title, limit)
        self.parts.append(part)
        self.write()
        return part

    def counts(self):
        verdicts = [test["verdict"] for part in self.parts for test in part.findings["tests"]]
        # A part that was stopped, or that has only benchmarks, counts as one test.
        verdicts += [part.findings["verdict"] for part in self.parts if "reason" in part.findings or not part.findings["tests"]]
        return {verdict: verdicts.count(verdict) for verdict in VERDICTS}

    def judge_goals(self):
        judged = []
        for text, figure, how, value, unit in self.goals:
            found = self.figures.get(figure)
            goal = {"goal": text, "asked": f"{how} {value:g} {unit}".strip(), "found": found, "unit": unit}
            if found is None:
                goal["verdict"] = "not measured"
            else:
                goal["verdict"] = "met" if (found >= value if how == "at least" else found <= value) else "missed"
            judged.append(goal)
        counts = self.counts()
        green = not counts["failed"] and not counts["late"]
        judged.append({"goal": "every test green", "asked": "none failed, none late", "unit": "",
                       "found": f"{counts['failed']} failed, {counts['late']} late",
                       "verdict": "not measured" if not self.complete and green else "met" if green else "missed"})  # fmt: skip
        return judged

    def findings(self):
        return {
            "date": self.date, "seconds": round(time.monotonic() - self.begin, 1), "complete": self.complete, "machine": self.machine,
            "counts": self.counts(), "goals": self.judge_goals(), "figures": self.figures, "parts": [part.findings for part in self.parts],
        }  # fmt: skip

    def write(self):
        if not self.out:
            return
        findings = self.findings()
        for name, text in (("report.json", json.dumps(findings, indent=1) + "\n"), ("report.md", markdown(findings))):
            part = self.out / (name + ".part")
            part.write_text(text)
            part.rename(self.out / name)


def cell(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    text = "" if value is None else f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def markdown_table(columns, rows):
    right = [bool(rows) and all(row[i] is None or isinstance(row[i], (int, float)) for row in rows) for i in range(len(columns))]
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---:" if r else "---" for r in right) + " |"]
    return lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]


MANY = 30  # maximum number of failed tests in the report


def markdown_tests(tests):
    """Lists the tests that did not pass. Counts those that passed, or were skipped without a reason."""
    verdicts = [test["verdict"] for test in tests]
    lines = [", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts) + ".", ""] if tests else []
    others = [test for test in tests if test["verdict"] != "passed" and (test["detail"] or test["verdict"] != "skipped")]
    if others:
        rows = [[test["verdict"].upper(), test["name"], test["seconds"], test["detail"]] for test in others]
        lines += markdown_table(["", "test", "s", "what it said"], rows[:MANY]) + [""]
        lines += [f"{len(rows) - MANY} more are in report.json.", ""] if len(rows) > MANY else []
    told = [test for test in tests if test["verdict"] == "passed" and test["detail"]]
    if told:
        lines += markdown_table(["passed", "s", ""], [[test["name"], test["seconds"], test["detail"]] for test in told]) + [""]
    return lines


def markdown_part(part):
    lines = [f"## {part['title']}", "", f"{part['verdict']}, {part['seconds']:.0f} s of at most {part['limit_s']:.0f} s."]
    if part.get("reason"):
        lines[-1] += f" {part['reason']}"
    lines.append("")
    for table in part["tables"]:
        lines += [f"### {table['title']}", "", *markdown_table(table["columns"], table["rows"]), ""]
        lines += [*table["notes"], ""] if table["notes"] else []
    lines += markdown_tests(part["tests"])
    lines += [f"- {note}" for note in part["notes"]] + ([""] if part["notes"] else [])
    return lines


def markdown_head(findings):
    """Summary: the machine, goals, parts, and tests that did not pass."""
    machine, counts = findings["machine"], findings["counts"]
    lines = ["# GPU report", ""]
    if not findings["complete"]:
        lines += ["**Not complete**: the run was still going on, or was ended.", ""]
    lines += [f"{findings['date']}, {findings['seconds']:.0f} s. "
              + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict] or verdict == "failed") + ".", ""]  # fmt: skip
    if counts["failed"] or counts["late"]:
        lines += ["The ends of what failed programs said are in failures.log.", ""]
    lines += markdown_table(["", ""], [[key, value] for key, value in machine.items()]) + [""]
    goals = [[goal["goal"], goal["asked"], goal["found"], "**missed**" if goal["verdict"] == "missed" else goal["verdict"]]
             for goal in findings["goals"]]  # fmt: skip
    lines += ["## Goals", "", *markdown_table(["goal", "asked", "found", ""], goals), ""]
    parts = [[part["title"], part["verdict"], part["seconds"], part.get("reason", "")] for part in findings["parts"]]
    lines += ["## Parts", "", *markdown_table(["part", "verdict", "s", "why"], parts), ""]
    wrong = [[part["name"], test["name"], test["detail"]] for part in findings["parts"] for test in part["tests"] if test["verdict"] in ("failed", "late")]
    if wrong:
        lines += ["## What did not pass", "", *markdown_table(["part", "test", "what it said"], wrong[:MANY]), ""]
    return lines


def markdown(findings):
    lines = markdown_head(findings)
    for part in findings["parts"]:
        lines += markdown_part(part)
    return "\n".join(lines).rstrip() + "\n"
