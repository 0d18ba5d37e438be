// Cut what is higher than the screen into several slides, then start reveal.js.
const WIDTH = 1280, HEIGHT = 720, ROOM = HEIGHT - 2 * 36;

window.MathJax = {
  tex: { inlineMath: [["$", "$"]] },
  svg: { fontCache: "local" },
};

// A heading, a sentence that ends with a colon, and code with its output to come never
// end a slide, if anything before them can.
const announces = block =>
  block.matches("h1, h2, h3") || block.nextElementSibling?.matches(".output")
  || block.matches("p") && /:\s*$/.test(block.textContent);

// One block alone that is too large is set smaller; what then is too large still scrolls.
function shrink(block) {
  const large = () => block.getBoundingClientRect().height > ROOM
    || [block, ...block.children].some(part => part.scrollWidth > part.clientWidth + 1);
  for (let size = 95; size >= 60 && large(); size -= 5) block.style.zoom = size / 100;
  if (large()) {
    block.style.maxHeight = `${ROOM / block.style.zoom}px`;
    block.style.overflow = "auto";
    block.tabIndex = 0;
  }
}

function cut(slide) {
  const blocks = [...slide.children];
  blocks.forEach(shrink);
  const top = blocks[0].getBoundingClientRect().top;
  const over = blocks.findIndex(b => b.getBoundingClientRect().bottom - top > ROOM);
  if (over < 1) return;
  let end = over;
  while (end > 0 && announces(blocks[end - 1])) end--;
  end ||= over;
  const next = slide.cloneNode(false);
  next.append(...blocks.slice(end));
  slide.after(next);
  cut(next);
}

addEventListener("load", async () => {
  await MathJax.startup.promise;
  await Promise.all([...document.images].map(image => image.decode()));
  document.querySelectorAll(".slides > section > section").forEach(cut);
  document.body.classList.remove("cutting");
  await Reveal.initialize({
    width: WIDTH, height: HEIGHT, margin: 0, center: false, hash: true,
    navigationMode: "linear", slideNumber: "c/t", transition: "none",
  });
  document.body.dataset.ready = true;
});
