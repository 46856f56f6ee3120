"""Page with the timeline of a profile: one HTML file that needs neither a network nor other files."""

from __future__ import annotations

import html


def page(trace: str, table: str, title: str) -> str:
    """Returns an HTML page with a timeline that can be zoomed, and a table.

    ``trace`` is JSON in the trace event format, and ``table`` is shown as it is.
    """
    # `</script>` in a name would end the script.
    data = trace.replace("<", "\\u003c")
    return (
        _PAGE.replace("@TITLE@", html.escape(title)).replace("@TABLE@", html.escape(table)).replace("@TRACE@", data)
    )


_PAGE = r"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>@TITLE@</title>
<style>
  :root { color-scheme: light dark; --back: #fff; --text: #1b2430; --faint: #6b7686; --line: #d5dbe4 }
  @media (prefers-color-scheme: dark) { :root { --back: #14181f; --text: #e6ebf2; --faint: #9aa6b5; --line: #333c49 } }
  body { margin: 1rem; background: var(--back); color: var(--text); font: 14px system-ui, sans-serif }
  canvas { width: 100%; border: 1px solid var(--line); border-radius: 4px; cursor: grab; display: block }
  #hint { color: var(--faint); margin: .4rem 0 }
  #tip { position: fixed; display: none; pointer-events: none; padding: .3rem .5rem; border: 1px solid var(--line);
         border-radius: 4px; background: var(--back); max-width: 40rem; white-space: pre-wrap }
  pre { overflow-x: auto }
</style>
<h1 style="font-size: 1.2rem">@TITLE@</h1>
<canvas id="view"></canvas>
<p id="hint">Wheel: zoom. Drag: move. Double click: show all.</p>
<pre>@TABLE@</pre>
<div id="tip"></div>
<script>
"use strict";
const trace = @TRACE@;
const view = document.getElementById("view"), tip = document.getElementById("tip"), ROW = 18, HEAD = 20;
// Maximum ID of a thread; streams of devices have higher numbers.
const MAX_ID = 1 << 22;
const threads = new Map();
for (const event of trace.traceEvents) {
  if (event.ph === "M" && event.name === "thread_name") thread(event).name = event.args.name;
  if (event.ph === "X") thread(event).calls.push(event);
}
function thread(event) {
  const key = event.pid + ":" + event.tid;
  if (!threads.has(key)) threads.set(key, { name: "", id: event.tid, calls: [], depth: 0 });
  return threads.get(key);
}
let first = Infinity, last = -Infinity, height = 24;
for (const one of threads.values()) {
  one.calls.sort((a, b) => a.ts - b.ts || b.dur - a.dur);
  const open = [];
  for (const call of one.calls) {
    while (open.length && open[open.length - 1] <= call.ts) open.pop();
    call.depth = open.length;
    open.push(call.ts + call.dur);
    one.depth = Math.max(one.depth, open.length);
    first = Math.min(first, call.ts);
    last = Math.max(last, call.ts + call.dur);
  }
  if (!one.calls.length) continue;
  one.top = height;
  height += HEAD + one.depth * ROW + 6;
}
if (first > last) { first = 0; last = 1; }
let from = first, to = last;
function shown(us) {
  for (const [unit, size] of [["s", 1e6], ["ms", 1e3], ["us", 1]]) if (us >= size) return +(us / size).toPrecision(4) + " " + unit;
  return (us * 1e3).toFixed(0) + " ns";
}
function colour(name) {
  let hash = 0;
  for (const c of name) hash = (hash * 31 + c.codePointAt(0)) % 360;
  return `hsl(${hash} 55% 62%)`;
}
function draw() {
  const scale = window.devicePixelRatio || 1, width = view.clientWidth, paint = view.getContext("2d");
  view.width = width * scale; view.height = height * scale; view.style.height = height + "px";
  paint.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue("--text"), line = style.getPropertyValue("--line"), x = (us) => (us - from) / (to - from) * width;
  paint.font = "12px system-ui, sans-serif"; paint.textBaseline = "middle";
  const step = 10 ** Math.ceil(Math.log10((to - from) / Math.max(2, width / 90)));
  for (let us = Math.ceil((from - first) / step) * step; us + first <= to; us += step) {
    paint.fillStyle = line; paint.fillRect(x(us + first), 0, 1, height);
    paint.fillStyle = text; paint.fillText(us ? shown(us) : "0", x(us + first) + 3, 10);
  }
  for (const one of threads.values()) {
    if (!one.calls.length) continue;
    paint.fillStyle = text; paint.fillText(`${one.name || "thread"} ${one.id > MAX_ID ? "" : one.id}`, 4, one.top + HEAD / 2);
    const ends = [];
    for (const call of one.calls) {
      const left = Math.max(0, x(call.ts)), right = Math.min(width, x(call.ts + call.dur));
      // What is narrower than half a pixel is drawn once for each half pixel.
      if (right < 0 || left > width || right < (ends[call.depth] || 0)) continue;
      const wide = Math.max(right - left, 0.5), y = one.top + HEAD + call.depth * ROW;
      ends[call.depth] = left + wide;
      paint.fillStyle = colour(call.name); paint.fillRect(left, y, wide, ROW - 2);
      if (wide > 34) {
        paint.save(); paint.beginPath(); paint.rect(left, y, wide - 2, ROW); paint.clip();
        paint.fillStyle = "#10151c"; paint.fillText(call.name, left + 3, y + ROW / 2 - 1); paint.restore();
      }
    }
  }
}
function at(event) {
  const box = view.getBoundingClientRect(), us = from + (event.clientX - box.left) / box.width * (to - from), y = event.clientY - box.top;
  for (const one of threads.values()) {
    const depth = Math.floor((y - one.top - HEAD) / ROW);
    const call = one.calls.find((call) => call.depth === depth && call.ts <= us && us <= call.ts + call.dur);
    if (call) return call;
  }
}
let held = null;
view.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = view.getBoundingClientRect(), part = (event.clientX - box.left) / box.width, us = from + part * (to - from);
  const span = Math.min(last - first, Math.max(0.01, (to - from) * (event.deltaY > 0 ? 1.25 : 0.8)));
  from = Math.max(first, Math.min(us - part * span, last - span)); to = from + span; draw();
}, { passive: false });
view.addEventListener("pointerdown", (event) => { held = { x: event.clientX, from, to }; view.setPointerCapture(event.pointerId); });
view.addEventListener("pointerup", () => { held = null; });
view.addEventListener("pointermove", (event) => {
  if (held) {
    const span = held.to - held.from, moved = (held.x - event.clientX) / view.clientWidth * span;
    from = Math.max(first, Math.min(held.from + moved, last - span)); to = from + span; draw();
    return;
  }
  const call = at(event);
  tip.style.display = call ? "block" : "none";
  if (!call) return;
  const args = call.args && call.args.arguments ? `\n(${call.args.arguments})` : "";
  tip.textContent = `${call.name}\n${shown(call.dur)}, ${call.cat === "device" ? "by the clock of the device" : "called from " + call.cat}${args}`;
  tip.style.left = Math.min(event.clientX + 12, window.innerWidth - 260) + "px"; tip.style.top = event.clientY + 14 + "px";
});
view.addEventListener("pointerleave", () => { tip.style.display = "none"; });
view.addEventListener("dblclick", () => { from = first; to = last; draw(); });
window.addEventListener("resize", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
</script>
</html>
"""
