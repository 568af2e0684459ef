"""``specpanel check``: will this launch work, why not, and what memory it will hold. Starts nothing."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, talk

if TYPE_CHECKING:
    from specpanel.core.preflight.finding import Finding

HELP = (
    "Say whether a profile will work, why not, and what memory it will hold. Starts nothing. "
    "Ends with 2 on errors, with 1 on warnings under --strict, else with 0."
)
GLYPHS = {"error": "✗", "warning": "!", "note": "·"}


@guarded
def check(
    context: typer.Context,
    name: options.ProfileName = None,
    model: options.Model = None,
    drafter: options.DrafterMethod = None,
    draft_model: options.DraftModelOption = None,
    k: options.DraftTokens = None,
    port: options.Port = None,
    python: options.Python = None,
    assignments: options.Assignments = None,
    strict: Annotated[bool, typer.Option("--strict", help="End with 1 on warnings.")] = False,
    as_json: options.Json = False,
) -> None:
    from specpanel.app.memory_words import memory_rows, not_judged
    from specpanel.core.monitor.recording import line
    from specpanel.core.preflight.finding import as_table
    from specpanel.core.session.preparing import look_ahead

    flags = {
        "--model": model,
        "--drafter": drafter,
        "--draft-model": draft_model,
        "--k": k,
        "--port": port,
        "--python": python,
    }
    profile = options.resolved_profile(name, flags, assignments, context.obj or ())
    prepared = look_ahead(profile)
    code = exit_status(prepared.findings, strict=strict)
    counts = {
        severity: sum(finding.severity == severity for finding in prepared.findings)
        for severity in GLYPHS
    }
    if as_json:
        for finding in prepared.findings:
            typer.echo(line("finding", dict(as_table(finding))))
        typer.echo(line("memory", asdict(prepared.memory)))
        found = {
            "profile": profile.name,
            "vllm_version": prepared.facts.vllm_version,
            "platform": prepared.subject.platform,
            "attention": prepared.subject.kind,
            "errors": counts["error"],
            "warnings": counts["warning"],
            "notes": counts["note"],
            "not_judged": not_judged(prepared.memory),
            "explanations": prepared.explanations,
            "exit_code": code,
        }
        typer.echo(line("check", found))
    else:
        for finding in prepared.findings:
            typer.echo(finding_text(finding))
        for row in memory_rows(prepared.memory):
            typer.echo(row)
        for sentence in prepared.explanations:
            typer.echo(sentence)
        talk(_verdict(counts, not_judged(prepared.memory)))
    if code:
        raise typer.Exit(code)


def exit_status(findings: "tuple[Finding, ...]", *, strict: bool) -> int:
    """0: may be launched; 1: warnings, where they count; 2: errors."""
    severities = {finding.severity for finding in findings}
    if "error" in severities:
        return 2
    return 1 if strict and "warning" in severities else 0


def _verdict(counts: dict[str, int], unjudged: tuple[str, ...]) -> str:
    told = [
        f"{count} {severity}{'s' if count > 1 else ''}"
        for severity, count in counts.items()
        if count
    ]
    if counts["error"]:
        return f"✗ {', '.join(told)}: specpanel run will refuse it, unless you say --force"
    found = f" ({', '.join(told)})" if told else ""
    if unjudged:
        left = ", ".join(unjudged)
        return f"· nothing was found that stands in the way{found}; not judged: {left}"
    return f"✓ nothing stands in the way{found}"


def finding_text(finding: "Finding") -> str:
    """A finding over a few lines: what, its id, what it rests on, what to do."""
    lines = [f"{GLYPHS[finding.severity]} {finding.text}  [{finding.code}]"]
    if finding.evidence:
        lines.append(f"    seen: {'; '.join(finding.evidence)}")
    if finding.fix:
        lines.append(f"    fix:  {finding.fix}")
    if finding.mend:
        lines.append(f"    sets: {', '.join(_assignment(*each) for each in finding.mend)}")
    return "\n".join(lines)


def _assignment(dotted: str, value: object) -> str:
    return f"{dotted} to its default" if value is None else f"{dotted}={value}"
