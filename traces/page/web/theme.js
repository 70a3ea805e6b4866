"use strict";
// Colours, as page.css gives them: light or dark by the system's wish until somebody chooses.

const Theme = (() => {
  const CAUSES = ["fill", "drain", "data", "imbalance", "transfer", "overhead", "stuck"];
  const SHADES = 4;  // of a look: its rank's first stage, second, third, all others
  let current = null;

  /// A colour of page.css as it is now, light or dark: [red, green, blue].
  function colourOf(name, probe) {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(Number);
  }

  /// As a pixel of image data on a little-endian machine, which all browsers run on.
  const pixel = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  const mix = (a, b, part) => a.map((value, i) => Math.round(value + (b[i] - value) * part));
  const text = ([r, g, b]) => `rgb(${r},${g},${b})`;

  function read() {
    const probe = document.head.appendChild(document.createElement("i"));
    const of = (name) => colourOf(name, probe);
    const ground = of("ground"), looks = Model.LOOKS.map((name) => of(name));
    const causes = CAUSES.map((name) => of(`cause-${name}`));
    const luminance = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b;
    const shades = looks.map((colour) =>
      Array.from({length: SHADES}, (_, n) => mix(colour, ground, 0.2 * n)));
    current = {
      ground: pixel(ground), groundText: text(ground), ink: text(of("ink")), quiet: text(of("quiet")),
      line: text(of("line")), accent: text(of("accent")), path: text(of("path")), found: text(of("found")),
      activation: text(of("activation")), gradient: text(of("gradient")), longer: text(of("longer")), shorter: text(of("shorter")),
      activationPixel: pixel(of("activation")), gradientPixel: pixel(of("gradient")),
      collectivePixel: pixel(of("collective")), memory: pixel(of("memory")), peak: text(of("peak")),
      idle: pixel(of("idle")), stuck: text(of("bad-line")),
      looks: shades.map((all) => all.map(pixel)),
      dim: shades.map((all) => all.map((colour) => pixel(mix(colour, ground, 0.78)))),
      onLook: shades.map((all) => all.map((colour) => luminance(colour) > 140 ? "#111418" : "#ffffff")),
      causes: causes.map(pixel), dimCauses: causes.map((colour) => pixel(mix(colour, ground, 0.6))),
      causeText: causes.map(text), lookText: looks.map(text),
    };
    probe.remove();
    return current;
  }

  function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function choose(name) {
    document.documentElement.dataset.theme = name;
    return read();
  }

  return {SHADES, CAUSES, read, isDark, choose, toggle: () => choose(isDark() ? "light" : "dark"),
          colours: () => current || read()};
})();
