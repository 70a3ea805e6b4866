#!/usr/bin/env python3
"""Takes the pictures of docs/evidence/pages: three pages at three zooms, light and dark.

    tests/page/pictures.py PIPEWRIGHT CHROMIUM FOLDER
"""

import os
import subprocess
import sys
import tempfile

from chromium import Chromium

ZOOMS = (1, 0.3, 0.05)  # of the step, what is seen
COSTS = ("--cost", "F=1ms,I=1ms,W=1ms,comm=100us", "--mem", "F=256MiB,I=-128MiB,W=-128MiB,constant=2GiB")
PAGES = {
    "8x32": [("simulate", "-s", "zb-h1", "-p", "8", "-m", "32", *COSTS, "--html", "8x32.html")],
    "64x256": [("simulate", "-s", "1f1b", "-p", "64", "-m", "256", *COSTS, "--html", "64x256.html")],
    "two": [
        ("simulate", "-s", "1f1b", "-p", "4", "-m", "16", "--cost", "F=1ms,B=2ms,comm=100us", "--trace", "a.json"),
        ("simulate", "-s", "1f1b", "-p", "4", "-m", "16", "--cost", "F=1ms:1ms:1400us:1ms,B=2ms,comm=200us", "--trace", "b.json"),
        ("compare", "a.json", "b.json", "--html", "two.html"),
    ],
}


def main(command, program, out):
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Chromium(program, width=1200, height=640) as browser:
        for name, commands in PAGES.items():
            for words in commands:
                subprocess.run([command, *words, "-q"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            for dark in (False, True):
                browser.open(os.path.join(folder, name + ".html"), dark)
                for zoom in ZOOMS:
                    browser.evaluate("window.pipewright.change((v) => { v.fit(); v.zoom(%g); }); window.pipewright.paintNow()" % zoom)
                    theme = "dark" if dark else "light"
                    browser.screenshot(os.path.join(out, "%s-%s-%g.webp" % (name, theme, zoom)), form="webp", quality=45)
                if browser.events("Runtime.exceptionThrown"):
                    sys.exit("%s: an exception in the page" % name)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), *sys.argv[2:])
