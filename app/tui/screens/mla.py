"""The MLA screen: which path sparse MLA takes for a prompt, why, what each costs, what would change it."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.worker import Worker

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.mla_panes import AdvicePane, MapPane, Progress, SettingsPane, TiersPane
from specpanel.app.tui.mla_sources import Source, read_sources
from specpanel.app.tui.mla_store import save_calibration, saved_calibration
from specpanel.app.tui.mla_study import LENGTHS, Study
from specpanel.app.tui.screens.base import PanelScreen
from specpanel.app.tui.screens.mla_layout import MlaPlan, View, plan_mla
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.core.errors import SpecpanelError
from specpanel.core.monitor.feed import Feed
from specpanel.core.session.mla_tiers import difference, with_choices
from specpanel.core.settings.files import write_profile
from specpanel.core.settings.profile import Profile
from specpanel.kernels import vllm_source
from specpanel.kernels.calibrate import load
from specpanel.kernels.errors import MLAError
from specpanel.kernels.gpus import GPU, GPUS, recognised
from specpanel.kernels.measuring import Measurement, gpu_is_loaded
from specpanel.kernels.request import Report, Request, usual_grid, usual_topk

CPU_BUDGET_S, GPU_BUDGET_S = 120.0, 300.0
_MODEL_ROW = 0


def drift_now() -> tuple[str | None, str]:
    """The alarm about the vLLM of this interpreter, None without one; and what was compared, in words."""
    root = vllm_source.installed_root()
    if root is None:
        return None, "no vLLM here to compare with"
    found = vllm_source.read(root)
    return vllm_source.drift_text(found), f"as vLLM {found.version or '?'} here"


class MlaScreen(PanelScreen):
    """Tries settings over a profile. Files are read in threads; measuring is a child's work."""

    tab = "MLA"
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("mla")]

    def __init__(self, tabs: Sequence[tuple[str, str]], *, glyphs: Glyphs) -> None:
        super().__init__(tabs, glyphs=glyphs)
        self.settings = SettingsPane(glyphs=glyphs)
        self.tiers = TiersPane(glyphs=glyphs)
        self.advice = AdvicePane(glyphs=glyphs)
        self.map = MapPane(glyphs=glyphs)
        self.left = Vertical(self.settings, self.advice, id="mla-left")
        self.right = Vertical(self.tiers, self.map, id="mla-right")
        self.sources: tuple[Source, ...] = ()
        self.source: Source | None = None
        self.study: Study | None = None
        self.view: View = "all"
        self.drift_looked_at = False
        self._plan: MlaPlan = plan_mla(120, 40)
        self._measurement: Measurement | None = None

    def compose_body(self) -> Iterable[Widget]:
        yield Horizontal(self.left, self.right, id="mla-body")

    def on_mount(self) -> None:
        shown = self.keymap.shown
        self.tiers.explore_key = shown("mla.explore")
        self.advice.apply_key = shown("mla.apply")
        self.map.in_colors = not self.app.no_color and self.glyphs.name != "ascii"
        self._show_keys()
        self._work("mla-drift", self._look_at_vllm)

    def on_screen_resume(self) -> None:
        self.top_bar.show(self.panel.feed.latest)
        self._work("mla-read", self._read)

    def on_unmount(self) -> None:
        if self._measurement is not None:
            self._measurement.cancel()

    def receive(self, feed: Feed) -> None:
        self.top_bar.show(feed.latest)

    def _work(self, group: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        _: Worker[None] = self.run_worker(work, group=group, exclusive=True)

    # Reading

    async def _look_at_vllm(self) -> None:
        try:
            self.advice.drift, self.advice.drift_known = await asyncio.to_thread(drift_now)
        except (MLAError, OSError) as error:
            self.advice.drift_known = f"vLLM's source cannot be read: {error}"
        self.drift_looked_at = True
        self.advice.redraw()

    async def _read(self) -> None:
        self.sources = await asyncio.to_thread(read_sources)
        before = None if self.source is None else self.source.name
        same = next((source for source in self.sources if source.name == before), None)
        if same is not None and self.study is not None:
            self.source = same
            fresh = same.study(self.study.gpu, self.study.tried)
            self._show(fresh)
        else:
            self._look_at(same or self._first())

    def _first(self) -> Source:
        """The model of the server that is watched, else the first: profiles with sparse MLA lead."""
        frame = self.panel.feed.latest
        name = None if frame is None else frame.server.name
        served = (s for s in self.sources if s.file is not None and s.file.name == name)
        return next(served, self.sources[0])

    def _gpu(self) -> GPU:
        if self.study is not None:
            return self.study.gpu
        frame = self.panel.feed.latest
        sample = None if frame is None else frame.devices
        names = [device.name or "" for device in sample.devices] if sample is not None else []
        found = next((gpu for gpu in map(recognised, names) if gpu is not None), None)
        self.settings.assumed_gpu = found is None
        return found or GPUS["b200"]

    # Showing

    def _look_at(self, source: Source) -> None:
        self.source = source
        self.advice.chosen = 0
        self._show(source.study(self._gpu()))
        self._work("mla-calibration", partial(self._fetch_calibration, source))

    async def _fetch_calibration(self, source: Source) -> None:
        dims = source.dims
        found = None if dims is None else await asyncio.to_thread(saved_calibration, dims)
        if self.source is source:
            self.map.calibration = found
            self.map.measured &= found is not None
            self._redraw()

    def _show(self, study: Study) -> None:
        self.study = study
        source = self.source
        file = None if source is None else source.file
        self.settings.profile = "built in" if file is None else file.name
        for pane in (self.settings, self.tiers, self.advice, self.map):
            pane.show(study)
        self._show_keys()

    def _redraw(self) -> None:
        for pane in (self.settings, self.tiers, self.advice, self.map):
            pane.redraw()

    def _show_keys(self) -> None:
        entries = self.keymap.line_entries("mla", "panel")
        if self._measurement is not None:
            entries.insert(0, (self.keymap.shown("mla.calibrate"), "Cancel"))
        self.key_line.show(entries, ())

    # Keys

    def action_move(self, step: int) -> None:
        if self.study is not None:
            rows = len(self.study.settings())
            self.settings.cursor = (self.settings.cursor + step) % rows
            self.settings.redraw()

    def action_turn(self, step: int) -> None:
        if self.study is None:
            return
        if self.settings.cursor == _MODEL_ROW:
            places = [source.name for source in self.sources]
            here = places.index(self.source.name) if self.source else 0
            self._look_at(self.sources[(here + step) % len(places)])
        else:
            self._show(self.study.turned(self.settings.cursor, step))

    def action_explore(self) -> None:
        """The next built-in geometry, whatever is looked at."""
        built_in = [source for source in self.sources if source.file is None]
        if built_in:
            here = built_in.index(self.source) if self.source in built_in else -1
            self._look_at(built_in[(here + 1) % len(built_in)])

    def action_prompt(self, step: int) -> None:
        self.tiers.cursor = max(0, min(len(LENGTHS) - 1, self.tiers.cursor + step))
        self.tiers.redraw()

    def _possible(self) -> int:
        """How much of the advice can be tried."""
        offers = () if self.study is None else self.study.offers
        return sum(advice.setting is not None for advice in offers)

    def action_advice(self) -> None:
        possible = self._possible()
        if possible < 2:
            self.panel.say("there is no other advice that can be tried")
            return
        self.advice.chosen = (self.advice.chosen + 1) % possible
        self.advice.redraw()

    def action_apply(self) -> None:
        if self.study is None or not self._possible():
            self.panel.say("there is no advice with a setting to try")
            return
        chosen = min(self.advice.chosen, self._possible() - 1)
        self.advice.chosen = 0
        self._show(self.study.advised(self.study.offers[chosen]))

    def action_reset(self) -> None:
        if self.study is not None:
            self._show(self.study.trying(self.study.own))

    def action_measured(self) -> None:
        if self.map.calibration is None:
            key = self.keymap.shown("mla.calibrate")
            self.panel.say(f"nothing was measured here for this geometry: {key} does it")
            return
        self.map.measured = not self.map.measured
        self.map.redraw()

    def action_view(self) -> None:
        views = self._plan.views
        place = views.index(self.view) if self.view in views else 0
        self.view = views[(place + 1) % len(views)]
        self._arrange()

    def on_canvas_picked(self, event: Canvas.Picked) -> None:
        """A click on a setting chooses it, one on the chosen setting turns it."""
        if event.place == self.settings.cursor:
            self.action_turn(1)
        else:
            self.action_move(event.place - self.settings.cursor)

    # Writing

    def action_write(self) -> None:
        """Shows what the profile would become, and asks."""
        source, study = self.source, self.study
        if source is None or study is None or source.profile is None or source.file is None:
            self.panel.say("this geometry is built in: choose a profile's model to write to")
            return
        try:
            changed = with_choices(source.profile, study.tried)
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
            return
        lines = difference(source.profile, changed)
        if not lines:
            self.panel.say("nothing differs from the profile")
            return
        name = source.file.name
        changed = source.file.to_write(changed)
        if source.file.origin == "preset":
            name = f"{name}-mla"  # a preset stays as it is
            changed = changed.model_copy(update={"name": name})
        question = ConfirmScreen(f"Write this into {name}?", lines, f"write {name}")
        self.app.push_screen(question, partial(self._write_answered, changed))

    def _write_answered(self, profile: Profile, yes: bool | None) -> None:
        if yes:
            self._work("mla-write", partial(self._write, profile))

    async def _write(self, profile: Profile) -> None:
        try:
            path = await asyncio.to_thread(write_profile, profile, overwrite=True)
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
            return
        self.panel.say(f"written: {path}")
        # Ends a reading that began before the file was there: closing the question starts one.
        self._work("mla-read", self._read)

    # Calibrating

    def action_calibrate(self) -> None:
        """Measures on this machine in a child; again: cancels it."""
        if self._measurement is not None:
            self._measurement.cancel()
            self.map.progress = Progress("cancelling")
            self.map.redraw()
            return
        dims = None if self.study is None else self.study.dims
        slow = not gpu_is_loaded()
        topk = None if dims is None else usual_topk(dims, slow=slow)
        if dims is None or topk is None:
            self.panel.say("there is nothing to measure for this model", severity="warning")
            return
        request = Request(
            dims=replace(dims, topk=topk),
            grid=usual_grid(dims, slow=slow),
            refine=True,
            budget_s=CPU_BUDGET_S if slow else GPU_BUDGET_S,
        )
        self._measurement = Measurement(self._python(), quiet=True)
        self.map.progress = Progress()
        self._show_keys()
        self._redraw()
        self._work("mla-measure", partial(self._measure, self._measurement, request))

    def _python(self) -> str:
        """This interpreter where it has torch, else the profile's."""
        profile = None if self.source is None else self.source.profile
        own = None if profile is None else profile.engine.python
        return sys.executable if own is None or find_spec("torch") is not None else own

    async def _measure(self, measurement: Measurement, request: Request) -> None:
        loop = asyncio.get_running_loop()

        def heard(report: Report) -> None:
            loop.call_soon_threadsafe(self._hear, report)

        try:
            reports = await asyncio.to_thread(measurement.run, request, heard)
            found = load(reports[-1].content["text"])
            path = await asyncio.to_thread(save_calibration, found)
        except MLAError as error:
            said = f"{error.message}. {error.fix}".strip()
            self.panel.say(said, severity="information" if measurement.cancelled else "error")
        except OSError as error:
            self.panel.say(f"{measurement.python}: {error.strerror or error}", severity="error")
        except SpecpanelError as error:
            self.panel.say(str(error), severity="error")
        else:
            for heads, reason in found.refused.items():
                self.panel.say(f"{heads} heads: {reason}", severity="warning")
            self.map.calibration, self.map.measured = found, True
            self.panel.say(f"measured and kept: {path}")
        finally:
            self._measurement = None
            self.map.progress = None
            if self.is_mounted:
                self._show_keys()
                self._redraw()

    def _hear(self, report: Report) -> None:
        progress, content = self.map.progress, report.content
        if progress is None or self._measurement is None or self._measurement.cancelled:
            return
        if report.kind == "stage":
            progress.text, progress.done, progress.of = (
                content["text"],
                content["done"],
                content["of"],
            )
        elif report.kind == "cell":
            times = {tier: timing["median_ms"] for tier, timing in content["timings"].items()}
            mha = times.get("dense_mha", times.get("masked_mha", 0.0))
            progress.cells.append(
                f"{content['query']:>6,} after {content['context']:<6,} MHA {mha:9.2f} ms"
                f"   MQA {times['sparse_mqa']:9.2f} ms"
            )
        self.map.redraw()

    # Size

    def fit_to(self, width: int, height: int) -> None:
        self._plan = plan_mla(width, height)
        if self.view not in self._plan.views:
            self.view = self._plan.views[0]
        self._arrange()

    def _arrange(self) -> None:
        plan, view = self._plan, self.view
        everything = view == "all"
        beside = plan.left > 0 and view not in ("settings", "advice")
        alone = view == "map" and "all" in plan.views
        shown = {
            self.settings: (everything or beside or view == "settings") and not alone,
            self.advice: (everything or beside or view == "advice") and not alone,
            self.tiers: everything or view == "tiers",
            self.map: everything or view == "map",
        }
        for pane, visible in shown.items():
            pane.framed = plan.framed
            pane.display = visible
        self.left.display = shown[self.settings] or shown[self.advice]
        self.right.display = shown[self.tiers] or shown[self.map]
        self.left.styles.width = plan.left if plan.left and view != "advice" else "1fr"
        self.settings.styles.height = plan.settings_rows + 2 if plan.left else "1fr"
        self.call_after_refresh(self._redraw)
