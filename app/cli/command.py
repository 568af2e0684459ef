"""``specpanel command``: print what would be run, start nothing."""

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded, talk

HELP = "Print the exact command and environment for a profile, and start nothing."


@guarded
def command(
    context: typer.Context,
    name: options.ProfileName = None,
    model: options.Model = None,
    drafter: options.DrafterMethod = None,
    draft_model: options.DraftModelOption = None,
    k: options.DraftTokens = None,
    port: options.Port = None,
    python: options.Python = None,
    assignments: options.Assignments = None,
    as_json: options.Json = False,
) -> None:
    import os

    from specpanel.core.engine.command import build_command, redacted, redacted_argv, shell_text
    from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
    from specpanel.core.monitor.recording import line
    from specpanel.core.session.targets import with_model_paths

    flags = {
        "--model": model,
        "--drafter": drafter,
        "--draft-model": draft_model,
        "--k": k,
        "--port": port,
        "--python": python,
    }
    profile = options.resolved_profile(name, flags, assignments, context.obj or ())
    interpreter = resolve_python(profile.engine.python)
    profile = with_model_paths(profile, interpreter, None)
    facts = probe_interpreter(interpreter)
    built = build_command(profile, facts, os.environ)
    if as_json:
        shown = {key: redacted(key, value) for key, value in built.environment.items()}
        content = {
            "profile": profile.name,
            "argv": redacted_argv(built.argv),
            "environment": shown,
            "notes": built.notes,
            "vllm_version": facts.vllm_version,
            "platform": facts.platform,
        }
        typer.echo(line("command", content))
        return
    typer.echo(shell_text(built))
    for note in built.notes:
        talk(f"# {note}")
    if facts.distribution is None:
        talk(f"# note: there is no vLLM in {interpreter}; set engine.python")
