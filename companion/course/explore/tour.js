// The tour: seven steps, each in the section that it speaks of. A step is [id, title, words].
const STEPS = [
  ["chips", "Type a line", () => `Change a word in the text below. With each key the whole model
    runs again, and every number on this page is computed anew.`],
  ["chips", "A surprise", () => {
    const nats = surprises(records), most = ranked(nats)[0];
    if (most === undefined) return "A surprise needs two tokens. Type one more, and come back.";
    draw(most + 1);
    return `The highest bar stands below token ${most + 2}, <b>${show(records[most + 1].token)}</b>:
      ${fixed(nats[most])} nats. What did the model expect there? Guess, then choose the token
      before it: the last part of this page has the answer.`;
  }],
  ["pattern", "A head that looks back", () => {
    const { l, h, share } = looks_back();
    for (const [name, i] of [["block", l], ["head", h]]) {
      document.querySelector(`[name=${name}][value="${i}"]`).checked = true;
      state[name] = i;
    }
    draw();
    return `Of all heads, head ${h + 1} of block ${l + 1} looks most at the token just before. In
      the mean over all tokens that gets <b>${fixed(share)}</b> of its weight: a stripe beside the
      diagonal. Where does the head look elsewhere?`;
  }],
  ["heads", "Silence it", () => {
    const { l, h } = looks_back();
    return `By how much will the mean surprise rise without head ${l + 1}.${h + 1}? Guess, and read
      the line above the pictures. <button data-head="${l}.${h}">Silence ${l + 1}.${h + 1}, or hear
      it again</button>`;
  }],
  ["lens", "The lens", () => `Each row says what would come next if the model ended there. From
    which block on is the first guess the one of the last row?`],
  ["next", "A knob", () => `Which way must the temperature go to make the bars equal? Guess, then
    move it, and draw one at 0.1 and one at 2.`],
  ["chips", "Your own line", () => `Write a line of your own. Which letter will surprise the model
    most? Guess before you look at the bars.`],
];
function looks_back() { // the head with most weight on the token just before; none is silenced
  const { n_layers, n_heads } = model.config, all = [];
  for (let l = 0; l < n_layers; l++) for (let h = 0; h < n_heads; h++) {
    const shares = whole.slice(1).map((record, s) => record.blocks[l].weights[h][s]);
    all.push({ l, h, share: mean(shares) });
  }
  return all[ranked(all.map(head => head.share))[0]];
}
function go(to) { // to a step; without a text there is only the first
  const at = tokens.length ? to : 0, [id, title, words] = STEPS[at];
  $("stop").textContent = ["Skip", "Done"][+(at === STEPS.length - 1)];
  $("told").innerHTML = `<b>${at + 1} of ${STEPS.length}: ${title}.</b> ${words()}`;
  [$("back").disabled, $("onward").disabled] = [at === 0, at === STEPS.length - 1];
  [$("tour").hidden, $("again").hidden] = [false, true];
  $(id).closest("section").querySelector("h2, h3").after($("tour"));
  state.step = at;
}
function walk(to) { // at a reader's wish: the focus stays in the tour, and all of it is seen
  go(Math.max(0, Math.min(to, STEPS.length - 1)));
  $(state.step === STEPS.length - 1 ? "stop" : "onward").focus({ preventScroll: true });
  $("tour").closest("section").scrollIntoView();
}
function stop() {
  [$("tour").hidden, $("again").hidden] = [true, false];
  $("again").focus({ preventScroll: true });
}
function memory(write) { // whether the tour is never to begin by itself; a page may have none
  try {
    if (write) localStorage.setItem("no tour", "1");
    return localStorage.getItem("no tour");
  } catch { return null; }
}
addEventListener("DOMContentLoaded", () => {
  $("again").onclick = () => walk(0);
  $("back").onclick = () => walk(state.step - 1);
  $("onward").onclick = () => walk(state.step + 1);
  $("stop").onclick = stop;
  $("never").onclick = () => [memory(true), stop()];
  $("tour").onkeydown = ({ key }) => {
    if (key === "Escape") stop();
    if (key in { ArrowLeft: 1, ArrowRight: 1 }) walk(state.step + (key === "ArrowLeft" ? -1 : 1));
  };
  addEventListener("input", () => tokens.length || $("tour").hidden || go(0));
  memory() ? $("again").hidden = false : go(0);
});
