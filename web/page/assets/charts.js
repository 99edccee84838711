// Charts with hover and zoom in the place of those that the server draws, which stay where scripts don't run.
"use strict";

(() => {
  const source = document.getElementById("charts");
  if (!source || typeof uPlot === "undefined" || !source.querySelector("[data-samples]")) return;
  const HEIGHT = 190;
  const shown = new Map(); // by title: the chart, and what it shows
  const place = document.createElement("div");
  place.id = "plots";
  place.className = "charts";
  const whole = document.createElement("button");
  whole.textContent = "Whole span";
  whole.hidden = true;
  whole.addEventListener("click", () => {
    for (const each of shown.values()) each.plot.setData(each.data, true);
    whole.hidden = true;
  });
  source.after(whole, place);
  source.hidden = true;

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function stroke(number) {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    line.innerHTML = `<line class="line-${number}"/>`;
    document.body.append(line);
    const style = getComputedStyle(line.firstChild);
    const found = { stroke: style.stroke, dash: style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[ ,]+/).map(parseFloat) };
    line.remove();
    return found;
  }

  function dataOf(given) {
    const count = given.values[0].length;
    const times = Array.from({ length: count }, (_, index) => given.until_s - (count - 1 - index) * given.slot_s);
    return [times, ...given.values];
  }

  // Bands where a messaging store was out, behind the lines.
  function outages(plot) {
    const each = shown.get(plot.root.closest("section").getAttribute("aria-label"));
    if (!each) return;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = color("--danger-soft");
    for (const [first, end] of each.given.outages) {
      const from = plot.valToPos(each.data[0][first], "x", true);
      const to = plot.valToPos(each.data[0][Math.min(end, each.data[0].length - 1)], "x", true);
      ctx.fillRect(from, bbox.top, Math.max(2, to - from), bbox.height);
    }
    ctx.restore();
  }

  function isZoomed(plot, data) {
    return plot.scales.x.min > data[0][0] || plot.scales.x.max < data[0][data[0].length - 1];
  }

  // Without a pointer the legend has the last values.
  function latest(each) {
    each.out.hidden = !each.given.outages.length;
    if (each.plot.cursor.idx !== null && each.plot.cursor.left >= 0) return;
    const last = each.data[1].findLastIndex((value) => value !== null); // the present second may have none yet
    if (last >= 0) each.plot.setLegend({ idx: last });
  }

  function make(section, given) {
    const card = document.createElement("section");
    card.className = "card";
    card.setAttribute("aria-label", section.getAttribute("aria-label"));
    card.append(section.querySelector("h2").cloneNode(true));
    const canvas = document.createElement("div");
    card.append(canvas);
    place.append(card);
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
    const figure = (value) => (value === null || value === undefined ? "-" : `${Number(value.toPrecision(4))} ${given.unit}`);
    const out = document.createElement("p"); // colour alone says nothing
    out.className = "muted out-mark";
    out.innerHTML = '<svg width="22" height="8" aria-hidden="true" focusable="false"><rect class="outage" width="22" height="8"/></svg> a messaging store was out';
    card.append(out);
    const entry = { given, data: dataOf(given), plot: null, out };
    shown.set(section.getAttribute("aria-label"), entry);
    entry.plot = new uPlot({
      width: Math.max(200, canvas.clientWidth),
      height: HEIGHT,
      cursor: { sync: { key: "charts" }, drag: { x: true, y: false } },
      axes: [axis, { ...axis, size: 60 }],
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
      series: [{}, ...given.labels.map((label, index) => ({ label, width: 1.5, value: (_, value) => figure(value), ...stroke(index + 1) }))],
      hooks: { drawAxes: [outages], setScale: [(plot) => { whole.hidden = ![...shown.values()].some((each) => each.plot && isZoomed(each.plot, each.data)); }] },
    }, entry.data, canvas);
    entry.plot.over.addEventListener("mouseleave", () => setTimeout(() => latest(entry)));
    latest(entry);
    new ResizeObserver(() => entry.plot.setSize({ width: Math.max(200, canvas.clientWidth), height: HEIGHT })).observe(canvas);
  }

  function draw() {
    for (const section of source.querySelectorAll("[data-samples]")) {
      const given = JSON.parse(section.dataset.samples);
      const each = shown.get(section.getAttribute("aria-label"));
      if (!each) {
        make(section, given);
        continue;
      }
      const stays = isZoomed(each.plot, each.data);
      each.given = given;
      each.data = dataOf(given);
      each.plot.setData(each.data, !stays);
      if (stays) each.plot.redraw();
      latest(each);
    }
  }

  draw();
  new MutationObserver(draw).observe(source, { attributes: true, attributeFilter: ["data-samples"], childList: true, subtree: true });
})();
