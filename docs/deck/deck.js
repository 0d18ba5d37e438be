// Give each slide the largest type with which it fits, then start reveal.js.
const WIDTH = 1280, HEIGHT = 720, BORDER = 40;
const LARGEST = 32, SMALLEST = 20; // pixels of code: 20 are a 36th of the screen

window.MathJax = {
  tex: { inlineMath: [["$", "$"]] },
  svg: { fontCache: "local" },
};

const find = (slide, what) => [...slide.querySelectorAll(`:scope > ${what}`)];
const things = slide => find(slide, ":is(.highlight, .jp-OutputArea)");

// No part is lower or wider than the border.
function fits(slide) {
  const {top, left} = slide.getBoundingClientRect();
  return [...slide.querySelectorAll(":is(h1, h2, h3, p, pre, table, svg, .output)")]
    .filter(part => !part.closest("aside")).every(part => {
      const box = part.getBoundingClientRect();
      return box.bottom <= top + HEIGHT - BORDER && box.right <= left + WIDTH - BORDER
        && part.scrollWidth <= part.clientWidth + 1;
    });
}

// What doesn't fit goes on: first the outputs on a slide of their own, then lines.
function cut(slide) {
  const next = slide.cloneNode(true), pre = slide.querySelector("pre");
  const lines = pre?.innerHTML.trimEnd().split("\n") ?? [];
  if (things(slide).length > 1) {
    things(slide).slice(1).forEach(part => part.remove());
    things(next)[0].remove();
  } else if (lines.length > 1) {
    const half = Math.ceil(lines.length / 2);
    pre.innerHTML = lines.slice(0, half).join("\n");
    next.querySelector("pre").innerHTML = lines.slice(half).join("\n");
  } else return;
  find(next, "p").forEach(part => part.remove());
  slide.after(next);
  fit(slide);
  fit(next);
}

function fit(slide) {
  for (const formula of slide.querySelectorAll("mjx-container[display=true] > svg")) {
    const share = (WIDTH - 3 * BORDER) / formula.getBoundingClientRect().width;
    formula.parentElement.style.fontSize = `${48 * Math.min(1, share)}px`;
  }
  for (let size = LARGEST; size >= SMALLEST; size--) {
    slide.style.setProperty("--size", `${size}px`);
    const picture = slide.querySelector("img");
    if (picture) {
      const top = picture.getBoundingClientRect().top - slide.getBoundingClientRect().top;
      picture.style.height = `${HEIGHT - BORDER - top}px`;
    }
    if (fits(slide)) return;
  }
  cut(slide);
}

addEventListener("load", async () => {
  await MathJax.startup.promise;
  await Promise.all([...document.images].map(image => image.decode()));
  document.querySelectorAll(".slides > section > section").forEach(fit);
  document.body.classList.remove("cutting");
  await Reveal.initialize({
    width: WIDTH, height: HEIGHT, margin: 0, center: false, hash: true,
    navigationMode: "linear", slideNumber: "c/t", transition: "none",
    plugins: [RevealNotes],
  });
  document.body.dataset.ready = true;
});
