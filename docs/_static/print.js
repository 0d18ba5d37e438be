// Paper is white, also where the screen is dark: a page prints in its light theme.
const page = document.documentElement.dataset;
let onScreen;
addEventListener("beforeprint", () => {
  onScreen = page.theme;
  page.theme = "light";
});
addEventListener("afterprint", () => {
  page.theme = onScreen;
});
