#!/usr/bin/env python3
"""The page of --html in headless Chromium: what it draws, says and obeys, light and dark.

    tests/page/page_test.py PIPEWRIGHT CHROMIUM

Exits with 77 where there is no Chromium; under CI that is a failure.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from chromium import Chromium

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND, PROGRAM = "", ""
SMALL = "--schedule 1f1b -p 8 -m 32 --cost F=1ms,B=2ms,comm=100us --preset torch-gloo --mem F=256MiB,constant=2GiB"
PAGES = {
    "small": "simulate " + SMALL,
    "large": "simulate --schedule 1f1b -p 64 -m 256 --cost F=1ms,B=2ms,comm=20us --mem F=256MiB",
    "hang": "check --schedule paddle-vpp -p 4 -m 8 --vpp 2 --jobs fused --preset paddle-vpp",
    "pairs": "simulate --schedule dualpipev -p 4 -m 10 --cost F=10us,I=12us,W=8us,comm=1us",
}

TRACES = (
    "simulate --schedule 1f1b -p 4 -m 8 --cost F=1ms,B=2ms --trace a.json",
    "simulate --schedule 1f1b -p 4 -m 8 --cost F=1ms:1ms:1500us:1ms,B=2ms --trace b.json",
)

# Notes every text that is drawn on the bars.
NOTE_TEXTS = """
window.texts = [];
const draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  if (this.canvas.id === "bars")
    window.texts.push({text, x, y, width: this.measureText(text).width, height: parseFloat(this.font)});
  draw.apply(this, arguments);
};
"""


def pipewright(words, folder):
    return subprocess.run(
        [COMMAND, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False
    )


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.browser = cls.enterClassContext(Chromium(PROGRAM, limit_s=120))
        cls.browser.call("Page.addScriptToEvaluateOnNewDocument", source=NOTE_TEXTS)
        for name, words in PAGES.items():
            done = pipewright([*words.split(), "-q", "--html", name + ".html"], cls.folder)
            assert os.path.exists(cls.path(name)), done.stderr

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name + ".html")

    def open(self, name, dark=False):
        self.browser.open(self.path(name), dark)

    def js(self, expression):
        return self.browser.evaluate(expression)

    def text(self, element):
        return self.js("document.getElementById('%s').textContent" % element)

    def place_of(self, expression, row=0):
        """Where the middle of the action with this number is, in the window."""
        return self.js(
            """(() => {
              const p = window.pipewright, i = %s, a = p.scene().timelines[%d].model.actions, v = p.view();
              const box = document.getElementById("chart").getBoundingClientRect();
              return [box.left + v.x((a.start[i] + a.end[i]) / 2), box.top + v.top(a.rank[i], %d) + v.bar / 2];
            })()"""
            % (expression, row, row)
        )

    def number_of(self, name, rank):
        return self.js(
            """(() => {
              const m = window.pipewright.scene().timelines[0].model;
              for (let i = m.actions.begin[%d]; i < m.actions.begin[%d]; ++i)
                if (Model.nameOf(m, i) === "%s") return i;
              return -1;
            })()"""
            % (rank, rank + 1, name)
        )

    def test_every_page_is_drawn_without_a_complaint_and_asks_for_nothing(self):
        for name in PAGES:
            grounds = set()
            for dark in (False, True):
                with self.subTest(page=name, dark=dark):
                    self.open(name, dark)
                    self.assertEqual(self.browser.events("Runtime.exceptionThrown"), [])
                    self.assertEqual(self.browser.events("Runtime.consoleAPICalled"), [])
                    self.assertEqual(self.browser.events("Log.entryAdded"), [])
                    asked = [each["request"]["url"] for each in self.browser.events("Network.requestWillBeSent")]
                    self.assertEqual(asked, ["file://" + self.path(name)])
                    colours = self.js(
                        """(() => { const c = document.getElementById("bars"), seen = new Set();
                        for (const each of new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer))
                          seen.add(each);
                        return seen.size; })()"""
                    )
                    self.assertGreater(colours, 6)
                    grounds.add(self.js("getComputedStyle(document.body).backgroundColor"))
            self.assertEqual(len(grounds), 2)

    def test_labels_can_be_read_at_every_zoom(self):
        self.open("small")
        for zoom in (1, 0.3, 0.05):
            self.js("window.pipewright.view().fit(); window.pipewright.view().zoom(%g); window.texts = []" % zoom)
            self.js("window.pipewright.paintNow()")
            # On the bars of ranks, not at the axis or among their names.
            labels = [each for each in self.js("window.texts") if each["x"] > 74 and each["y"] > 22]
            self.assertGreater(len(labels), 20)
            for label in labels:
                self.assertGreaterEqual(label["height"], 7)
            wide = self.js(
                """(() => { const p = window.pipewright, v = p.view(), m = p.scene().timelines[0].model;
                const found = [];
                for (const t of window.texts) {
                  const rank = v.rankAt(t.y), i = rank < 0 ? -1 : Model.actionAt(m, rank, v.time(t.x));
                  if (t.x < 74 || t.y < 22 || i < 0) continue;
                  const room = (Math.min(m.actions.end[i], v.to) - Math.max(m.actions.start[i], v.from)) / v.perPixel();
                  if (t.width > room) found.push([t.text, t.width, room]);
                }
                return found; })()"""
            )
            self.assertEqual(wide, [])
        self.js("window.pipewright.view().fit(); window.texts = []; window.pipewright.paintNow()")
        numbers = [each for each in self.js("window.texts") if each["text"].isdigit() and each["y"] > 22]
        self.assertGreater(len(numbers), 0.9 * 8 * 32 * 2)
        self.js("window.pipewright.view().zoom(0.05); window.texts = []; window.pipewright.paintNow()")
        self.assertTrue(any(each["text"].startswith("F m") for each in self.js("window.texts")))

    def test_pointing_says_what_was_waited_for_and_why(self):
        self.open("small")
        x, y = self.place_of(str(self.number_of("F m7 s0", 0)))
        self.browser.move(x, y)
        self.assertIn("F m7 s0 · rank 0", self.text("tip"))
        self.browser.move(x + 80, y)
        said = self.text("tip")
        self.assertIn("idle · rank 0", said)
        self.assertIn("waiting for data: B m0 s1 on rank 1", said)
        self.assertIn("holds up", said)
        self.assertIn("in the end", said)
        self.assertIn("2 ms upstream action: B m0 s7 on rank 7", said)
        x, y = self.place_of(str(self.number_of("B m0 s0", 0)))
        self.browser.click(x, y)
        said = self.text("details")
        self.assertIn("waiting for data: B m0 s1 on rank 1", said)
        self.assertIn("gradient m0 from rank 1 to rank 0, 100 µs on its way", said)
        self.assertIn("critical path", said)

    def test_search_finds_and_keys_move(self):
        self.open("small")
        self.browser.key("/")
        self.browser.write("2B5")
        self.assertIn("B m5 s2 · rank 2", self.text("details"))
        self.assertEqual(self.text("said"), "1 of 1")
        self.browser.key("Escape")
        self.browser.key("/")
        self.browser.write("rank 3 m4")
        self.assertEqual(self.text("said"), "1 of 2")
        self.browser.key("Enter")
        self.assertEqual(self.text("said"), "2 of 2")
        self.assertIn("B m4 s3", self.text("details"))
        self.browser.key("Escape")
        self.browser.key("/")
        self.browser.write("nonsense!")
        self.assertIn("not understood", self.text("said"))
        self.browser.key("Escape")
        self.assertEqual(self.text("said"), "")

        span = "(() => { const v = window.pipewright.view(); return [v.from, v.to]; })()"
        whole = self.js(span)
        self.browser.key("+")
        self.browser.key("+")
        near = self.js(span)
        self.assertLess(near[1] - near[0], 0.6 * (whole[1] - whole[0]))
        self.browser.key("ArrowRight")
        self.assertGreater(self.js(span)[0], near[0])
        self.browser.key("0")
        self.assertEqual(self.js(span), whole)
        self.browser.wheel(700, 300, -300)
        self.assertLess(self.js(span)[1] - self.js(span)[0], whole[1] - whole[0])

    def test_messages_lead_across_ranks_and_a_micro_batch_is_followed(self):
        self.open("small")
        x, y = self.place_of(str(self.number_of("F m3 s0", 0)))
        self.browser.click(x, y)
        for rank in range(1, 8):
            self.browser.key("o")
            self.assertIn("F m3 s%d · rank %d" % (rank, rank), self.text("details"))
        self.browser.key("f")
        self.assertEqual(self.text("said"), "following micro-batch 3")
        self.assertEqual(self.js("window.pipewright.scene().timelines[0].lit.reduce((a, b) => a + b)"), 16)
        self.browser.key("f")
        self.assertEqual(self.js("window.pipewright.scene().timelines[0].lit"), None)

    def test_switches_show_what_they_say(self):
        self.open("small")
        over = """(() => { const c = document.getElementById("over"); let sum = 0;
          for (const each of c.getContext("2d").getImageData(0, 0, c.width, c.height).data) sum += each;
          return sum; })()"""
        self.js("window.pipewright.change((v) => v.zoom(0.3))")
        for key in ("p", "a"):
            before = self.js(over)
            self.browser.key(key)
            self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            self.assertGreater(self.js(over), before)
        pitch = self.js("window.pipewright.view().one()")
        self.browser.key("m")
        self.assertLess(self.js("window.pipewright.view().strip()"), 1)
        self.browser.key("m")
        self.assertEqual(self.js("window.pipewright.view().one()"), pitch)
        ground = self.js("getComputedStyle(document.body).backgroundColor")
        self.browser.key("t")
        self.assertNotEqual(self.js("getComputedStyle(document.body).backgroundColor"), ground)
        self.browser.key("?")
        self.assertFalse(self.js("document.getElementById('help').hidden"))

    def test_memory_shows_exactly_the_peaks_of_the_figures(self):
        words = PAGES["small"].split()
        figures = json.loads(pipewright([*words, "--json"], self.folder).stdout)
        peaks = [rank["peak_bytes"] for rank in figures["ranks"]]
        self.open("small")
        facts = self.js("window.pipewright.scene().timelines[0].model.facts.peaks.map((each) => each.bytes)")
        self.assertEqual(facts, peaks)
        # However far away, the column that holds the peak is as tall as the peak: three widths.
        for zoom in (1, 0.4, 0.05):
            tops = self.js(
                """(() => { const p = window.pipewright, v = p.view(), t = p.scene().timelines[0], m = t.model;
                document.getElementById("over").hidden = true;
                return m.facts.peaks.map((peak, rank) => {
                  v.fit(); v.zoom(%g, v.x(peak.at_ns)); p.paintNow();
                  const bars = document.getElementById("bars"), context = bars.getContext("2d");
                  const y0 = Math.round(v.top(rank) + v.bar + v.lane() + 1);
                  const y1 = Math.round(v.top(rank) + v.bar + v.lane() + v.strip());
                  const x = Math.floor(v.x(peak.at_ns) + 1e-6);
                  const pixels = new Uint32Array(context.getImageData(x, y0, 1, y1 - y0).data.buffer);
                  return [pixels.indexOf(Theme.colours().memory), Math.round((y1 - y0) * (1 - peak.bytes / m.memory.most)), x];
                }); })()"""
                % zoom
            )
            for drawn, wanted, x in tops:
                self.assertLessEqual(abs(drawn - wanted), 1, (zoom, x))
        x, y = self.place_of(str(self.number_of("F m7 s0", 0)))
        self.browser.move(x, y + self.js("window.pipewright.view().bar"))
        said = self.text("tip")
        self.assertIn("memory · rank 0", said)
        self.assertIn("stage 0: m0–m7", said)
        self.assertIn("while F m7 s0 runs", said)

    def test_a_hang_shows_its_cycle(self):
        self.open("hang")
        self.assertIn("DEADLOCK", self.js("document.querySelector('header pre').textContent"))
        self.assertIn("6SEND_F2 waits for rank 3's 7RECV_F1", self.js("document.body.textContent"))
        facts = "window.pipewright.scene().timelines[0].model.facts"
        self.assertEqual(self.js(facts + ".cycle.map((each) => each.rank).sort()"), [2, 3])
        self.assertGreaterEqual(self.js(facts + ".stuck.length"), 2)
        self.assertEqual(self.js("document.getElementById('legend').textContent.includes('stuck')"), True)
        place = """(() => { const v = window.pipewright.view(), box = document.getElementById("chart").getBoundingClientRect();
          return [box.left + v.x(%s.makespan_ns - 1), box.top + v.top(2) + v.bar / 2]; })()""" % facts
        self.browser.move(*self.js(place))
        self.assertIn("stuck · rank 2", self.text("tip"))
        self.assertIn("6SEND_F2 waits for 7RECV_F1 on rank 3", self.text("tip"))

    def test_the_legend_stays_in_view_and_print_shows_what_matters(self):
        self.open("small")
        self.js("scrollTo(0, 300)")
        top = self.js("document.getElementById('legend').getBoundingClientRect().top")
        self.assertGreaterEqual(top, 0)
        self.assertLess(top, 120)
        self.browser.call("Emulation.setEmulatedMedia", media="print")
        shown = "getComputedStyle(document.getElementById('%s')).display !== 'none'"
        self.assertFalse(self.js(shown % "tools"))
        for element in ("legend", "chart"):
            self.assertTrue(self.js(shown % element))
        self.browser.call("Emulation.setEmulatedMedia", media="")
        pdf = self.browser.call("Page.printToPDF", printBackground=True)["data"]
        self.assertGreater(len(pdf), 10000)
        self.assertIn("Ranks", self.js("[...document.querySelectorAll('h2')].map((each) => each.textContent)"))

    def test_two_timelines_are_aligned_with_the_difference_of_each_action(self):
        for words in TRACES:
            done = pipewright([*words.split(), "-q"], self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
        done = pipewright("compare a.json b.json -q --html two.html".split(), self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        for dark in (False, True):
            self.open("two", dark)
            self.assertEqual(self.browser.events("Runtime.exceptionThrown"), [])
        number = self.number_of("F m2 s2", 2)
        self.browser.click(*self.place_of(str(number)))
        self.assertIn("A: F m2 s2 · rank 2", self.text("details"))
        self.assertIn("1.5 ms, +500 µs (+50.0 %)", self.text("details"))
        # Its counterpart is in the second row of the same rank.
        other = "window.pipewright.scene().timelines[0].model.actions.other[%d] - 1" % number
        self.browser.click(*self.place_of(other, row=1))
        self.assertIn("B: F m2 s2 · rank 2", self.text("details"))
        self.assertIn("1 ms, −500 µs (−33.3 %)", self.text("details"))
        matched = "window.pipewright.scene().timelines.map((t) => t.model.actions.other.every((n) => n > 0))"
        self.assertEqual(self.js(matched), [True, True])

    def test_traces_of_ranks_say_what_was_done_to_them(self):
        done = pipewright(["analyze", os.path.join(ROOT, "examples", "pytorch"), "-q", "--html", "ranks.html"], self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        for dark in (False, True):
            self.open("ranks", dark)
            self.assertEqual(self.browser.events("Runtime.exceptionThrown"), [])
        said = self.js("document.body.innerText")
        self.assertIn("clock of rank 1 set 11.0 s back", said)
        self.assertIn("20.7 ms of waiting inside 4 slices counts as idle", said)
        titles = self.js("[...document.querySelectorAll('h2')].map((each) => each.textContent)")
        for title in ("Waiting inside slices", "Clocks", "Messages between clocks", "Steps of the trace"):
            self.assertIn(title, titles)
        x, y = self.place_of(str(self.number_of("B m0 s0", 0)))
        self.browser.move(x - 100, y)
        self.assertIn("upstream action: B m0 s1 on rank 1", self.text("tip"))
        # Rank 0 waits for rank 1, which takes its second input only after its first backward.
        longest = """(() => { const m = window.pipewright.scene().timelines[0].model, unexplained = m.facts.path_kinds.indexOf("unexplained");
          return Math.max(...Array.from(m.path.start, (from, i) => m.path.kind[i] === unexplained ? m.path.end[i] - from : 0)); })()"""
        self.assertLess(self.js(longest), 1e6)

    def test_a_run_shows_its_losses_and_whether_its_gradients_are_right(self):
        plan, data = os.path.join(ROOT, "examples", "plan.json"), os.path.join(ROOT, "README.md")
        done = pipewright(["run", plan, "--data", data, "--steps", "3", "--verify", "-q", "--json", "--html", "run.html"], self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        losses = [step["loss"] for step in json.loads(done.stdout)["steps"]]
        self.open("run")
        self.assertEqual(self.browser.events("Runtime.exceptionThrown"), [])
        self.assertIn("agree with a serial run", self.js("document.body.innerText"))
        self.assertIn("Loss, %.4f to %.4f" % (losses[0], losses[-1]), self.js("document.body.innerText"))
        self.assertEqual(self.js("document.querySelectorAll('svg').length"), 1)

    def test_a_search_shows_its_ranked_table_and_the_best_plan(self):
        job = os.path.join(ROOT, "examples", "job.json")
        done = pipewright(["tune", job, "-q", "--json", "--html", "tune.html"], self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        ranked = json.loads(done.stdout)["ranked"]
        self.open("tune")
        table = self.js(
            """[...document.querySelector("table").rows].map((row) => [...row.cells].map((cell) => cell.textContent))"""
        )
        self.assertEqual(table[0][:2], ["#", "schedule"])
        own = [row for row in table[1:] if row[0] != "base"]
        self.assertEqual([row[1] for row in own], [each["schedule"] for each in ranked])
        makespan = self.js("window.pipewright.scene().timelines[0].model.makespan")
        self.assertEqual(makespan, ranked[0]["step_ns"])

    def test_rows_of_a_search_choose_which_timelines_are_seen(self):
        job = os.path.join(ROOT, "examples", "job.json")
        done = pipewright(["tune", job, "-q", "--json", "--html", "chosen.html"], self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        steps = [each["step_ns"] for each in json.loads(done.stdout)["ranked"]]
        self.open("chosen")
        shown = "window.pipewright.scene().timelines.map((t) => t.model.makespan)"
        self.assertEqual(self.js(shown), steps[:1])
        click = """(async () => {
          document.querySelector('tr[data-timeline="%d"] .choose').children[%d].click();
          await new Promise((done) => setTimeout(done, 300)); })()"""
        self.js(click % (1, 1))
        self.assertEqual(self.js(shown), steps[:2])
        self.js(click % (2, 0))
        self.assertEqual(self.js(shown), [steps[2], steps[1]])
        self.js(click % (1, 1))
        self.assertEqual(self.js(shown), [steps[2]])
        self.assertEqual(self.browser.events("Runtime.exceptionThrown"), [])

    def test_a_file_name_is_no_markup(self):
        name = "<img src=x onerror=alert(1)>&.csv"
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write("0F0,0B0\n1F0,1B0\n")
        done = pipewright(["check", name, "-q", "--html", "named.html"], self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.open("named")
        self.assertEqual(self.js("document.images.length"), 0)
        self.assertIn(name, self.js("document.body.textContent"))


if __name__ == "__main__":
    if len(sys.argv) < 3 or not os.access(sys.argv[2], os.X_OK):
        print("skipped: chromium is not installed")
        sys.exit(1 if os.environ.get("CI") else 77)
    COMMAND, PROGRAM = os.path.abspath(sys.argv[1]), sys.argv[2]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
