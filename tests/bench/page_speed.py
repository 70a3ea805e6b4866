#!/usr/bin/env python3
"""How long the page of --html takes to open in headless Chromium, and how many frames a second it
draws while it is panned and zoomed:

    tests/bench/page_speed.py build/release/pipewright [CHROMIUM]

Bytes of the file, seconds from the navigation to the first picture (the median of three), frames a
second over 100 frames each, with everything that can be shown switched on. Rasterised without a GPU.
"""

import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "page"))
from chromium import Chromium  # noqa: E402

SIZES = ((8, 32), (64, 256), (64, 800), (64, 1024), (128, 3906))  # F and B: 512 to 10^6 actions
FRAMES = 100

# Draws frames one after the other, each as soon as the browser lets it, while the view moves.
PANNING = """(async () => {
  const p = window.pipewright, view = p.view();
  view.fit();
  if (%(zoom)g < 1) view.zoom(%(zoom)g);
  const begin = performance.now();
  for (let i = 0; i < %(frames)d; ++i) {
    p.change((v) => %(move)s);
    await new Promise((done) => requestAnimationFrame(done));
  }
  return %(frames)d * 1000 / (performance.now() - begin);
})()"""

PICTURES = 20


def processor_ms(browser):
    """CPU time that the page's main thread has had."""
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return 1000 * next(each["value"] for each in metrics if each["name"] == "ThreadTime")


def picture_ms(browser):
    """CPU time of one picture of the whole step, everything drawn again."""
    browser.evaluate("window.pipewright.view().fit()")
    before = processor_ms(browser)
    browser.evaluate("for (let i = 0; i < %d; ++i) window.pipewright.paintNow()" % PICTURES)
    return (processor_ms(browser) - before) / PICTURES


def measured(browser, path):
    browser.call("Performance.enable")
    seconds = [browser.open(path) for _ in range(3)]
    for name in ("path", "arrows"):
        browser.evaluate("window.pipewright.toggle('%s')" % name)
    pan = {"frames": FRAMES, "move": "v.pan(i % 20 < 10 ? 15 : -15)"}
    rates = [browser.evaluate(PANNING % {**pan, "zoom": zoom}) for zoom in (0.5, 0.02)]
    zoomed = {"frames": FRAMES, "zoom": 1, "move": "v.zoom(i % 20 < 10 ? 0.8 : 1.25)"}
    rates.append(browser.evaluate(PANNING % zoomed))
    return statistics.median(seconds), rates, picture_ms(browser)


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else "build/release/pipewright"
    chromium = sys.argv[2] if len(sys.argv) > 2 else "/usr/bin/chromium"
    print("ranks x micro-batches  actions      bytes  open s  pan 1/2  pan 1/50   zoom  CPU ms a picture")
    with tempfile.TemporaryDirectory() as folder, Chromium(chromium, limit_s=300) as browser:
        for ranks, micro_batches in SIZES:
            path = os.path.join(folder, "page.html")
            subprocess.run(
                [command, "simulate", "-q", "--schedule", "1f1b", "-p", str(ranks), "-m", str(micro_batches)]
                + ["--cost", "F=1ms,B=2ms,comm=20us", "--mem", "F=256MiB", "--html", path],
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            opened, rates, picture = measured(browser, path)
            row = (ranks, micro_batches, 2 * ranks * micro_batches, os.path.getsize(path), opened, *rates, picture)
            print("%9d x %-9d %9d %10d %7.2f %8.1f %9.1f %6.1f %15.1f" % row, flush=True)


if __name__ == "__main__":
    main()
