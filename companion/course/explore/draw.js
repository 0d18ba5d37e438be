// The drawing: each part writes its HTML anew from the records of the pass.
const $ = id => document.getElementById(id);
const state = { token: 0, block: 0, head: 0, unfold: 3, temperature: 1, k: 1, p: 1 };
const silenced = new Set(), strips = {}; // which heads; what each strip shows
let model, words, tokens = [], whole = [], records = [], writing = 0; // whole: no head silenced
const safe = text => text.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);
const plain = token => words.decode([token]).replace(/ /g, "␣").replace(/\n/g, "↵");
const show = token => safe(plain(token));
const fixed = (x, digits = 2) => (x === -Infinity ? "-∞" : x.toFixed(digits)).replace("-", "−");
const percent = p => `${(100 * p).toFixed(p < 0.0995 ? 1 : 0)}%`;
const each = (n, draw) => Array.from({ length: n }, (_, i) => draw(i)).join("");
const length = x => Math.sqrt(dot(x, x)), mean = x => sum(x) / (x.length || 1);
const surprises = all => all.slice(1).map((r, i) => surprise(all[i].logits, r.token));
function put(id, html) { // the focus stays where it was
  const key = $(id).contains(document.activeElement) && document.activeElement.dataset.key;
  $(id).innerHTML = html;
  if (key) $(id).querySelector(`[data-key="${key}"]`)?.focus({ preventScroll: true });
}
function choice(name, labels, shares = []) { // radio buttons for a number of the state
  const spoken = { "␣": "space", "↵": "new line" };
  return `<fieldset><legend>${name}</legend>` + each(labels.length, i => `<label><input type="radio"
    name="${name}" value="${i}" data-key="${name}${i}" ${i === state[name] ? "checked" : ""}
    aria-label="${i + 1}: ${spoken[labels[i]] ?? labels[i]}"><span>${labels[i]}</span>
    <i style="--v: ${shares[i] ?? 0}"></i></label>`) + "</fieldset>";
}
function strip(key, name, values, tip) { // a vector as bars; a range reads its numbers
  const n = values.length, top = largest(values.map(Math.abs));
  const bars = sign => each(n, i => values[i] * sign > 0
    ? `M${i} 0h.8v${(-values[i] / top).toFixed(3)}h-.8z` : "");
  strips[key] = [name, values];
  return `<div class="strip" data-tip="${safe(name)} (${n}) · ${tip}"><b>${safe(name)}</b><div>
    <svg viewBox="0 -1 ${n} 2" preserveAspectRatio="none" aria-hidden="true">
    <path fill="var(--plus)" d="${bars(1)}"/><path fill="var(--minus)" d="${bars(-1)}"/></svg>
    <input type="range" max="${n - 1}" value="0" data-key="${key}"
    aria-label="numbers of ${safe(name)}">
    </div><small>±${fixed(top)}</small></div>`;
}
const bar = (name, share, text, kind = "") => `<div class="bar ${kind}"><b>${name}</b>
  <i style="--v: ${share}"></i><span>${text}</span></div>`;
function heat(l, h) { // a head's pattern as a picture; the shade is the weight's root
  const n = records.length, canvas = document.createElement("canvas");
  canvas.width = canvas.height = n;
  const pen = canvas.getContext("2d"), image = pen.createImageData(n, n);
  const pixels = new Uint32Array(image.data.buffer); // alpha, blue, green, red
  records.forEach((record, t) => record.blocks[l].weights[h].forEach((weight, s) =>
    pixels[t * n + s] = 255 * Math.sqrt(weight) << 24 | 0x965400));
  pen.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

function draw_vectors({ config, t, l, h, d, shared, record, here }) {
  const { token, embedding, position } = record;
  const { x, normed, queries, keys, values, between, hidden, after } = here;
  const turned = config.positions === "rotary" ? ", turned by its position" : "";
  const hand = a => `<svg viewBox="-1.1 -1.1 2.2 2.2" fill="none" stroke="var(--plus)"
    stroke-width=".1"><circle r="1"/><path d="M0 0L${Math.cos(a)} ${-Math.sin(a)}"/></svg>`;
  const hands = `<div class="strip" tabindex="0" data-tip="hands (${d / 2}) · features i and i + d/2
    of a head are turned by t · base^(−2i/d) radians"><b>position ${t}</b><p>${each(d / 2, i =>
      hand(angle(t, i, d, config.rotary_base)))}</p></div>`;
  const slopes = config.slopes.map(slope => -slope), alibi = config.positions === "alibi";
  put("embedding", strip("embedding", `token ${plain(token)}`, embedding,
    `row ${token} of the embedding (v c)`) + (turned ? hands : alibi
    ? strip("position", "ALiBi", slopes, "added to each head's scores for a token of distance")
    : strip("position", `position ${t}`, position, "added to the embedding")));
  const norm = { rms: "x / √(mean x² + ε) · gain", layer: "(x − mean) / √(var + ε) · gain + bias" };
  put("norm", strip("x", "residual stream", x, `what came into block ${l + 1}`)
    + strip("normed", "norm", normed, norm[config.norm]));
  put("vectors", strip("query", "query", queries[h], `Wq · norm${turned}: what it asks`)
    + strip("key", "key", keys[shared], `Wk · norm${turned}: how it is found`)
    + strip("value", "value", values[shared], "Wv · norm: what it has to say"));
  const lengths = [x, between, after].map(length), most = Math.max(...lengths);
  put("hidden", strip("hidden", "activations", hidden, `${config.activation}(W · norm)`)
    + "<p>How long is the residual stream?</p>" + ["before", "after attention", "after both"]
      .map((name, i) => bar(name, lengths[i] / most, fixed(lengths[i]))).join(""));
}
function draw_attention({ config, t, l, h, d, n, shared, here: { queries, weights, heads } }) {
  const all = records.map(r => r.blocks[l].keys[shared]), of = s => show(records[s].token);
  const seen = attend(queries[h], all, t, config.slopes[h]), scaled = `÷ √${d}`;
  const rows = [["query · key", seen.products], [scaled, seen.scores], ["mask", seen.masked],
    ["softmax", seen.weights]].slice(0, state.unfold + 1);
  put("unfold", choice("unfold", ["scores", "scale_embeddings", "masked", "softmax"]));
  const cells = (row, i) => each(n, s => `<td style="--v: ${i === 3 && row[s]}">${fixed(row[s])}`);
  put("steps", `<div tabindex="0" role="region" aria-label="From scores to weights" data-key="steps"
    data-tip="weights (s) = softmax(mask(q · k / √d))"><table><tr><th>key of</th>${each(n, s =>
      `<th>${of(s)}`)}${rows.map(([name, row], i) => `<tr><th>${name}${cells(row, i)}`).join("")}
    </table></div>`);
  const scroll = $("steps").firstChild;
  scroll.scrollLeft = (t + 5) * scroll.scrollWidth / (n + 2) - scroll.clientWidth;
  const best = ranked(weights[h])[0], alone = new Float32Array(config.d_model);
  alone.set(heads.slice(h * d, h * d + d), h * d);
  const adds = linear({ weight: model.blocks[l].attention.to_output.weight }, alone);
  const said = `Token ${t + 1}, ${of(t)}, looks most at token ${best + 1}, ${of(best)}: ${
    fixed(weights[h][best])}.`;
  put("pattern", `<svg role="img" aria-label="${said}" viewBox="-1.5 -1.5 ${n + 1.7} ${n + 1.7}"
    data-tip="weights (t s) · row t attends to column s; the shade is √weight">${each(n, s => `
    <text x="-.8" y="${s + 0.8}">${of(s)}</text><text x="${s + 0.5}" y="-.4">${of(s)}</text>`)}
    <image width="${n}" height="${n}" href="${heat(l, h)}"/><rect y="${t}" width="${n}" height="1"
    fill="none" stroke="var(--minus)" stroke-width=".15"/></svg><p>${said}</p>`
    + strip("adds", "this head adds", adds, "Wo · (weights · values)"));
}
function draw_heads({ config, t }) {
  $("heads").style.setProperty("--n", config.n_heads);
  put("heads", each(config.n_layers * config.n_heads, i => {
    const l = Math.floor(i / config.n_heads), h = i % config.n_heads;
    const off = silenced.has(`${l}.${h}`);
    return `<button data-head="${l}.${h}" data-key="${l}.${h}" aria-pressed="${off}" data-tip="
      weights (t s) of block ${l + 1}, head ${h + 1} · silent, its columns of Wo are 0"><img alt=""
      src="${heat(l, h)}"><span>${l + 1}.${h + 1}${off ? " silent" : ""}</span></button>`;
  }));
  const [before, after] = [whole, records].map(all => {
    const chances = softmax(all[t].logits), best = ranked(chances)[0];
    return [fixed(mean(surprises(all))), `<b>${show(best)}</b> (${percent(chances[best])})`];
  });
  $("effect").innerHTML = `Silent: ${silenced.size}. The mean surprise is <b>${after[0]} nats</b>,
    with all heads ${before[0]}; the best guess is ${after[1]}, with all heads ${before[1]}.`;
}
const sampled = ({ logits }, warm = temperature(logits, state.temperature)) => // and cut
  [softmax(warm), softmax(top_p(top_k(warm, state.k), state.p))];
function draw_next({ record, record: { blocks } }) {
  const stages = [["input", blocks[0].x], ...blocks.map((b, l) => [`block ${l + 1}`, b.after])];
  put("lens", `<table tabindex="0" data-tip="chances (v) = softmax(W · norm(x)) of each block's x">
    ${stages.map(([name, x]) => [name, softmax(unembed(model, x))]).map(([name, chances]) => `<tr>
    <th>${name}</th>${ranked(chances).slice(0, 5).map(i => `<td style="--v: ${chances[i]}">
    <b>${show(i)}</b> ${percent(chances[i])}</td>`).join("")}</tr>`).join("")}</table>`);
  const [before, after] = sampled(record), likely = ranked(before).slice(0, 12);
  const rest = Math.max(0, 1 - sum(likely.map(i => after[i])));
  for (const name of ["temperature", "k", "p"]) $(`${name}-is`).textContent = state[name];
  put("next", likely.map(i => after[i] ? bar(show(i), after[i], percent(after[i]))
    : bar(show(i), before[i], "cut", "cut")).join("") + bar("others", rest, percent(rest)));
}
function run(tokens, silent, past) { // a record for each token; what `past` has in common stays
  const same = tokens.findIndex((token, t) => past[t]?.token !== token);
  const all = past.slice(0, same < 0 ? tokens.length : same);
  for (const token of tokens.slice(all.length)) all.push(forward(model, token, all, silent));
  return all;
}
function draw(at = state.token) { // compute what is new, and draw all
  const config = model.config, room = Math.min(config.context_length, 256), n = tokens.length;
  const last = tokens.slice(-room), t = state.token = Math.min(at, last.length - 1);
  whole = run(last, new Set(), whole);
  records = silenced.size ? run(last, silenced, records) : whole;
  document.body.classList.toggle("empty", !n);
  $("trouble").textContent = !n ? "An empty text has no token: type a character."
    : n > room ? `${n} tokens are more than fit: the model sees the last ${room}.` : "";
  if (!n) return;
  const { block: l, head: h } = state, record = records[t], here = record.blocks[l];
  const d = config.d_model / config.n_heads;
  const shared = Math.floor(h * here.keys.length / config.n_heads);
  const all = { config, t, l, h, d, n: records.length, shared, record, here };
  const nats = surprises(records);
  put("chips", choice("token", records.map(r => show(r.token)), [0, ...nats.map(x => x / 6)])
    + `<p>A bar is a token's <b>surprise</b>: ${t ? fixed(nats[t - 1]) : "none"} for the chosen one,
    in the mean <b>${fixed(mean(nats))} nats</b> = ${fixed(mean(nats) / Math.LN2)} bits.</p>`);
  for (const part of [draw_vectors, draw_attention, draw_heads, draw_next]) part(all);
}
function type(text) {
  const typed = words.encode(text), unknown = typed.indexOf(undefined);
  if (writing) write();
  if (unknown < 0) tokens = typed, draw(Infinity);
  else $("trouble").textContent = `“${[...text][unknown]}”, character ${unknown + 1}, is none of
    the ${model.config.d_vocab} that this model has seen. Below is still the text before it.`;
}
function cast() { // the dart of chapter 06: the chances lie end to end from 0 to 1
  const [, chances] = sampled(records.at(-1)), u = Math.random(), token = dart(chances, u);
  put("line", ranked(chances).filter(i => chances[i]).map(i => `<span style="flex: ${chances[i]}"
    class="${i === token && "hit"}">${chances[i] > 0.03 ? show(i) : ""}</span>`).join("")
    + `<i style="left: ${100 * u}%">▼</i>`);
  $("fell").innerHTML = `The dart fell at ${fixed(u)}, on <b>${show(token)}</b>.`;
  tokens = [...tokens, token];
  $("box").value = words.decode(tokens);
  draw(Infinity);
}
function write() {
  writing = writing ? clearInterval(writing) : setInterval(cast, 80);
  $("write").textContent = writing ? "Stop" : "Write on";
}
addEventListener("DOMContentLoaded", () => {
  const data = JSON.parse($("model").textContent), say = words => $("caption").textContent = words;
  [model, words] = [read(data), tokenizer(data)];
  const count = n => Array.from({ length: n }, (_, i) => i + 1), config = model.config;
  $("choice").innerHTML = choice("block", count(config.n_layers))
    + choice("head", count(config.n_heads));
  state.k = $("k").max = $("k").value = config.d_vocab;
  addEventListener("input", ({ target: { id, name, value, dataset: { key } } }) => {
    if (id === "box") return type(value);
    if (name in state) return state[name] = +value, draw();
    const [what, values] = strips[key];
    return say(`${what}, ${+value + 1} of ${values.length}: ${fixed(values[value], 4)}`);
  });
  addEventListener("click", ({ target }) => {
    const head = target.closest("[data-head]")?.dataset.head;
    if (head) silenced.delete(head) || silenced.add(head), records = [], draw();
  });
  [$("cast").onclick, $("write").onclick] = [cast, write];
  addEventListener("keydown", ({ key }) => key === "Escape" && writing && write());
  for (const event of ["pointerover", "focusin"]) addEventListener(event, ({ target }) => {
    const about = target.closest?.("[data-tip]"), part = about?.closest("section");
    say(about ? `${about.dataset.tip} · ${part.querySelector("small").textContent}` : "");
  });
  type($("box").value = data.text);
});
addEventListener("error", ({ message }) => words || $("about").replaceChildren(
  `The file is damaged, or the browser is too old: ${message}`));
